// The stages of an attention layer in words and formulas, with the numbers of the layer.

import type { Attention } from "../attention/attention.ts";
import { type AttendCall, isSelf } from "../forward/call.ts";
import { NULL } from "../wasm/abi.ts";

/**
 * A stage of attention. All layers have the first nine, in this order; the others follow the stage that they are named with, in
 * layers that have them.
 *
 * | | gives |
 * |---|---|
 * | `project` | `qkv` [qLen, …] with queries, keys and values of all heads side by side; `q`, `k` and `v` if keys come from other rows |
 * | `chunk` | `q` [qLen, numHeads·headDim], `k` [kvLen, numKvHeads·headDim], `v` [kvLen, numKvHeads·valueDim] |
 * | `split` | `q`, `k`, `v` [heads, tokens, dim] |
 * | `scores` | `scores` = scale·q·k, [numHeads, qLen, columns] |
 * | `mask` | `scores` with ALiBi and `bias`, -Infinity for keys that may not be attended. Without any of these: as they were |
 * | `softmax` | `weights` [numHeads, qLen, columns]; with sinks, whose share is left out, a row sums to less than 1 |
 * | `sum` | `z` [numHeads, qLen, valueDim], the values by their weights |
 * | `merge` | `z` [qLen, numHeads·valueDim] |
 * | `output` | `y` [qLen, dModel] |
 * | `norm`, after `split` | `q`, `k` after their norm (RMS norm with `qkNorm`) |
 * | `rotate`, after `split` | `q`, `k` after RoPE |
 * | `extend`, after `split` | `k`, `v` with one more key for `biasK`, and one for `addZeroAttn` |
 * | `softcap`, after `scores` | `scores` after the softcap |
 * | `absorb`, after `split` | of latent attention: `q` [numHeads, qLen, kvLoraRank + ropeDim], multiplied with W_uk; `k` and `v` [1, kvLen, …] |
 * | `expand`, after `sum` | of latent attention: `z` [numHeads, qLen, valueDim] |
 *
 * In layers of latent attention `project` gives `q` and `kv`, `chunk` also `c` and `r` (the latent, and the key that is rotated),
 * `split` only `q`; `norm` is that of `c`, `rotate` that of `q` and `r`, and `sum` gives `s`, the latents by their weights.
 */
export type StageName =
  | "project"
  | "chunk"
  | "split"
  | "norm"
  | "rotate"
  | "extend"
  | "absorb"
  | "scores"
  | "softcap"
  | "mask"
  | "softmax"
  | "sum"
  | "expand"
  | "merge"
  | "output";

/** What a stage does, in a sentence and as a formula. */
export interface Formula {
  readonly text: string;
  readonly formula: string;
}

