// Residuals and scores as sums of parts by what wrote them.

import { createFloats, type Tensor } from "../../base/tensor/tensor.ts";
import { expectInt, readFields } from "../../base/util/arguments.ts";
import { exp } from "../../base/util/math.ts";
import { firstKeyOf } from "../../layers/attention/heads.ts";
import type { LoadedModel, PackedBlock } from "../../models/blocks/model.ts";
import type { NormRole } from "../../models/spec/spec.ts";
import { type CapturedRun, expectRun, expectToken, rowAt } from "./forward-with.ts";
import {
  addPart,
  addRounding,
  type Component,
  dot,
  inOrder,
  mapParts,
  normParts,
  outputsOf,
  type Part,
  readNorm,
  sumOf,
  weightRows,
} from "./parts.ts";
import { expectHeads, headsOf, viewOf } from "./views.ts";

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
 * The residual of a token as the sum of what the embedding and each earlier head, recurrence, MLP and bias wrote to it; what a norm did to
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
  expectSums(where, run.model.spec);
  let all = tokens.map((token) => embedParts(where, run, token));
  for (let i = 0; i < layer; i++) {
    const heads = headResults(where, run, i, tokens);
    all = all.map((parts, t) => blockParts(run, i, tokens[t] as number, parts, heads?.[t]));
  }
  return all.map((parts, t) => addRounding(parts, rowAt(run, "residPre", layer, tokens[t] as number)));
}

