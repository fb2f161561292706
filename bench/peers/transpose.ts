/** w [rows, columns] transposed: the layout of libraries that multiply by weights from the right. */
export function transposed<A extends Float32Array | Int8Array | Uint8Array>(w: A, rows: number, columns: number): A {
  const data = w.slice() as A;
  for (let r = 0; r < rows; r++) for (let c = 0; c < columns; c++) data[c * rows + r] = w[r * columns + c]!;
  return data;
}
