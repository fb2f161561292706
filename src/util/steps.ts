/**
 * Work that can be left off between its steps. A step yields the floating-point operations it did; between two of them
 * other code may run, and `return()` gives up what the rest would have used.
 */
export type Steps<T = void> = Generator<number, T, void>;

/** All steps in one go. */
export function finish<T>(steps: Steps<T>): T {
  for (;;) {
    const { done, value } = steps.next();
    if (done) return value;
  }
}
