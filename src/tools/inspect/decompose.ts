// Residuals and scores as sums of parts by what wrote them.

import { createFloats, type Tensor } from "../../base/tensor/tensor.ts";
import { expectInt, readFields } from "../../base/util/arguments.ts";
import { exp } from "../../base/util/math.ts";
import type { LatentAttention } from "../../layers/api/latent.ts";
import type { Attention, HeadNorm } from "../../layers/attention/attention.ts";
import type { CheckedConfig } from "../../layers/attention/config.ts";
import type { Rotary } from "../../layers/attention/rope.ts";
import type { PackedLinear } from "../../layers/linear/formats/format.ts";
import type { LoadedModel } from "../../models/blocks/model.ts";
import type { PackedBlock, PackedNorm } from "../../models/blocks/places.ts";
import type { NormRole } from "../../models/spec/spec.ts";
import { NULL } from "../../wasm/abi.ts";
import type { Kernels } from "../../wasm/kernels.ts";
import { type CapturedRun, expectRun, expectToken, rowAt } from "./forward-with.ts";
import { dot, isLatent, kvHeadOf, multiplyRows, outputsOf, weightRows } from "./read-weights.ts";

// Rows as sums of parts by what wrote them, and the linear operations of a decoder on them, in float64.

/** Where a part of a residual, of a query or key, or of a logit comes from. */
export interface Component {
  /**
   * | | |
   * |---|---|
   * | `embed` | the token: its row of the table, with the norm of embeddings where there is one |
   * | `posEmbed` | the position: its row of the table of positions |
   * | `head` | what a head wrote: z·W_O, with the norm of attention's output where there is one |
   * | `mlp` | what an MLP, or the experts of a layer, wrote, with their biases and the norm of their output |
   * | `bias` | constants: all biases of projections and norms that come in `at` a place |
   * | `rounding` | what the pass rounded: its row less all other parts |
   */
  readonly kind: "embed" | "posEmbed" | "head" | "mlp" | "bias" | "rounding";
  /** Of biases: the site, or the logits. */
  readonly at?: "attnOut" | "residMid" | "residPost" | "q" | "k" | "logits";
  /** Of heads, MLPs and biases, but those of logits. */
  readonly layer?: number;
  /** Of heads. */
  readonly head?: number;
}

/** A part of a row: what a component wrote. */
export interface Part {
  readonly component: Component;
  readonly row: Float64Array;
}

/** The sum of all parts. */
function sumOf(parts: readonly Part[]): Float64Array {
  const sum = new Float64Array((parts[0] as Part).row.length);
  for (const { row } of parts) for (let i = 0; i < sum.length; i++) sum[i]! += row[i] as number;
  return sum;
}

/** Each part by a linear function of rows. */
const mapParts = (parts: readonly Part[], by: (row: Float64Array) => Float64Array): Part[] =>
  parts.map(({ component, row }) => ({ component, row: by(row) }));

/** Parts with one more, which joins that of the same component. */
export function addPart(parts: readonly Part[], component: Component, row: Float64Array): Part[] {
  const name = JSON.stringify(component);
  const isSame = (part: Part) => JSON.stringify(part.component) === name;
  if (!parts.some(isSame)) return [...parts, { component, row }];
  return parts.map((part) => {
    return isSame(part) ? { component, row: part.row.map((value, i) => value + (row[i] as number)) } : part;
  });
}

/** Parts with what they lack of `actual` as rounding. */
function addRounding(parts: readonly Part[], actual: ArrayLike<number>): Part[] {
  const lack = sumOf(parts).map((value, i) => (actual[i] as number) - value);
  return addPart(parts, { kind: "rounding" }, lack);
}

/** Parts with the rounding last. */
export const inOrder = (parts: readonly Part[]): Part[] => [
  ...parts.filter(({ component }) => component.kind !== "rounding"),
  ...parts.filter(({ component }) => component.kind === "rounding"),
];

/** A norm whose vectors were read. */
interface Norm {
  readonly kind: PackedNorm["kind"];
  readonly eps: number;
  readonly gain: Float32Array;
  readonly bias: Float32Array | undefined;
}

/** Reads a norm of rows of `width` floats. */
export function readNorm({ memory }: Kernels, { kind, eps, gain, bias }: PackedNorm, width: number): Norm {
  const vector = (at: number) => memory.f32(at, width).slice();
  return { kind, eps, gain: vector(gain), bias: bias === NULL ? undefined : vector(bias) };
}

