// Where the lines of the page of embeddings are kept: in the address or, where they are too long for it, on this device.

/** Characters of lines that an address may have. */
export const MOST_IN_ADDRESS = 1500;
const LONG = `More than ${MOST_IN_ADDRESS} characters are too long for an address`;
const KEPT = "headwise embeddings";

/** Where lines are, as a sentence. */
export const PLACES = {
  address: "The lines are part of the address: every view is a link.",
  device: `${LONG}: they are kept on this device, and a link to this page has all but the lines.`,
  nowhere: `${LONG}, and this browser keeps nothing: the lines are lost with this page.`,
  elsewhere: "The lines of this link are on the device that it was made on: these are others, to try.",
};

/** Keeps lines for the next visit, and says whether it could. */
export function keepOnDevice(lines: string): boolean {
  try {
    localStorage.setItem(KEPT, lines);
    return true;
  } catch {
    return false; // no storage, or no room in it
  }
}

/** The lines of the last visit. */
export function keptLines(): string | undefined {
  try {
    return localStorage.getItem(KEPT) ?? undefined;
  } catch {
    return undefined; // no storage
  }
}
