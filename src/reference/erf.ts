/** (1 + erf(x / √2)) / 2 to some 13 digits, those of small values included. */
export function normalCdf(x: number): number {
  const tail = upperTail(Math.abs(x));
  return x < 0 ? tail : 1 - tail;
}

/** (1 - erf(x / √2)) / 2 for x >= 0. */
function upperTail(x: number): number {
  const density = Math.exp((-x * x) / 2) / Math.sqrt(2 * Math.PI);
  if (x === Number.POSITIVE_INFINITY) return 0;
  if (x > 3) {
    // Laplace's continued fraction.
    let fraction = x;
    for (let i = 120; i > 0; i--) fraction = x + i / fraction;
    return density / fraction;
  }
  // The integral's series, of positive terms.
  let term = x;
  let sum = x;
  for (let i = 3; i < 120; i += 2) {
    term *= (x * x) / i;
    sum += term;
  }
  return 0.5 - density * sum;
}