/**
 * A norm with its scale frozen at the row `at`, without its bias: linear in x. RMS norm is x·gain / rms(at), layer norm
 * (x - mean(x))·gain / σ(at). The row may be longer than x where heads share a scale.
 */
export function freezeNorm(
  { kind, eps, gain }: Pick<Norm, "kind" | "eps" | "gain">,
  at: ArrayLike<number>,
): (x: Float64Array) => Float64Array {
  const mean = kind === "layer" ? meanOf : () => 0;
  const center = mean(at);
  let squares = 0;
  for (let i = 0; i < at.length; i++) {
    const away = (at[i] as number) - center;
    squares += away * away;
  }
  const inverse = 1 / Math.sqrt(squares / at.length + eps);
  return (x) => {
    const own = mean(x);
    return x.map((value, i) => (value - own) * inverse * (gain[i] as number));
  };
}

function meanOf(row: ArrayLike<number>): number {
  let sum = 0;
  for (let i = 0; i < row.length; i++) sum += row[i] as number;
  return sum / row.length;
}

/** The parts of norm(Σ parts): its scale is frozen at their sum, and its bias is a part of `component`. */
function normParts(norm: Norm, parts: readonly Part[], component: Component): Part[] {
  const normed = mapParts(parts, freezeNorm(norm, sumOf(parts)));
  return norm.bias ? addPart(normed, component, Float64Array.from(norm.bias)) : normed;
}

/** What `decomposeResid` takes apart. */
export interface ResidPlace {
  /** A token, as an index into `run.ids`. */
  readonly token: number;
  /** The residual before this layer. Default that behind the last one. */
  readonly layer?: number | undefined;
}

/** A residual by component. */
export interface DecomposedResid {
  /** What wrote to the residual. */
  readonly components: readonly Component[];
  /** What each component wrote: [components, dModel]. */
  readonly parts: Tensor;
}

/**
 * The residual of a token as the sum of what the embedding and each earlier head, MLP and bias wrote to it; what a norm did to
 * the sum on the way, where a model has norms there, is done to each part with the norm's scale. Heads write z·W_O, with the numbers
 * that a quantised W_O stands for.
 * @returns Parts whose sum is the row of the pass, within 2^-24 of the sum of their magnitudes; the last one is "rounding".
 * @throws TypeError or RangeError naming the argument. HeadwiseError `RELEASED`.
 * @example
 * import { loadKernels } from "headwise";
 * import { captureRun, decomposeResid } from "headwise/inspect";
 * import { createSession, loadModel, models } from "headwise/models";
 * const kernels = await loadKernels({ models });
 * using run = captureRun(createSession(await loadModel(kernels, "model")), [3, 1, 4]);
 * const { components, parts } = decomposeResid(run, { token: 2, layer: 1 });
 * console.log(components[1], parts.shape); // { kind: 'head', layer: 0, head: 0 } [ 6, 64 ]
 * kernels.release();
 */
export function decomposeResid(run: CapturedRun, place: ResidPlace): DecomposedResid {
  const where = "decomposeResid";
  const { token, layer } = readFields(where, "place", place, ["token", "layer"]);
  expectRun(where, run);
  const { length } = run.model.spec.blocks;
  const row = expectToken(where, "place.token", token, run);
  const before = layer === undefined ? length : expectInt(where, "place.layer", layer, 0, length - 1);
  const parts = inOrder(decompose(where, run, [row], before)[0] as Part[]);
  const { dModel } = run.model;
  const data = createFloats(where, "parts", parts.length * dModel);
  for (const [i, part] of parts.entries()) data.set(part.row, i * dModel);
  return { components: parts.map(({ component }) => component), parts: { data, shape: [parts.length, dModel] } };
}

/** The parts of the residual before layer `layer`, for each of `tokens`. */
export function decompose(where: string, run: CapturedRun, tokens: readonly number[], layer: number): Part[][] {
  let all = tokens.map((token) => embedParts(where, run, token));
  for (let i = 0; i < layer; i++) {
    const heads = headResults(where, run, i, tokens);
    all = all.map((parts, t) => blockParts(run, i, tokens[t] as number, parts, heads[t] as Part[]));
  }
  return all.map((parts, t) => addRounding(parts, rowAt(run, "residPre", layer, tokens[t] as number)));
}