/** Throws for a model whose residual is not the sum of what heads and MLPs give. */
function expectSums(where: string, { embed, streams, blocks }: LoadedModel["spec"]): void {
  const others = {
    "several rows of a token between layers": streams,
    "inputs of layers besides the residual": embed.perLayer,
    "factors of layers": blocks.some(({ scaled }) => scaled),
  };
  const [more] = Object.entries(others).find(([, is]) => is) ?? [];
  if (more !== undefined) throw new RangeError(`${where}: model expected one without ${more}, got one with them`);
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

/** What the heads of a layer give to each token, z·W_O, and the bias; undefined of a layer without heads. */
function headResults(where: string, run: CapturedRun, layer: number, tokens: readonly number[]): Part[][] | undefined {
  const { kernels, dModel, weights } = run.model;
  const own = headsOf((weights.blocks[layer] as PackedBlock).attention);
  if (!own) return undefined;
  const { numHeads, valueDim } = own.layer.config;
  const o = outputsOf(own.layer);
  const bias = Float64Array.from(kernels.memory.f32(o.bias, dModel), (each) => own.scale * each);
  const all = tokens.map(() => Array.from({ length: numHeads }, () => new Float64Array(dModel)));
  for (const { first, rows } of weightRows(where, kernels, o, 0, dModel))
    for (const [t, token] of tokens.entries()) {
      const z = rowAt(run, "z", layer, token);
      for (const [head, out] of (all[t] as Float64Array[]).entries()) {
        const from = head * valueDim;
        for (let at = from, i = first; at < rows.length; at += o.k, i++) {
          let sum = 0;
          for (let d = 0; d < valueDim; d++) sum += (rows[at + d] as number) * (z[from + d] as number);
          out[i] = own.scale * sum;
        }
      }
    }
  return all.map((heads) => {
    const parts = heads.map((row, head): Part => ({ component: { kind: "head", layer, head }, row }));
    return bias.some((value) => value !== 0) ? addPart(parts, { kind: "bias", at: "attnOut", layer }, bias) : parts;
  });
}

/**
 * What the mixer of a layer adds, with the norm of its output: that of its heads, and as one part what lies beside them or takes their
 * place. No family has that norm where heads are a part.
 */
function mixerParts(
  run: CapturedRun,
  layer: number,
  token: number,
  heads: readonly Part[] | undefined,
  norm: (parts: readonly Part[]) => readonly Part[],
): readonly Part[] {
  const component: Component = { kind: "recurrent", layer };
  const own = headsOf((run.model.weights.blocks[layer] as PackedBlock).attention);
  if (heads && !own?.isPart) return norm(heads);
  const row = Float64Array.from(rowAt(run, "attnOut", layer, token));
  if (!heads) return [{ component, row }];
  const sum = sumOf(heads);
  return [...heads, { component, row: row.map((value, i) => value - (sum[i] as number)) }];
}

/** The parts of the residual behind a layer, as `runBlock` of decoder/block.ts computes it. */
function blockParts(
  run: CapturedRun,
  layer: number,
  token: number,
  before: readonly Part[],
  heads: readonly Part[] | undefined,
): Part[] {
  const { kernels, dModel, weights } = run.model;
  const {
    norms,
    parallel,
    addsToNormed,
    scale,
    mlpScale = 1,
    factors,
    mlp,
    moe,
  } = weights.blocks[layer] as PackedBlock;
  const times = (factor: number, parts: readonly Part[]) => mapParts(parts, (row) => row.map((x) => factor * x));
  const sum = (to: readonly Part[], branch: readonly Part[], factor: number, of: "attention" | "mlp") => {
    const { added, kept } = factors?.[of] ?? { added: 1, kept: 1 };
    return [...times(kept, to), ...times(factor * added, branch)];
  };
  const norm = (role: NormRole, parts: readonly Part[], at: "attnOut" | "residMid" | "residPost") => {
    const own = norms[role];
    return own ? normParts(readNorm(kernels, own, dModel), parts, { kind: "bias", at, layer }) : parts;
  };
  const start = addRounding(before, rowAt(run, "residPre", layer, token));
  const read = addsToNormed ? norm("attentionPre", start, "residMid") : start;
  const mixed = mixerParts(run, layer, token, heads, (parts) => norm("attentionPost", parts, "attnOut"));
  const added = sum(read, mixed, scale, "attention");
  const middle = norm("attentionAfter", added, "residMid");
  if (!mlp && !moe) return [...middle];
  const onto = addsToNormed && !parallel ? norm("mlpPre", middle, "residPost") : middle;
  const row = Float64Array.from(rowAt(run, "mlpOut", layer, token));
  const last = sum(onto, [{ component: { kind: "mlp", layer }, row }], scale * mlpScale, "mlp");
  return [...norm("mlpAfter", last, "residPost")];
}

/** The parts of what the attention of a layer reads, from those of the residual before it. */
function readParts(model: LoadedModel, layer: number, parts: readonly Part[], component: Component): readonly Part[] {
  const { attentionPre } = (model.weights.blocks[layer] as PackedBlock).norms;
  return attentionPre ? normParts(readNorm(model.kernels, attentionPre, model.dModel), parts, component) : parts;
}

// A query and a key as sums of parts by component, in the space in which attention multiplies them.

/** The parts of a head's query or key at a token, normalised and rotated, from those of the residual before the layer. */
function sideParts(
  where: string,
  run: CapturedRun,
  layer: number,
  { of, head, token }: { readonly of: "q" | "k"; readonly head: number; readonly token: number },
  resid: readonly Part[],
): Part[] {
  const { attention } = run.model.weights.blocks[layer] as PackedBlock;
  const own = expectHeads(where, "place.layer", attention, layer).layer;
  const component: Component = { kind: "bias", at: of, layer };
  const x = readParts(run.model, layer, resid, component);
  const side = { of, head, position: run.past + token, row: rowAt(run, of, layer, token) };
  return viewOf(own).parts(where, own, side, x, component);
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
 * @throws TypeError or RangeError naming the argument, also for a layer without heads and a key that the query may not attend. HeadwiseError
 * `RELEASED`.
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
  const attention = expectHeads(where, "place.layer", (blocks[layer] as PackedBlock).attention, layer).layer;
  const { config } = attention;
  const head = expectInt(where, "place.head", given.head, 0, config.numHeads - 1);
  const query = expectToken(where, "place.query", given.query, run);
  const last = Math.min(run.ids.length - 1, config.causal ? query : query + config.window.right);
  const first = Math.max(0, firstKeyOf(attention, run.past + query) - run.past);
  const expectKey = (name: string, token: unknown) => expectInt(where, name, token, first, last);
  const seen = [expectKey("place.key", given.key)];
  if (given.minus !== undefined) seen.push(expectKey("place.minus", given.minus));

  const tokens = [...new Set([query, ...seen])];
  const resid = decompose(where, run, tokens, layer);
  const sideOf = (of: "q" | "k", token: number) =>
    inOrder(sideParts(where, run, layer, { of, head, token }, resid[tokens.indexOf(token)] as Part[]));
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
