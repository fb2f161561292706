// The text of a command: an argument, or "-" for what standard input gives.

/** A text as it was given, or all of standard input without the line break at its end, which `echo` and editors write. */
export async function readPrompt(given: string): Promise<string> {
  if (given !== "-") return given;
  const pieces: Uint8Array[] = [];
  for await (const piece of process.stdin) pieces.push(piece as Uint8Array);
  return new TextDecoder().decode(Buffer.concat(pieces)).replace(/\r?\n$/, "");
}
