// Standard output, which commands write here alone, so that an output that cannot be written ends each of them in the same way.

/** The exit code of a program that SIGPIPE ended, as shells report it: 128 and the number of the signal. */
const NO_READER = 128 + 13;

/** Writes a text and a line break. */
export function print(text: string): void {
  write(`${text}\n`);
}

/** Writes a text as it is. */
export function write(text: string): void {
  process.stdout.write(text);
}

/**
 * Ends the program once standard output cannot be written: without a word where its reader has ended, as `head` does, else with
 * the reason. `console.log` would lose these errors.
 */
export function watchOutput(): void {
  process.stdout.on("error", (error: NodeJS.ErrnoException) => {
    if (error.code === "EPIPE") process.exit(NO_READER);
    console.error(`headwise: standard output expected one that can be written, got ${error.message}`);
    process.exit(1);
  });
  // Progress and remarks that nobody reads are no reason to end.
  process.stderr.on("error", () => {});
}