/** What the first layer reads: the token, and its position where the model has a table. */
function embedParts(where: string, run: CapturedRun, token: number): Part[] {
  const { kernels, spec, weights } = run.model;
  const row = Float64Array.from(rowAt(run, "residPre", 0, token));
  const { positions: table } = weights;
  if (!table) return [{ component: { kind: "embed" }, row }];
  const number = run.past + token + (spec.embed.positions?.offset ?? 0);
  const packed = { k: table.dim, format: table.format, w: table.at, mins: table.mins };
  const [read] = [...weightRows(where, kernels, packed, number, number + 1)];
  const position = Float64Array.from(read?.rows ?? []);
  return [
    { component: { kind: "embed" }, row: row.map((value, i) => value - (position[i] as number)) },
    { component: { kind: "posEmbed" }, row: position },
  ];
}

/** What the heads of a layer give to each token, z·W_O, and the bias. */
function headResults(where: string, run: CapturedRun, layer: number, tokens: readonly number[]): Part[][] {
  const { kernels, dModel, weights } = run.model;
  const { attention } = weights.blocks[layer] as PackedBlock;
  const { numHeads, valueDim } = attention.config;
  const o = outputsOf(attention);
  const bias = Float64Array.from(kernels.memory.f32(o.bias, dModel));
  const all = tokens.map(() => Array.from({ length: numHeads }, () => new Float64Array(dModel)));
  for (const { first, rows } of weightRows(where, kernels, o, 0, dModel))
    for (const [t, token] of tokens.entries()) {
      const z = rowAt(run, "z", layer, token);
      for (const [head, out] of (all[t] as Float64Array[]).entries()) {
        const from = head * valueDim;
        for (let at = from, i = first; at < rows.length; at += o.k, i++) {
          let sum = 0;
          for (let d = 0; d < valueDim; d++) sum += (rows[at + d] as number) * (z[from + d] as number);
          out[i] = sum;
        }
      }
    }
  return all.map((heads) => {
    const parts = heads.map((row, head): Part => ({ component: { kind: "head", layer, head }, row }));
    return bias.some((value) => value !== 0) ? addPart(parts, { kind: "bias", at: "attnOut", layer }, bias) : parts;
  });
}

/** The parts of the residual behind a layer, as `runBlock` of decoder/block.ts computes it. */
function blockParts(
  run: CapturedRun,
  layer: number,
  token: number,
  before: readonly Part[],
  heads: readonly Part[],
): Part[] {
  const { kernels, dModel, weights } = run.model;
  const { norms, parallel, addsToNormed, scale, mlp, moe } = weights.blocks[layer] as PackedBlock;
  const scaled = (parts: readonly Part[]) => mapParts(parts, (row) => row.map((value) => scale * value));
  const norm = (role: NormRole, parts: readonly Part[], at: "attnOut" | "residMid" | "residPost") => {
    const own = norms[role];
    return own ? normParts(readNorm(kernels, own, dModel), parts, { kind: "bias", at, layer }) : parts;
  };
  const start = addRounding(before, rowAt(run, "residPre", layer, token));
  const read = addsToNormed ? norm("attentionPre", start, "residMid") : start;
  const middle = norm("attentionAfter", [...read, ...scaled(norm("attentionPost", heads, "attnOut"))], "residMid");
  if (!mlp && !moe) return [...middle];
  const onto = addsToNormed && !parallel ? norm("mlpPre", middle, "residPost") : middle;
  const row = Float64Array.from(rowAt(run, "mlpOut", layer, token));
  const last = norm("mlpAfter", [...onto, ...scaled([{ component: { kind: "mlp", layer }, row }])], "residPost");
  return [...last];
}

/** The parts of what the attention of a layer reads, from those of the residual before it. */
function readParts(model: LoadedModel, layer: number, parts: readonly Part[], component: Component): readonly Part[] {
  const { attentionPre } = (model.weights.blocks[layer] as PackedBlock).norms;
  return attentionPre ? normParts(readNorm(model.kernels, attentionPre, model.dModel), parts, component) : parts;
}

// A query and a key as sums of parts by component, in the space in which attention multiplies them.

