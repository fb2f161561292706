/** w [rows, columns] transposed, as libraries take weights that multiply from the right. */
export function transposed(w: Float32Array, rows: number, columns: number): Float32Array {
  const data = new Float32Array(w.length);
  for (let r = 0; r < rows; r++) for (let c = 0; c < columns; c++) data[c * rows + r] = w[r * columns + c]!;
  return data;
}
