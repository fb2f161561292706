// Logits by component and by layer.

import { createFloats, type Tensor } from "../../base/tensor/tensor.ts";
import { expectFloats, expectInt, expectOneOf, readFields, readList } from "../../base/util/arguments.ts";
import { exp, ln } from "../../base/util/math.ts";
import { chunksOf, copyRows } from "../../base/util/rows.ts";
import { finish, type Steps } from "../../base/util/steps.ts";
import { blockRows, MOST_TOP, planPass } from "../../models/blocks/block.ts";
import { type OutputSink, runHead } from "../../models/blocks/ends.ts";
import type { LoadedModel } from "../../models/blocks/model.ts";
import { decompose } from "./decompose.ts";
import { type CapturedRun, expectRun, expectToken, rowAt } from "./forward-with.ts";
import {
  addPart,
  type Component,
  dot,
  freezeNorm,
  inOrder,
  type Part,
  readMatrix,
  readNorm,
  weightRows,
} from "./parts.ts";

import { readTokens } from "./sites.ts";

// The probabilities of next tokens.

/** The softmax of logits. */
function probabilitiesOf(logits: Float32Array): Float64Array {
  const most = logits.reduce((a, b) => Math.max(a, b), -Infinity);
  const shares = Float64Array.from(logits, (logit) => exp(logit - most));
  const sum = shares.reduce((total, share) => total + share, 0);
  return shares.map((share) => share / sum);
}

/** The ids of the largest values, of equal ones the lower first. One pass over them, because vocabularies are large. */
function largestIds(values: Float32Array, count: number): number[] {
  const best: number[] = [];
  for (let id = 0; id < values.length; id++) {
    const value = values[id]!;
    if (best.length === count && !(value > values[best[count - 1]!]!)) continue;
    const at = best.findIndex((each) => values[each]! < value);
    best.splice(at < 0 ? best.length : at, 0, id);
    best.length = Math.min(best.length, count);
  }
  return best;
}

/** A token that may come next. */
export interface NextToken {
  /** The token. */
  readonly id: number;
  /** Its logit. */
  readonly logit: number;
  /** Its share of the softmax over all logits. */
  readonly probability: number;
}

/**
 * The most probable next tokens, or the probabilities of tokens of yours, in float64.
 * @param logits Of one position, [vocabSize], as `forward` and `forwardWith` give them.
 * @param which How many of the most probable tokens, the most probable first, of equal ones the lower id; or the ids, in whose order
 * the result is.
 * @throws TypeError or RangeError naming the argument.
 * @example
 * import { nextTokens } from "headwise/inspect";
 * const logits = Float32Array.of(0, 3, 1, 2);
 * console.log(nextTokens(logits, 2).map(({ id, probability }) => `${id} ${probability.toFixed(2)}`)); // [ '1 0.64', '3 0.24' ]
 * console.log(nextTokens(logits, [0])[0]?.probability.toFixed(2)); // 0.03
 */
export function nextTokens(logits: Float32Array, which: number | readonly number[]): NextToken[] {
  const where = "nextTokens";
  const { length } = expectFloats(where, "logits", logits);
  if (length === 0) throw new RangeError(`${where}: logits expected one or more, got none`);
  const ids = Array.isArray(which)
    ? readList(where, "which", which, Infinity, (id, i) => expectInt(where, `which[${i}]`, id, 0, length - 1))
    : largestIds(logits, Math.min(length, expectInt(where, "which", which, 0)));
  const shares = probabilitiesOf(logits);
  return Array.from(ids, (id) => ({ id, logit: logits[id]!, probability: shares[id]! }));
}

/** Rows that go through the head at once: what large vocabularies take some hundred milliseconds for. */
const MOST_ROWS = 64;

/** Takes rows [dModel] through the final norm and the head. */
export function unembed(where: string, model: LoadedModel, rows: readonly Float32Array[], sink: OutputSink): void {
  finish(unembedSteps(where, model, rows, sink));
}

/** `unembed` in steps, each of which yields how many rows it took. */
function* unembedSteps(where: string, model: LoadedModel, rows: readonly Float32Array[], sink: OutputSink): Steps {
  const { kernels, spec, places, weights, dModel } = model;
  const { memory } = kernels;
  const most = Math.min(rows.length, MOST_ROWS);
  const plan = planPass(spec, places, { rows: most, outputs: most }, () => undefined);
  for (const [begin, end] of chunksOf(rows.length, most)) {
    const base = memory.scratch(where, plan.bytes);
    const work = { kernels, base, shape: plan.shape, linear: plan.linear, mode: weights.mode, stepFlops: Infinity };
    const own = blockRows(plan, base);
    const to = memory.f32(own.residual.at, most * plan.stride);
    for (let i = begin; i < end; i++)
      copyRows(to, (i - begin) * plan.stride, plan.stride, rows[i] as Float32Array, dModel, dModel);
    const outputs = Array.from({ length: end - begin }, (_, row) => ({ row, output: begin + row }));
    finish(runHead(work, model, plan, own, outputs, sink));
    yield end - begin;
  }
}

