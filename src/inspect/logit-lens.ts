import { MOST_TOP } from "../decoder/scratch.ts";
import { createFloats, type Tensor } from "../tensor/tensor.ts";
import { expectInt, expectOneOf, readFields } from "../util/arguments.ts";
import { ln } from "../util/math.ts";
import { finish, type Steps } from "../util/steps.ts";
import { type CapturedRun, expectRun, rowAt } from "./captured-run.ts";
import { readTokens } from "./edits.ts";
import { unembedSteps } from "./unembed.ts";

/** Options of `logitLens`. */
export interface LogitLensOptions {
  /** Which residual of each layer: before attention, between attention and MLP, or behind the layer. Default "residPost". */
  readonly at?: "residPre" | "residMid" | "residPost" | undefined;
  /** Which tokens, as indices into `run.ids`, each once. Default all. */
  readonly tokens?: readonly number[] | undefined;
  /** Only the largest logits of each row, 1 to 1024, and their ids. Default all logits. */
  readonly top?: number | undefined;
}

/** What `logitLens` gives. */
export interface LogitLensResult {
  /** [layers, tokens, vocabSize], or with `top` that many instead of vocabSize, descending. */
  logits: Tensor;
  /** With `top`: the ids of these logits [layers, tokens, top], of equal ones the lower first. */
  ids?: Int32Array;
  /** ln Σ exp(logit) over all ids, [layers, tokens]: exp(logit - logSumExp) is a probability. */
  logSumExp: Tensor;
}

/**
 * The logit lens: what the model would predict if it ended at each layer, its residual taken through the final norm and the head, with
 * factor and softcap. The last layer's rows at "residPost" have the bits of the logits of `forward`.
 * @throws TypeError or RangeError naming the argument, also for `residMid` of layers that run attention and MLP side by side.
 * HeadwiseError `RELEASED` or `OUT_OF_MEMORY`.
 * @example
 * import { loadKernels } from "headwise";
 * import { captureRun, logitLens } from "headwise/inspect";
 * import { createSession, loadModel, models } from "headwise/models";
 * const kernels = await loadKernels({ models });
 * using run = captureRun(createSession(await loadModel(kernels, "model")), [3, 1, 4, 3]);
 * const { ids, logits } = logitLens(run, { tokens: [3], top: 1 });
 * console.log(logits.shape, ids!.length); // [ 2, 1, 1 ] 2: one id for each layer
 * kernels.release();
 */
export function logitLens(run: CapturedRun, options: LogitLensOptions = {}): LogitLensResult {
  return finish(logitLensSteps(run, options));
}

/** `logitLens` in steps, each of which yields how many rows went through the head. */
export function* logitLensSteps(run: CapturedRun, options: LogitLensOptions = {}): Steps<LogitLensResult> {
  const where = "logitLens";
  const given = readFields(where, "options", options, ["at", "tokens", "top"]);
  expectRun(where, run);
  const { model } = run;
  const { vocabSize } = model;
  const { blocks } = model.spec;
  const at = expectOneOf(where, "options.at", given.at ?? "residPost", ["residPre", "residMid", "residPost"]);
  const parallel = at === "residMid" ? blocks.findIndex((block) => block.parallel) : -1;
  if (parallel >= 0)
    throw new RangeError(
      `${where}: options.at expected a site of layer ${parallel}, which runs attention and MLP side by side, got "residMid"`,
    );
  const { length } = run.ids;
  const all = Array.from({ length }, (_, token) => token);
  const tokens = given.tokens === undefined ? all : readTokens(where, "options.tokens", given.tokens, length);
  const top =
    given.top === undefined ? 0 : expectInt(where, "options.top", given.top, 1, Math.min(MOST_TOP, vocabSize));

  const rows = blocks.flatMap((_, layer) => tokens.map((token) => rowAt(run, at, layer, token)));
  const width = top || vocabSize;
  const shape = [blocks.length, tokens.length];
  const logits = { data: createFloats(where, "logits", rows.length * width), shape: [...shape, width] };
  const logSumExp = { data: createFloats(where, "logSumExp", rows.length), shape };
  const ids = new Int32Array(rows.length * top);
  yield* unembedSteps(where, model, rows, (row) => {
    const { largest, sum } = row.sums();
    logSumExp.data[row.output] = largest + ln(sum);
    const found = top ? row.top(top) : { values: row.logits(), ids: [] };
    logits.data.set(found.values, row.output * width);
    ids.set(found.ids, row.output * top);
  });
  return { logits, ...(top && { ids }), logSumExp };
}
