import { expectFreeFor, expectRoom } from "../cache/kv-cache.ts";
import { createFloats } from "../tensor/tensor.ts";
import { readFields } from "../util/arguments.ts";
import { describe } from "../util/errors.ts";
import { finish } from "../util/steps.ts";
import { commitCalls, type ModelCall, runModel } from "./pass.ts";
import { expectSession, type Session } from "./session.ts";

/** Options of `forward`. */
export interface ForwardOptions {
  /** Whose logits: those of the last token, or of all of `ids`. Default "last". */
  readonly rows?: "last" | "all";
}

/** Token ids: integers from 0 to vocabSize - 1. */
export type TokenIds = ArrayLike<number>;

/** Reads token ids: a copy, checked. */
export function expectIds(where: string, ids: TokenIds, vocabSize: number): Int32Array {
  if (ids === null || typeof ids !== "object" || !Number.isInteger(ids.length))
    throw new TypeError(`${where}: ids expected a list of integers, got ${describe(ids)}`);
  if (ids.length === 0) throw new RangeError(`${where}: ids expected 1 or more tokens, got none`);
  return Int32Array.from({ length: ids.length }, (_, i) => {
    const id = ids[i];
    if (typeof id === "number" && Number.isInteger(id) && id >= 0 && id < vocabSize) return id;
    const text = `${where}: ids[${i}] expected an integer from 0 to ${vocabSize - 1}, got ${describe(id)}`;
    throw typeof id === "number" ? new RangeError(text) : new TypeError(text);
  });
}

/** A checked call on a session. */
export function checkModelCall(where: string, session: Session, ids: TokenIds, rows: "last" | "all"): ModelCall {
  expectSession(where, session);
  const read = expectIds(where, ids, session.model.vocabSize);
  expectSession(where, session);
  for (const cache of session.caches) expectFreeFor(where, cache, true);
  const [cache] = session.caches;
  if (cache) expectRoom(where, cache, "ids", read.length);
  return { where, session, ids: read, outputs: rows === "all" ? read.length : 1 };
}

/**
 * Reads tokens: runs them through all layers, behind those that the session has read, and returns logits.
 *
 * The logits of a token have the same bits in one call, in several, token by token, in any batch and on any number of threads.
 * @param ids Tokens, 1 or more.
 * @throws TypeError or RangeError naming the argument. HeadwiseError `CACHE_FULL`, `OUT_OF_MEMORY`, `RELEASED`, `IN_USE`. The
 * session is then unchanged.
 */
export function forward(
  session: Session,
  ids: TokenIds,
  options: ForwardOptions = {},
): {
  /** [vocabSize] of the last token, or [ids.length, vocabSize]. */
  logits: Float32Array;
} {
  const where = "forward";
  const { rows = "last" } = readFields(where, "options", options, ["rows"]);
  const call = checkModelCall(where, session, ids, rows);
  const { vocabSize } = session.model;
  const logits = createFloats(where, "logits", call.outputs * vocabSize);
  finish(runModel(where, session.model, [call], (row) => logits.set(row.logits(), row.output * vocabSize)));
  commitCalls([call]);
  return { logits };
}