/** The formulas of a call on a layer. h is a head, i a query, j a key; a colon stands for all of an axis. */
export function formulasOf(
  {
    config,
    layer,
    headNorm,
  }: Pick<Attention, "config" | "headNorm"> & {
    readonly layer: Pick<Attention["layer"], "sinks" | "extraKey">;
  },
  call: AttendCall,
): Readonly<Partial<Record<StageName, Formula>>> {
  const { numHeads, numKvHeads, headDim, valueDim, scale, softcap, qkNorm, rope, addZeroAttn } = config;
  const group = numHeads / numKvHeads;
  const joint = isSelf(call);
  const [q, k] = [numHeads * headDim, numKvHeads * headDim];
  const kvHead = group === 1 ? "h" : numKvHeads === 1 ? "0" : `⌊h / ${group}⌋`;
  const shared = group === 1 ? "" : ` ${group} query heads share a head of keys and values.`;
  const [sinks, hasExtra] = [layer.sinks !== NULL, layer.extraKey !== NULL];
  return {
    project: {
      text: joint
        ? "Each row of x is projected to the queries, keys and values of all heads, in one product."
        : "Queries are projected from the rows of x, keys and values from rows of their own.",
      formula: joint
        ? "qkv = x · [wq; wk; wv]ᵀ + [bq; bk; bv]"
        : "q = x · wqᵀ + bq, k = keys · wkᵀ + bk, v = values · wvᵀ + bv",
    },
    chunk: {
      text: joint
        ? "The columns of queries, keys and values are separated."
        : "Queries, keys and values are separate already.",
      formula: joint
        ? `q = qkv[:, 0 … ${q - 1}], k = qkv[:, ${q} … ${q + k - 1}], v = qkv[:, ${q + k} … ${q + k + numKvHeads * valueDim - 1}]`
        : "q, k, v",
    },
    split: {
      text: "Each head gets its own columns of each row.",
      formula:
        headDim === valueDim
          ? `q[h, i, :] = q[i, ${headDim}·h … ${headDim}·h + ${headDim - 1}], k and v likewise`
          : `q[h, i, :] = q[i, ${headDim}·h … ${headDim}·h + ${headDim - 1}], k likewise, v with ${valueDim} columns a head`,
    },
    norm: {
      text: `Queries and keys are normalised, ${qkNorm?.kind === "full" ? "all heads of a token at once" : "each head by itself"}.`,
      formula: headNorm
        ? `q = (q − mean(q)) / √(var(q) + ${headNorm.eps}) · gain + bias, k likewise`
        : `q = q / √(mean(q²) + ${qkNorm?.eps}) · ${qkNorm?.onePlus ? "(1 + gain)" : "gain"}, k likewise`,
    },
    rotate: {
      text: "Pairs of components are rotated by an angle that grows with the position, so that scores depend on distances.",
      formula: `(a, b) = (a·cos − b·sin, b·cos + a·sin), angle of pair n = position · ${rope?.theta}^(−2n / ${rope?.dim})${rope?.scaling ? `, scaled (${rope.scaling.kind})` : ""}`,
    },
    extend: {
      text: "Every query may also attend keys that belong to no token.",
      formula: `k = [${["k", ...(hasExtra ? ["biasK"] : []), ...(addZeroAttn ? ["0"] : [])].join("; ")}], v likewise`,
    },
    scores: {
      text: `How well each query matches each key: a dot product, times 1/√headDim or the layer's scale.${shared}`,
      formula: `scores[h, i, j] = ${Number(scale.toPrecision(4))} · q[h, i, :] · k[${kvHead}, j, :]`,
    },
    softcap: {
      text: "Scores are limited to ± the softcap, smoothly.",
      formula: `scores = ${softcap} · tanh(scores / ${softcap})`,
    },
    mask: maskFormula(config, call),
    softmax: {
      text: `The scores of each query become weights that sum to 1${sinks ? ", less the share of the head's sink, which has no value" : ""}. A query with no key to attend gives zeros.`,
      formula: sinks
        ? "weights[h, i, j] = e^scores[h, i, j] / (e^sink[h] + Σ e^scores[h, i, :])"
        : "weights[h, i, j] = e^scores[h, i, j] / Σ e^scores[h, i, :]",
    },
    sum: {
      text: "Each query gets the values of the keys that it attends, by their weights.",
      formula: `z[h, i, :] = Σ weights[h, i, j] · v[${kvHead}, j, :] over j`,
    },
    merge: {
      text: "What the heads give lies side by side again.",
      formula: `z[i, ${valueDim}·h … ${valueDim}·h + ${valueDim - 1}] = z[h, i, :]`,
    },
    output: {
      text: "The output projection mixes what the heads give.",
      formula: "y = z · woᵀ + bo",
    },
  };
}

/** What is added to scores, and which keys are excluded. */
function maskFormula({ causal, window, slopes }: Attention["config"], { masks, placements }: AttendCall): Formula {
  const excluded = [
    ...(causal ? ["j > i"] : window.right < Infinity ? [`j > i + ${window.right}`] : []),
    ...(window.left < Infinity ? [`j < i − ${window.left}`] : []),
    ...masks.keep.map(({ drops }) => (drops ? "drop[h, i, j]" : "not keep[h, i, j]")),
  ];
  const changed = `scores[h, i, j]${slopes ? " − slope[h] · |i − j|" : ""}${masks.bias ? " + bias[h, i, j]" : ""}`;
  const { position = 0 } = placements[0] ?? {};
  const start = position === 0 ? "" : `, with the first query at i = ${position}`;
  if (excluded.length > 0)
    return {
      text: "Keys that a query may not attend get a score of minus infinity, hence no weight.",
      formula: `scores[h, i, j] = −∞ where ${excluded.join(" or ")}, else ${changed}${start}`,
    };
  const text = slopes
    ? "Scores fall with the distance."
    : masks.bias
      ? "The bias is added to the scores."
      : "Nothing is masked: scores stay as they are.";
  return { text, formula: `scores[h, i, j] = ${changed}${slopes ? start : ""}` };
}
