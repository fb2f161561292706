import { createFloats } from "../../base/tensor/tensor.ts";
import { expectInt, expectOneOf, readFields, readList } from "../../base/util/arguments.ts";
import { describe } from "../../base/util/errors.ts";
import { finish } from "../../base/util/steps.ts";
import { checkSlices, SLICE_OPTIONS, type SliceOptions } from "../../layers/pass/slices.ts";
import { expectRoom } from "../../layers/state/kv-cache.ts";
import type { OutputSink } from "../blocks/ends.ts";
import { MOST_TOP } from "../blocks/scratch.ts";
import { commitCalls, type ModelCall, runCalls, runModel } from "./pass.ts";
import { expectSession, expectUnused, type Session } from "./session.ts";

/** Options of `forward`. */
export interface ForwardOptions {
  /** Whose logits: those of the last token, or of all of `ids`. Default "last". */
  readonly rows?: "last" | "all" | undefined;
  /**
   * Only the largest logits of each row, 1 to 1024, and their ids: 1 is greedy decoding. They are found in linear memory, so that
   * no row is copied. Default all logits.
   */
  readonly top?: number | undefined;
}

/** What `forward` gives. */
export interface ForwardResult {
  /** [vocabSize] of the last token, or [ids.length, vocabSize]; with `top`, that many instead of vocabSize, descending. */
  logits: Float32Array;
  /** With `top`: the ids of these logits, of equal ones the lower first. */
  ids?: Int32Array;
}

/** Token ids: integers from 0 to vocabSize - 1. */
export type TokenIds = ArrayLike<number>;

/** Reads token ids: a copy, checked. Of a list of more than `most` ids, the result has the length only. */
export function readIds(where: string, name: string, ids: unknown, vocabSize: number, most: number): ArrayLike<number> {
  return readList(where, name, ids, most, (id, i) => {
    if (typeof id === "number" && Number.isInteger(id) && id >= 0 && id < vocabSize) return id;
    const way = typeof id === "bigint" ? `: convert them with Array.from(${name}, Number)` : "";
    const text = `${where}: ${name}[${i}] expected an integer from 0 to ${vocabSize - 1}, got ${describe(id)}${way}`;
    throw typeof id === "number" ? new RangeError(text) : new TypeError(text);
  });
}

/** A checked call on a session. */
export function checkModelCall(where: string, session: Session, ids: TokenIds, rows: unknown): ModelCall {
  expectSession(where, session);
  expectOneOf(where, "rows", rows, ["last", "all"]);
  const read = readIds(where, "ids", ids, session.model.vocabSize, session.maxSeqLen);
  if (read.length === 0) throw new RangeError(`${where}: ids expected 1 or more tokens, got none`);
  // Reading them may have run code of the caller's.
  expectSession(where, session);
  expectUnused(where, session);
  expectRoom(where, session, "ids", read.length);
  return {
    where,
    session,
    past: session.length,
    ids: Int32Array.from(read),
    outputs: rows === "all" ? read.length : 1,
  };
}

/**
 * Reads tokens: runs them through all layers, behind those that the session has read, and returns logits.
 *
 * The logits of a token have the same bits in one call, in several, token by token, in any batch and on any number of threads.
 * @param ids Tokens, 1 or more.
 * @throws TypeError or RangeError naming the argument. HeadwiseError `CACHE_FULL`, `OUT_OF_MEMORY`, `RELEASED`, `IN_USE`, and
 * with threads `WORKER_LOST` or `KERNEL_FAILED`. The session is then unchanged.
 * @example
 * import { loadKernels } from "headwise";
 * import { quantized } from "headwise/quantized";
 * import { createSession, forward, loadModel, models } from "headwise/models";
 * const kernels = await loadKernels({ models, quantized });
 * const model = await loadModel(kernels, "model");
 * const session = createSession(model);
 * const { logits } = forward(session, [3, 1, 4]);
 * console.log(logits.length === model.vocabSize, session.length); // true 3
 * kernels.release();
 */
export function forward(session: Session, ids: TokenIds, options: ForwardOptions = {}): ForwardResult {
  const where = "forward";
  const { rows = "last", top } = readFields(where, "options", options, ["rows", "top"]);
  const call = checkModelCall(where, session, ids, rows);
  const { result, sink } = collectLogits(where, call, top);
  finish(runModel(where, session.model, [call], sink));
  commitCalls([call]);
  return result;
}

/** Options of `forwardAsync`. */
export type ForwardAsyncOptions = ForwardOptions & SliceOptions;

/**
 * `forward` in time slices, with yields to the event loop between them. The session is in use until the promise settles: other
 * calls on it throw `IN_USE`.
 * @throws The same errors as `forward`, and the signal's reason. The session is then unchanged.
 * @example
 * import { loadKernels } from "headwise";
 * import { createSession, forwardAsync, loadModel, models } from "headwise/models";
 * const kernels = await loadKernels({ models });
 * const session = createSession(await loadModel(kernels, "model"));
 * let last = 0;
 * await forwardAsync(session, [3, 1, 4], { onProgress: (done) => (last = done) });
 * console.log(session.length, last); // 3 1
 * kernels.release();
 */
export async function forwardAsync(
  session: Session,
  ids: TokenIds,
  options: ForwardAsyncOptions = {},
): Promise<ForwardResult> {
  const where = "forwardAsync";
  const { rows = "last", top, ...rest } = readFields(where, "options", options, ["rows", "top", ...SLICE_OPTIONS]);
  const slices = checkSlices(where, rest);
  const call = checkModelCall(where, session, ids, rows);
  const { result, sink } = collectLogits(where, call, top);
  await runCalls(where, session.model, [call], sink, slices);
  return result;
}

/** Arrays for the logits of a call, or for the largest of them, and what fills them. */
export function collectLogits(
  where: string,
  { session, outputs }: ModelCall,
  top: number | undefined,
): { result: ForwardResult; sink: OutputSink } {
  const { vocabSize } = session.model;
  if (top === undefined) {
    const logits = createFloats(where, "logits", outputs * vocabSize);
    return { result: { logits }, sink: (row) => logits.set(row.logits(), row.output * vocabSize) };
  }
  const count = expectInt(where, "top", top, 1, Math.min(MOST_TOP, vocabSize));
  const logits = createFloats(where, "logits", outputs * count);
  const ids = new Int32Array(logits.length);
  const sink: OutputSink = (row) => {
    const found = row.top(count);
    logits.set(found.values, row.output * count);
    ids.set(found.ids, row.output * count);
  };
  return { result: { logits, ids }, sink };
}
