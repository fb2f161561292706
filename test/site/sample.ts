// Which engine runs which scenario. What engines differ in runs in all three: numbers, bits, files, storage, threads. Scenarios of the
// page's own script, which a second engine repeats and a third would repeat again, run in Chromium and one of the others, always the same.

const ENGINES: readonly string[] = ["chrome", "firefox", "webkit"];

/** In the names of scenarios: what engines have ways of their own for. */
const EVERYWHERE = /\bNode\b|\bbits\b|\bfiles?\b|\bfolder|\breload|\bsaves\b|\bcopies\b|\bkept\b|\bthreads\b|\bfits\b/;

/** The engines of a scenario of a page. */
export function enginesOf(page: string, what: string): readonly string[] {
  if (EVERYWHERE.test(what)) return ENGINES;
  let hash = 0;
  for (const letter of `${page}, ${what}`) hash = (31 * hash + (letter.codePointAt(0) as number)) % 65_521;
  return ["chrome", ENGINES[1 + (hash % 2)] as string];
}
