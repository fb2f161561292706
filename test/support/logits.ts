import { expect } from "vitest";
import { forward } from "../../src/models/decoder/forward.ts";
import type { Session } from "../../src/models/decoder/session.ts";

/** The logits of all tokens, which are read in calls of these lengths. */
export function logitsOf(session: Session, ids: readonly number[], lengths: readonly number[]): number[] {
  const all: number[] = [];
  let from = 0;
  for (const length of lengths) {
    all.push(...forward(session, ids.slice(from, from + length), { rows: "all" }).logits);
    from += length;
  }
  expect(from).toBe(ids.length);
  return all;
}
