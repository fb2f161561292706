/** w [rows, columns] transposed, as libraries take weights that multiply from the right. */
export function transposed<A extends Float32Array | Int8Array | Uint8Array>(w: A, rows: number, columns: number): A {
  const data = w.slice() as A;
  for (let r = 0; r < rows; r++) for (let c = 0; c < columns; c++) data[c * rows + r] = w[r * columns + c]!;
  return data;
}
