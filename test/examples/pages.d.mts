// What tests in TypeScript use of pages.mjs.

/** Calls `look(page, errors)` with a page of a browser of puppeteer, or one with its operations. */
export function visit<P, T>(
  browser: { newPage(): Promise<P> },
  url: string,
  look: (page: P, errors: readonly string[]) => T,
): Promise<Awaited<T>>;