/** The query, or the key, of a head at a token. */
interface Side {
  readonly of: "q" | "k";
  readonly layer: number;
  /** A query head. */
  readonly head: number;
  readonly token: number;
}

/** The parts of a side, from those of the residual before the layer: of a head's query or key, normalised and rotated. */
function sideParts(where: string, run: CapturedRun, side: Side, resid: readonly Part[]): Part[] {
  const { layer, of } = side;
  const { attention } = run.model.weights.blocks[layer] as PackedBlock;
  const component: Component = { kind: "bias", at: of, layer };
  const x = readParts(run.model, layer, resid, component);
  return isLatent(attention)
    ? latentParts(where, run, attention, side, x, component)
    : headParts(where, run, attention, side, x, component);
}

function headParts(
  where: string,
  run: CapturedRun,
  attention: Attention,
  { of, layer, head: query, token }: Side,
  x: readonly Part[],
  component: Component,
): Part[] {
  const { kernels } = run.model;
  const { config, rotary, headNorm } = attention;
  const { headDim, qkNorm } = config;
  const head = of === "q" ? query : kvHeadOf(config, query);
  const linear = attention.layer.linears[of];
  const [begin, end] = [head * headDim, (head + 1) * headDim];
  const all = rowAt(run, of, layer, token);
  const own = all.subarray(begin, end);
  let parts = addRounding(projectParts(where, kernels, linear, x, begin, end, component), own);
  if (headNorm) parts = normParts(headNormOf(kernels, config, headNorm, of, head), parts, component);
  if (qkNorm) {
    const full = qkNorm.kind === "full";
    const gain = kernels.memory.f32(attention.layer[`${of}Norm`] + (full ? 4 * begin : 0), headDim);
    parts = mapParts(parts, freezeNorm({ kind: "rms", eps: qkNorm.eps, gain }, full ? all : sumOf(parts)));
  }
  return rotate(parts, rotary, rotary?.start ?? 0, run.past + token);
}

/**
 * Latent attention: queries are multiplied by W_uk of their head, and so scored against latents, behind which lies the part with
 * position: [kvLoraRank + ropeDim].
 */
function latentParts(
  where: string,
  run: CapturedRun,
  { config, latents, rotary }: LatentAttention,
  { of, layer, head, token }: Side,
  x: readonly Part[],
  component: Component,
): Part[] {
  const { kernels } = run.model;
  const { headDim, nopeDim, kvLoraRank, qLoraRank, ropeDim, normEps: eps } = config;
  const position = run.past + token;
  const project = (linear: PackedLinear, parts: readonly Part[], begin: number, end: number) =>
    projectParts(where, kernels, linear, parts, begin, end, component);
  const normOf = (at: number | undefined, length: number) =>
    at && ({ kind: "rms", eps, gain: kernels.memory.f32(at, length).slice(), bias: undefined } as const);
  if (of === "k") {
    const all = rowAt(run, of, layer, token);
    const parts = addRounding(project(latents.kvDown, x, 0, kvLoraRank + ropeDim), all);
    const norm = normOf(latents.kvNorm, kvLoraRank);
    const normed = norm ? freezeNorm(norm, all.subarray(0, kvLoraRank)) : (row: Float64Array) => row;
    const keys = mapParts(parts, (row) => join(normed(row.subarray(0, kvLoraRank)), row.subarray(kvLoraRank)));
    return rotate(keys, rotary, kvLoraRank, position);
  }
  let from = x;
  if (latents.qDown) {
    from = project(latents.qDown, x, 0, qLoraRank);
    const norm = normOf(latents.qNorm, qLoraRank);
    if (norm) from = normParts(norm, from, component);
  }
  const [begin, end] = [head * headDim, (head + 1) * headDim];
  const own = rowAt(run, of, layer, token).subarray(begin, end);
  const queries = rotate(addRounding(project(latents.q, from, begin, end), own), rotary, nopeDim, position);
  const plain = queries.map(({ row }) => row.subarray(0, nopeDim));
  const absorbed = multiplyRows(where, kernels, latents.kAbsorbed[head] as PackedLinear, plain, 0, kvLoraRank);
  return queries.map(({ component, row }, i) => {
    return { component, row: join(absorbed[i] as Float64Array, row.subarray(nopeDim)) };
  });
}

