// The random cases of properties that fast-check tries.

/**
 * What `assert` of fast-check takes: how many cases, from which seed. When a property fails, fast-check prints the seed and the
 * path of the case; PROPERTY_SEED gives all properties another one, to repeat that or to try other cases.
 */
export function randomCases(numRuns: number, seed: number): { readonly numRuns: number; readonly seed: number } {
  return { numRuns, seed: Number(process.env.PROPERTY_SEED || seed) };
}
