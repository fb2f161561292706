/** What was said already. It is nobody's result: the only state that a module of this package has. */
const said = new Set<string>();

/** Says something on the console that a caller would otherwise have to look for in the data, each text once. */
export function warnOnce(text: string): void {
  if (said.has(text)) return;
  said.add(text);
  console.warn(`headwise: ${text}`);
}