/** Outputs begin..end of a projection of each part; its bias is a part of `component`. */
function projectParts(
  where: string,
  kernels: Kernels,
  linear: PackedLinear,
  parts: readonly Part[],
  begin: number,
  end: number,
  component: Component,
): Part[] {
  const rows = parts.map(({ row }) => row);
  const ys = multiplyRows(where, kernels, linear, rows, begin, end);
  const projected = parts.map(({ component }, i): Part => ({ component, row: ys[i] as Float64Array }));
  const bias = Float64Array.from(kernels.memory.f32(linear.bias + 4 * begin, end - begin));
  return bias.some((value) => value !== 0) ? addPart(projected, component, bias) : projected;
}

/** The layer norm of one head of queries or keys. */
function headNormOf({ memory }: Kernels, { headDim }: CheckedConfig, norm: HeadNorm, of: "q" | "k", head: number) {
  const { step, gain, bias } = norm[of];
  const vector = (at: number) => memory.f32(at + head * step, headDim).slice();
  return { kind: "layer", eps: norm.eps, gain: vector(gain), bias: bias === NULL ? undefined : vector(bias) } as const;
}

/** Parts rotated as at a position, from component `start` on. */
function rotate(parts: readonly Part[], rotary: Rotary | undefined, start: number, position: number): Part[] {
  if (!rotary) return [...parts];
  const { dim, pairing, fill } = rotary;
  const half = dim / 2;
  const [cos, sin] = [new Float32Array(half), new Float32Array(half)];
  fill([position], cos, sin);
  return mapParts(parts, (row) => {
    const rotated = row.slice();
    for (let i = 0; i < half; i++) {
      const [a, b] = pairing === "half" ? [start + i, start + i + half] : [start + 2 * i, start + 2 * i + 1];
      const [x, y, c, s] = [row[a] as number, row[b] as number, cos[i] as number, sin[i] as number];
      rotated[a] = x * c - y * s;
      rotated[b] = y * c + x * s;
    }
    return rotated;
  });
}

function join(first: Float64Array, second: Float64Array): Float64Array {
  const joined = new Float64Array(first.length + second.length);
  joined.set(first);
  joined.set(second, first.length);
  return joined;
}

/** Which score to explain. */
export interface ScorePlace {
  /** 0 for the first layer. */
  readonly layer: number;
  /** A query head. */
  readonly head: number;
  /** The token that looks, as an index into `run.ids`. */
  readonly query: number;
  /** The token that it looks at: one that it may attend. */
  readonly key: number;
  /** Another such token: then the difference of both scores is explained, why the head looks at `key` and not there. Default none. */
  readonly minus?: number | undefined;
}

/** A score, or the difference of two, by what made it: score = qk + softcap + alibi, and qk is the sum of `parts`. */
export interface ScoreExplanation {
  /** The score as it enters the softmax. */
  readonly score: number;
  /** scale·q·k, with norms and RoPE. */
  readonly qk: number;
  /** What the softcap changes; 0 without one. */
  readonly softcap: number;
  /** What ALiBi adds for the distance; 0 without it. */
  readonly alibi: number;
  /** What wrote to either token. */
  readonly components: {
    /** The rows of `parts`. */
    readonly query: readonly Component[];
    /** The columns of `parts`. */
    readonly key: readonly Component[];
  };
  /**
   * [query components, key components], row by row: that of i and j, scale·(part i of the query)·(part j of the key), is
   * `parts[i * components.key.length + j]`. With `minus`, part j of the key is that of `key` less that of `minus`.
   */
  readonly parts: Float64Array;
  /** Sums of the rows of `parts`: by what wrote to the query. */
  readonly byQuery: Float64Array;
  /** Sums of the columns: by what wrote to the key. */
  readonly byKey: Float64Array;
}

