/**
 * Work in steps, each of which yields the number of floating-point operations it did. Other code may run between two
 * steps; `return()` abandons the work and frees what it holds.
 */
export type Steps<T = void> = Generator<number, T, void>;

/** Runs all steps and returns the result. */
export function finish<T>(steps: Steps<T>): T {
  for (;;) {
    const { done, value } = steps.next();
    if (done) return value;
  }
}
