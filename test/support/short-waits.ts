import { afterEach, beforeEach, vi } from "vitest";

/** In a file that calls this, waits of what is tested take a twentieth of their time: those before a request is made again. */
export function shortenWaits(): void {
  beforeEach(() => {
    const real = globalThis.setTimeout;
    const shorter = (run: () => void, ms = 0, ...rest: []) => real(run, ms / 20, ...rest);
    vi.spyOn(globalThis, "setTimeout").mockImplementation(shorter as typeof setTimeout);
  });
  afterEach(() => {
    vi.restoreAllMocks();
  });
}