/**
 * Why a head looked at a token: the score of a query and a key, split by what wrote to the residual of either token before. With
 * q = Σ qᵢ and k = Σ kⱼ over embedding, earlier heads, MLPs and biases, scale·q·k = Σ scale·qᵢ·kⱼ: norms, of rows and of heads,
 * have the scale of the actual rows, with which they are linear, and so is RoPE. Biases of the layer's own norms and projections
 * are `{ kind: "bias", at: "q" | "k" }`.
 *
 * The rows are those of the pass: what its arithmetic rounded, in integer formats that of activations too, is the component
 * "rounding". Keys are those that were computed, before a cache's format rounds them. In latent attention, queries are multiplied
 * by W_uk exactly: what that product rounds in the pass, if W_uk has integers, is not seen.
 *
 * What an MLP wrote is one part, whatever it read: `patchPaths` with `throughMlps` follows what led through it.
 * @throws TypeError or RangeError naming the argument, also for a key that the query may not attend. HeadwiseError `RELEASED`.
 * @example
 * import { loadKernels } from "headwise";
 * import { captureRun, explainScore } from "headwise/inspect";
 * import { createSession, loadModel, models } from "headwise/models";
 * const kernels = await loadKernels({ models });
 * using run = captureRun(createSession(await loadModel(kernels, "model")), [3, 1, 4, 3]);
 * const { qk, byKey, components } = explainScore(run, { layer: 1, head: 0, query: 3, key: 1 });
 * console.log(Math.abs(byKey.reduce((sum, part) => sum + part) - qk) < 1e-9); // true
 * console.log(components.key[1]); // { kind: 'head', layer: 0, head: 0 }: a previous token head may be what made the key
 * kernels.release();
 */
export function explainScore(run: CapturedRun, place: ScorePlace): ScoreExplanation {
  const where = "explainScore";
  const given = readFields(where, "place", place, ["layer", "head", "query", "key", "minus"]);
  expectRun(where, run);
  const { blocks } = run.model.weights;
  const layer = expectInt(where, "place.layer", given.layer, 0, blocks.length - 1);
  const { config } = (blocks[layer] as PackedBlock).attention;
  const head = expectInt(where, "place.head", given.head, 0, config.numHeads - 1);
  const query = expectToken(where, "place.query", given.query, run);
  const { left, right } = config.window;
  const last = Math.min(run.ids.length - 1, config.causal ? query : query + right);
  const expectKey = (name: string, token: unknown) => expectInt(where, name, token, Math.max(0, query - left), last);
  const seen = [expectKey("place.key", given.key)];
  if (given.minus !== undefined) seen.push(expectKey("place.minus", given.minus));

  const tokens = [...new Set([query, ...seen])];
  const resid = decompose(where, run, tokens, layer);
  const sideOf = (of: "q" | "k", token: number) =>
    inOrder(sideParts(where, run, { of, layer, head, token }, resid[tokens.indexOf(token)] as Part[]));
  const queries = sideOf("q", query);
  const [kept, other] = seen.map((token) => sideOf("k", token)) as [Part[], Part[] | undefined];
  // All keys of a layer have the same components, in the same order.
  const keys = other
    ? kept.map(({ component, row }, i) => {
        const less = (other[i] as Part).row;
        return { component, row: row.map((value, d) => value - (less[d] as number)) };
      })
    : kept;
  const parts = new Float64Array(queries.length * keys.length);
  const [byQuery, byKey] = [new Float64Array(queries.length), new Float64Array(keys.length)];
  let qk = 0;
  for (const [i, q] of queries.entries())
    for (const [j, k] of keys.entries()) {
      const part = config.scale * dot(q.row, k.row);
      parts[i * keys.length + j] = part;
      byQuery[i]! += part;
      byKey[j]! += part;
      qk += part;
    }
  const cap = config.softcap;
  const whole = sumOf(queries);
  const softcapOf = (side: readonly Part[]) => {
    const own = config.scale * dot(whole, sumOf(side));
    return cap === 0 ? 0 : cap * tanh(own / cap) - own;
  };
  const softcap = softcapOf(kept) - (other ? softcapOf(other) : 0);
  const slope = config.slopes?.[head] ?? 0;
  const [distance, less] = seen.map((token) => Math.abs(query - token)) as [number, number | undefined];
  const alibi = slope === 0 ? 0 : slope * ((less ?? 0) - distance);
  const components = { query: queries.map(({ component }) => component), key: keys.map(({ component }) => component) };
  return { score: qk + softcap + alibi, qk, softcap, alibi, components, parts, byQuery, byKey };
}

/** sign(x)·(1 - e^(-2|x|)) / (1 + e^(-2|x|)), which beyond 20 is 1 within the last bit. */
function tanh(x: number): number {
  const away = Math.min(Math.abs(x), 20);
  const below = exp(-2 * away);
  return (Math.sign(x) * (1 - below)) / (1 + below);
}