/** Which logit to attribute. */
export interface LogitPlace {
  /** The token whose row becomes logits, as an index into `run.ids`. */
  readonly token: number;
  /** The id of the logit. */
  readonly id: number;
  /** Another id: then the difference of both logits is attributed. Default none. */
  readonly minus?: number | undefined;
}

/** A logit by component. */
export interface LogitAttrs {
  /** The logit, or the difference, before the softcap: the sum of `parts`. */
  readonly logit: number;
  /** What wrote to the last residual, and biases of what comes behind it. */
  readonly components: readonly Component[];
  /** What each component gives. */
  readonly parts: Float64Array;
}

/**
 * Direct logit attribution: a logit, or the difference of two, split by what wrote to the last residual: embedding, each head,
 * each MLP, biases. The final norm has the scale of the actual row, with which it is linear; a factor on logits is part of it. A
 * softcap on logits is not: with softcap c the model's logit is c·tanh(logit / c).
 * @throws TypeError or RangeError naming the argument. HeadwiseError `RELEASED`.
 * @example
 * import { loadKernels } from "headwise";
 * import { captureRun, logitAttrs } from "headwise/inspect";
 * import { createSession, loadModel, models } from "headwise/models";
 * const kernels = await loadKernels({ models });
 * using run = captureRun(createSession(await loadModel(kernels, "model")), [3, 1, 4, 3]);
 * const { logit, parts, components } = logitAttrs(run, { token: 3, id: 1 });
 * console.log(Math.abs(logit - run.logits[1]!) < 1e-4, parts.length === components.length); // true true
 * kernels.release();
 */
export function logitAttrs(run: CapturedRun, place: LogitPlace): LogitAttrs {
  const where = "logitAttrs";
  const { token, id, minus } = readFields(where, "place", place, ["token", "id", "minus"]);
  expectRun(where, run);
  const { kernels, spec, weights, dModel, vocabSize } = run.model;
  const row = expectToken(where, "place.token", token, run);
  const ids = [expectInt(where, "place.id", id, 0, vocabSize - 1)];
  if (minus !== undefined) ids.push(expectInt(where, "place.minus", minus, 0, vocabSize - 1));

  const { head, projectOut, finalNorm } = weights;
  const biasOf = (of: { readonly bias: number }, i: number) => kernels.memory.f32(of.bias + 4 * i, 1)[0] as number;
  // logit = direction · norm(x) + constant, in which the second id counts with -1.
  let direction = new Float64Array(head.k);
  let constant = 0;
  for (const [i, each] of ids.entries()) {
    const factor = (i === 0 ? 1 : -1) * spec.head.scale;
    constant += factor * biasOf(head, each);
    const unembed = readMatrix(where, run.model.kernels, head, each, each + 1);
    direction = direction.map((value, d) => value + factor * (unembed[d] as number));
  }
  if (projectOut) {
    const narrow = direction;
    direction = new Float64Array(dModel);
    for (const { first, rows } of weightRows(where, kernels, projectOut, 0, narrow.length))
      for (let r = 0; r * dModel < rows.length; r++) {
        const weight = narrow[first + r] as number;
        constant += weight * biasOf(projectOut, first + r);
        for (let d = 0; d < dModel; d++) direction[d]! += weight * (rows[r * dModel + d] as number);
      }
  }
  const { length } = spec.blocks;
  const actual = rowAt(run, "residPre", length, row);
  const norm = finalNorm && readNorm(kernels, finalNorm, dModel);
  const normed = norm ? freezeNorm(norm, actual) : (x: Float64Array) => x;
  if (norm?.bias) constant += dot(norm.bias, direction);

  const resid = decompose(where, run, [row], length)[0] as Part[];
  const all = resid.map(({ component, row }) => ({ component, row: Float64Array.of(dot(direction, normed(row))) }));
  const withBias = constant === 0 ? all : addPart(all, { kind: "bias", at: "logits" }, Float64Array.of(constant));
  const ordered = inOrder(withBias);
  const parts = Float64Array.from(ordered, ({ row: [value] }) => value as number);
  return {
    logit: parts.reduce((sum, part) => sum + part),
    components: ordered.map(({ component }) => component),
    parts,
  };
}

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
  const { blocks, streams } = model.spec;
  if (streams) throw new RangeError(`${where}: model expected one row of a token between layers, got ${streams.count}`);
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
