import type { PackedBlock } from "../decoder/packed.ts";
import { expectInt, readFields } from "../util/arguments.ts";
import { exp } from "../util/math.ts";
import { type CapturedRun, expectRun, expectToken } from "./captured-run.ts";
import { decompose } from "./decompose.ts";
import { type Component, inOrder, type Part } from "./parts.ts";
import { dot } from "./read-weights.ts";
import { sideParts } from "./score-sides.ts";

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
}

/** A score, by what made it: score = qk + softcap + alibi, and qk is the sum of `parts`. */
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
  /** [query components, key components]: scale·(part of the query)·(part of the key). */
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
  const given = readFields(where, "place", place, ["layer", "head", "query", "key"]);
  expectRun(where, run);
  const { blocks } = run.model.weights;
  const layer = expectInt(where, "place.layer", given.layer, 0, blocks.length - 1);
  const { config } = (blocks[layer] as PackedBlock).attention;
  const head = expectInt(where, "place.head", given.head, 0, config.numHeads - 1);
  const query = expectToken(where, "place.query", given.query, run);
  const { left, right } = config.window;
  const last = Math.min(run.ids.length - 1, config.causal ? query : query + right);
  const key = expectInt(where, "place.key", given.key, Math.max(0, query - left), last);

  const tokens = query === key ? [query] : [query, key];
  const resid = decompose(where, run, tokens, layer);
  const sideOf = (of: "q" | "k", token: number) =>
    inOrder(sideParts(where, run, { of, layer, head, token }, resid[tokens.indexOf(token)] as Part[]));
  const [queries, keys] = [sideOf("q", query), sideOf("k", key)];
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
  const softcap = config.softcap === 0 ? 0 : config.softcap * tanh(qk / config.softcap) - qk;
  const slope = config.slopes?.[head] ?? 0;
  const alibi = slope === 0 ? 0 : -slope * Math.abs(query - key);
  const components = { query: queries.map(({ component }) => component), key: keys.map(({ component }) => component) };
  return { score: qk + softcap + alibi, qk, softcap, alibi, components, parts, byQuery, byKey };
}

/** sign(x)·(1 - e^(-2|x|)) / (1 + e^(-2|x|)), which beyond 20 is 1 within the last bit. */
function tanh(x: number): number {
  const away = Math.min(Math.abs(x), 20);
  const below = exp(-2 * away);
  return (Math.sign(x) * (1 - below)) / (1 + below);
}
