/** Where lines go: a terminal or not. */
export interface ProgressStream {
  readonly isTTY?: boolean;
  readonly columns?: number;
  write(text: string): unknown;
}

export interface Progress {
  /** That share is done, 0 to 1; `what` is said beside it. */
  at(share: number, what: string): void;
  /** Leaves nothing of a bar behind. */
  end(): void;
}

/** Milliseconds before anything is shown, and between what is shown on a terminal and elsewhere. */
const FIRST = 500;
const BAR_EVERY = 100;
const LINE_EVERY = 5000;
const BAR_WIDTH = 24;
const ERASE = "\r\u001b[K";

/** A bar that is drawn over on a terminal, a line now and then elsewhere, and nothing for what is soon done. */
export function createProgress(stream: ProgressStream, now: () => number): Progress {
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
      // A line that wraps could not be drawn over.
      stream.write(`${ERASE}${line.slice(0, (stream.columns ?? 80) - 1)}`);
      drawn = true;
    },
    end() {
      if (drawn) stream.write(ERASE);
      drawn = false;
    },
  };
}

/** Bytes as people read them. */
export function sizeText(bytes: number): string {
  const units = ["bytes", "KB", "MB", "GB", "TB"];
  let [size, unit] = [bytes, 0];
  for (; size >= 1000 && unit < units.length - 1; unit++) size /= 1000;
  return `${unit === 0 ? size : size.toPrecision(3)} ${units[unit]}`;
}
