// Plain loops in float64 that share no code with any contender.

type Floats = ArrayLike<number>;

/** w [outputs, width] · x [width] + bias */
export function dense(x: Floats, w: Float32Array, bias: Floats | undefined, width: number): Float64Array {
  const y = new Float64Array(w.length / width);
  for (let n = 0; n < y.length; n++) {
    let sum = bias ? bias[n]! : 0;
    for (let i = 0, at = n * width; i < width; i++) sum += x[i]! * w[at + i]!;
    y[n] = sum;
  }
  return y;
}

/** Rotates the heads of a row by its position: pairs are half a head apart. */
export function rotate(row: Float64Array, position: number, headDim: number, theta: number): void {
  const half = headDim / 2;
  for (let i = 0; i < half; i++) {
    const angle = position * theta ** (-i / half);
    const [cos, sin] = [Math.cos(angle), Math.sin(angle)];
    for (let at = i; at < row.length; at += headDim) {
      const [a, b] = [row[at]!, row[at + half]!];
      row[at] = a * cos - b * sin;
      row[at + half] = b * cos + a * sin;
    }
  }
}
