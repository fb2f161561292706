/** The stream that progress is written to, a terminal or not. */
export interface ProgressStream {
  readonly isTTY?: boolean;
  readonly columns?: number;
  write(text: string): unknown;
}

interface Progress {
  /** Reports the fraction that is done, 0 to 1, with `what` beside it. */
  at(share: number, what: string): void;
  /** Erases the bar. */
  end(): void;
}

/** Milliseconds before the first update on a terminal, between updates there, and between lines elsewhere. */
const FIRST = 500;
const BAR_EVERY = 100;
const LINE_EVERY = 5000;
const BAR_WIDTH = 24;
const ERASE = "\r\u001b[K";

/** A progress bar on a terminal, occasional lines elsewhere, and nothing for work that is done soon or without a stream. */
export function createProgress(stream: ProgressStream | undefined, now: () => number): Progress {
  if (stream === undefined) return { at() {}, end() {} };
  const every = stream.isTTY ? BAR_EVERY : LINE_EVERY;
  let next = now() + (stream.isTTY ? FIRST : LINE_EVERY);
  let drawn = false;
  return {
    at(share, what) {
      if (now() < next) return;
      next = now() + every;
      const text = `${`${Math.floor(100 * share)}`.padStart(3)} %  ${what}`;
      if (!stream.isTTY) {
        stream.write(`${text.trimStart()}\n`);
        return;
      }
      const full = Math.floor(BAR_WIDTH * share);
      const line = `[${"#".repeat(full)}${".".repeat(BAR_WIDTH - full)}] ${text}`;
      // A line that wraps could not be erased.
      stream.write(`${ERASE}${line.slice(0, (stream.columns ?? 80) - 1)}`);
      drawn = true;
    },
    end() {
      if (drawn) stream.write(ERASE);
      drawn = false;
    },
  };
}
