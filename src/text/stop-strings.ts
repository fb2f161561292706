import { describe } from "../util/errors.ts";

/** Finds stop strings in text that comes in pieces. */
export interface StopFinder {
  /** The text that is certain not to belong to a stop string, and the stop string behind it, if one is complete. */
  push(piece: string): { readonly text: string; readonly stop?: string };
  /** What was held back because a stop string could have begun there. */
  end(): string;
}

/** Reads the option `stop`: a string or a list of them. */
export function readStops(where: string, stop: unknown): readonly string[] {
  const given: readonly unknown[] = stop === undefined ? [] : Array.isArray(stop) ? [...stop] : [stop];
  return given.map((each, i) => {
    const name = Array.isArray(stop) ? `stop[${i}]` : "stop";
    const rule = "a string of 1 or more whole characters";
    // Half of a surrogate pair is never given, nor found.
    if (typeof each === "string" && each !== "" && !/\p{Surrogate}/u.test(each)) return each;
    const text = `${where}: ${name} expected ${rule}, got ${describe(each)}`;
    throw typeof each === "string" ? new RangeError(text) : new TypeError(text);
  });
}

/** Looks for the first of `stops` in text that comes in pieces, which may divide it anywhere. */
export function findStops(stops: readonly string[]): StopFinder {
  let held = "";
  /** The stop string that is complete first, so that it does not matter how the text is divided; of several, the longest. */
  const firstOf = () => {
    let first: { at: number; stop: string; end: number } | undefined;
    for (const stop of stops) {
      const at = held.indexOf(stop);
      const end = at + stop.length;
      if (at >= 0 && (!first || end < first.end || (end === first.end && at < first.at))) first = { at, stop, end };
    }
    return first;
  };
  /** Characters at the end with which a stop string begins. */
  const begun = () => {
    const most = Math.min(held.length, Math.max(0, ...stops.map(({ length }) => length - 1)));
    for (let count = most; count > 0; count--)
      if (stops.some((stop) => stop.startsWith(held.slice(-count)))) return count;
    return 0;
  };
  return {
    push(piece) {
      held += piece;
      const found = firstOf();
      if (found) return { text: held.slice(0, found.at), stop: found.stop };
      const text = held.slice(0, held.length - begun());
      held = held.slice(text.length);
      return { text };
    },
    end: () => held,
  };
}
