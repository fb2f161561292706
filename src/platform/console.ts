/**
 * Warnings that were printed already. No result depends on them; they are the only module-level state of this package.
 */
const printed = new Set<string>();

/** Prints a warning on the console, each text once. */
export function warnOnce(text: string): void {
  if (printed.has(text)) return;
  printed.add(text);
  console.warn(`headwise: ${text}`);
}
