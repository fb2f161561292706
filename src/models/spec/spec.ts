// A whole decoder as plain data: what its config.json means, layer by layer. The forward pass sees only this, so that nothing
// there asks which family a model belongs to.

import { HeadwiseError } from "../../base/util/errors.ts";
import type { LatentConfig } from "../../layers/latent/config.ts";
import type { HfAttentionConfig } from "../families/attention-rules.ts";
import type { RecurrentSpec } from "../families/recurrent.ts";

/** A norm of rows: RMS norm, or layer norm. */
export interface NormSpec {
  readonly kind: "rms" | "layer";
  readonly eps: number;
  /** Gains are stored less 1. */
  readonly onePlus?: true;
  /** There are neither gains nor biases. */
  readonly bare?: true;
}

/**
 * Where a block has norms: before a branch, on what its last projection reads ("Sub"), on its output, and after it was added to the
 * residual; and on what an input of the layer's own gives. With norms of their own, the router and the experts of a mixture read the
 * residual, and what experts give is added to what the MLP of all tokens gives, each after its norm.
 */
export type NormRole =
  | "attentionPre"
  | "attentionSub"
  | "attentionPost"
  | "attentionAfter"
  | "crossPre"
  | "crossAfter"
  | "mlpPre"
  | "mlpSub"
  | "mlpPost"
  | "mlpAfter"
  | "routerPre"
  | "sharedPost"
  | "expertsPre"
  | "expertsPost"
  | "perLayerPost"
  | "lowRankPost"
  | "streamsPre";

/**
 * "swish" is x·sigmoid(alpha·x): SiLU with alpha 1, quick GELU with 1.702. "gelu" is exact, "gelu-tanh" its approximation. "xielu" is
 * p·x² + beta·x above 0, and n·(e^min(x, eps) - 1 - x) + beta·x elsewhere, with four scalars that each layer has.
 */
export interface ActivationSpec {
  readonly kind: "swish" | "gelu" | "gelu-tanh" | "relu" | "relu-squared" | "xielu";
  /** Of "swish". */
  readonly alpha: number;
  /** The scalars of "xielu" where they are no weights. */
  readonly xielu?: Readonly<Record<"positive" | "negative" | "beta" | "eps", number>>;
  /** First, of gates only what exceeds their mean by so many standard deviations is left, less that; `sample`: these divide by n - 1. */
  readonly sparse?: { readonly deviations: number; readonly sample?: true };
  /** With it, the gate is at most this, the other factor lies within it on both sides, and 1 is added to that factor. */
  readonly limit?: number;
}

/** Two projections with an activation between them; a gated one has a third, of which each activated value is multiplied. */
export interface MlpSpec {
  readonly kind: "mlp";
  /** Floats between the projections. */
  readonly dim: number;
  readonly gated: boolean;
  readonly activation: ActivationSpec;
}

/** Experts, of which each token takes a few. */
export interface MoeSpec {
  readonly kind: "moe";
  readonly experts: number;
  /** Experts of a token. */
  readonly topK: number;
  readonly expert: MlpSpec;
  /** Floats of what experts take and give, with a projection on either side; without it, those of the model. */
  readonly dim?: number;
  /** An MLP that every token takes; `gated` if a sigmoid of one more projection scales it. */
  readonly shared?: { readonly mlp: MlpSpec; readonly gated: boolean };
  readonly router: RouterSpec;
  /** The router chooses alone: experts read rows times the sigmoid of their logit, and their outputs are added as they are. */
  readonly scalesInputs?: true;
}

/** How scores become a choice: see `route_f32`. */
export interface RouterSpec {
  readonly score: "softmax" | "sigmoid";
  /** Whether a stored vector is added to the scores for the choice. */
  readonly correction: boolean;
  /** What logits are multiplied by. Default 1. */
  readonly logitScale?: number;
  /** Whether a token's weights are divided by their sum. */
  readonly renormalise: boolean;
  /** Whether they are then multiplied by a stored number of each expert. */
  readonly expertScales?: true;
  readonly scale: number;
  /** Groups of experts, how many of them take part, and whether a group counts by its best or by the sum of its two best. */
  readonly groups: number;
  readonly keepGroups: number;
  readonly pairs: boolean;
  /**
   * The experts are chosen one after the other: each time the expert with the largest logit m of those that are left. Its weight is
   * 1 / Σ e^(x - m) over the logits x that are left, its own among them, with (m - x) / max(|x|, m) <= 2·jitter.
   */
  readonly jitter?: number;
}

/** Softmax heads. */
export interface HeadsSpec {
  readonly kind: "heads";
  readonly config: HfAttentionConfig;
  /** Layer norms of each head's query and key, with gains for all heads or for each. */
  readonly headNorm?: { readonly eps: number; readonly each: boolean };
  readonly more?: HeadsMore;
}

/** What whole models compute of softmax heads and single layers do not. */
export interface HeadsMore {
  /** Queries and keys, after their norms, and values are limited to this and its negative. */
  readonly limit?: number | undefined;
  /** `qkNorm` comes after RoPE, and without gains if it is `bare`. */
  readonly normsLast?: true;
  readonly bare?: true;
  /** RoPE rotates the other way: by the negatives of its angles. */
  readonly backwards?: true;
  /** Values have an RMS norm of each head, without gains. */
  readonly valueNorm?: { readonly eps: number };
  /** Values are the projected keys, before their norm. */
  readonly valuesAreKeys?: true;
  /** Tokens are in chunks, of as many as the window has, and a query attends keys of its own chunk alone. */
  readonly chunked?: true;
  /** The outputs of heads are multiplied by the sigmoid of one more projection of what attention reads: each, or all of a head. */
  readonly gated?: true | "per-head";
  /**
   * Differential attention: of the outputs of each head of the first half, those of the head as far in the second half, times λ, are
   * subtracted, which then have an RMS norm with gains of 1 - first. λ = e^(q1·k1) - e^(q2·k2) + first, of four stored vectors. Keys
   * and values have as many heads in the file, and heads of values are joined to pairs in the same way: both halves of the heads
   * attend the same ones.
   */
  readonly pairs?: { readonly first: number; readonly eps: number };
  /** The layer before whose keys and values are attended: there are none of this one's own. */
  readonly keysOf?: number;
}

/** The layer whose state a layer uses: its own, or that of the one whose keys it attends. */
export const stateLayer = ({ mixer }: Pick<BlockSpec, "mixer">, layer: number): number =>
  ("more" in mixer ? mixer.more?.keysOf : undefined) ?? layer;

/** Throws unless layers that attend the keys of others have heads of the same sizes and the same window. */
export function expectSharedKeys(where: string, blocks: readonly BlockSpec[]): void {
  const shapeIn = (layer: number) => {
    // Only softmax heads attend the keys of others, and only of such.
    const { config } = (blocks[layer] as BlockSpec).mixer as HeadsSpec;
    const { dModel, numHeads, numKvHeads = numHeads, headDim = dModel / numHeads, window } = config;
    return `${numKvHeads} heads of ${headDim} floats and ${window ? `a window of ${window.left}` : "no window"}`;
  };
  for (const [layer, block] of blocks.entries()) {
    const owner = stateLayer(block, layer);
    const isKept = owner < layer && stateLayer(blocks[owner] as BlockSpec, owner) === owner;
    if (owner === layer || (isKept && shapeIn(owner) === shapeIn(layer))) continue;
    const rule = `those of layer ${owner}, ${shapeIn(owner)}`;
    throw new HeadwiseError("BAD_FILE", `${where}: keys of layer ${layer} expected ${rule}, got ${shapeIn(layer)}`);
  }
}

/** Latents. */
export interface LatentSpec {
  readonly kind: "latent";
  readonly config: LatentConfig;
}

/** Mixers side by side: what each gives of the same rows, times a factor, is added. */
export interface ParallelSpec {
  readonly kind: "parallel";
  readonly config: { readonly dModel: number };
  readonly at: "";
  readonly parts: readonly { readonly at: string; readonly mixer: MixerSpec; readonly scale: number }[];
}

/** What mixes the tokens of a layer, by kind: models/mixers says what is known of each. */
export interface MixerSpecs {
  readonly heads: HeadsSpec;
  readonly latent: LatentSpec;
  readonly recurrent: RecurrentSpec;
  readonly parallel: ParallelSpec;
}
export type MixerSpec = MixerSpecs[keyof MixerSpecs];

/** Heads of attention; 0 of a layer that has none. */
export function headsOf(mixer: MixerSpec): number {
  if ("parts" in mixer) return Math.max(...mixer.parts.map((part) => headsOf(part.mixer)));
  return "numHeads" in mixer.config ? mixer.config.numHeads : 0;
}

/** Queries are multiplied by 1 + beta·ln(1 + floor((position + ahead) / length)). */
export interface Temperature {
  readonly beta: number;
  readonly length: number;
  /** Default 0. */
  readonly ahead?: number;
}

/** What a branch's output is multiplied by besides, and before it what that is added to. */
export type BranchFactors = Readonly<Record<"attention" | "mlp", { readonly added: number; readonly kept: number }>>;

/** A decoder layer. Its mixer may be another one than that of its neighbours. */
export interface BlockSpec {
  readonly mixer: MixerSpec;
  /** The layers of the file that its mixer and its MLP are, where that numbers them apart. */
  readonly layers?: readonly [mixer: number, mlp: number] | undefined;
  /** Queries grow with their positions. */
  readonly temperature?: Temperature | undefined;
  /** Attention to the outputs of an encoder. */
  readonly cross?: HeadsSpec;
  /** Undefined in models of attention alone. */
  readonly mlp: MlpSpec | MoeSpec | undefined;
  readonly norms: Readonly<Partial<Record<NormRole, NormSpec>>>;
  /** Both branches read the residual; without `mlpPre`, the MLP reads what attention reads. */
  readonly parallel: boolean;
  /** Branches are added to what they read, after its norm, instead of to the residual. */
  readonly addsToNormed: boolean;
  /** What the outputs of branches are multiplied by, and those of the MLP besides. */
  readonly scale: number;
  readonly mlpScale?: number;
  readonly factors?: BranchFactors | undefined;
  /** The layer's output is multiplied by a stored number. */
  readonly scaled?: true;
  /**
   * Behind attention, what attention read and the norm `lowRankPost` of a product of two matrices of this rank with it are added to
   * the residual, which is then divided by √2 (LAuReL).
   */
  readonly lowRank?: number;
}

/** How tokens become rows. */
export interface EmbedSpec {
  /** Floats of a row of the table; a projection widens them to dModel if they are fewer. */
  readonly dim: number;
  readonly scale: number;
  readonly norm?: NormSpec;
  /** A table of positions: the row of position 0, and the number of rows. */
  readonly positions?: {
    readonly offset: number;
    readonly rows: number;
    /** Tokens of this id have the row before that of position 0, and do not count. */
    readonly padding?: number;
    /** The table is computed: sines and cosines, and zeros in the row `without`. */
    readonly waves?: { readonly without: number };
  };
  /** Instead of tokens, features of so many channels go through two convolutions. */
  readonly channels?: number;
  /** Rows of a table of token types. */
  readonly types?: number;
  /** Positions, types and the norm have `dim` floats, and the projection comes after them. */
  readonly projectLast?: true;
  readonly perLayer?: PerLayerSpec;
}

/**
 * Inputs of layers besides the residual: for each layer `dim` floats of each token. They are the sum, times √½, of the token's row of
 * a second table [rows, layers·dim] times `scale`, and of a projection of its first row, each `dim` floats after `norm`; with 0 rows,
 * there is no table, and they are that projection. A layer adds to the residual the norm `perLayerPost` of
 * out(act(gate(residual)) · input). Tokens beyond `rows` have the row of token 0.
 */
interface PerLayerSpec {
  readonly dim: number;
  readonly rows: number;
  readonly scale: number;
  readonly norm: NormSpec;
}

/** What each head adds to a score by how far the key is from the query: distances share the entries of a table. */
export interface RelativeBias {
  readonly buckets: number;
  /** Distances from here on share the last entry. */
  readonly maxDistance: number;
  /** Whether later keys have entries of their own, half of all. */
  readonly bothWays: boolean;
}

/** How the last rows become logits. */
export interface HeadSpec {
  /** What the rows of an encoder go through before: a projection, an activation and a norm. */
  readonly transform?: { readonly activation: ActivationSpec; readonly norm: NormSpec };
  readonly scale: number;
  /** 0: none. */
  readonly softcap: number;
  /** Whether the table of embeddings is the head; undefined if only the file's tensors say it. */
  readonly tied: boolean | undefined;
}

/**
 * Rows of a token between layers (AltUp): `count`, of which the first is that of the table, and others are projected from it with its
 * size. A layer first adds to each a weighted sum of all, then computes with the `active` one, and adds a share of what it changed in
 * it to each. Weights and shares follow from a router, which reads rows after the norm `streamsPre`. What a layer's own input gives,
 * of the active one times a stored vector if that is `scaled`, is added to all but the first. Behind the last layer their mean counts.
 */
export interface StreamsSpec {
  readonly count: number;
  readonly active: number;
  readonly scaled: boolean;
}

/** A whole decoder. */
export interface ModelSpec {
  /** `model_type` of config.json. */
  readonly type: string;
  readonly dModel: number;
  /** 0 for an encoder whose rows come from elsewhere: from the decoder's table of tokens, or from sounds. */
  readonly vocabSize: number;
  /** The token that a decoder with an encoder begins with, if the file states it. */
  readonly startId?: number;
  /** Tokens of the longest sequence that will be run, else those that the file states; undefined without either. */
  readonly maxSeqLen: number | undefined;
  /** Tokens of a session by default. */
  readonly sessionLength: number;
  readonly embed: EmbedSpec;
  readonly relativeBias?: RelativeBias;
  /**
   * A table of rows by the distance of a query from a key, which scores of both are computed of: see layers/attention/distances.ts.
   * Distances share its rows as `distanceRow` says.
   */
  readonly distances?:
    | {
        /** Half of its rows: distances from here on share the last one. */
        readonly span: number;
        /** Of logarithmic groups, the distance that the last one begins with; undefined if each distance has a row. */
        readonly longest: number | undefined;
        readonly norm: NormSpec | undefined;
        readonly ofQueries: boolean;
        readonly ofKeys: boolean;
      }
    | undefined;
  readonly streams?: StreamsSpec;
  readonly blocks: readonly BlockSpec[];
  /** Rows are rounded to 8 bits, by the largest number of each, before the matrices of layers multiply them. */
  readonly rounded?: true;
  /** Which of `blocks` runs as each layer. Default each of them, in order. */
  readonly order?: readonly number[];
  readonly finalNorm: NormSpec | undefined;
  /** Floats that a projection behind the last norm makes of the rows of an encoder. Default: there is none. */
  readonly vectorDim?: number;
  readonly head: HeadSpec;
  readonly tokenRules?: TokenRules | undefined;
}

/**
 * What a model's files say about its tokens, besides the logits: for a generation that first reads this many tokens, what changes
 * the logits of each token, by the tokens before it. Processors of logits have this form.
 */
export type TokenRules = (read: number) => (ids: readonly (readonly bigint[])[], logits: LogitsRow) => void;
interface LogitsRow {
  readonly data: Float32Array;
}

/** Floats of the rows that positions and types are added to, and that the first norm normalises. */
export const widthOfRows = ({ dModel, embed }: Pick<ModelSpec, "dModel" | "embed">): number =>
  embed.projectLast ? embed.dim : dModel;

/** Tokens of a session by default, at most: what fits beside most models. */
export const SESSION_LENGTH = 4096;

/** Positions that a model has vectors for. */
export function positionsOf({ positions }: EmbedSpec): number {
  return positions ? positions.rows - positions.offset : Infinity;
}

/** The most tokens of a sequence: the positions of the model, or the distances that its bias is packed for. */
export function mostTokens({ embed, relativeBias, maxSeqLen = 0 }: ModelSpec): number {
  return relativeBias && !embed.positions ? Math.max(SESSION_LENGTH, maxSeqLen) : positionsOf(embed);
}

/** Throws if a sequence of `maxSeqLen` tokens, where that is known, has more than `most`, those that the model has positions for. */
export function expectPositions(where: string, most: number, maxSeqLen: number | undefined): void {
  if (maxSeqLen !== undefined && maxSeqLen > most)
    throw new RangeError(`${where}: maxSeqLen expected at most ${most}, the positions of the model, got ${maxSeqLen}`);
}

/** Floats of what the heads of a layer give for a row; 0 without heads. */
export function widthOfHeads({ mixer: { config } }: Pick<BlockSpec, "mixer">): number {
  if (!("numHeads" in config)) return 0;
  const { dModel, numHeads } = config;
  const headDim = "headDim" in config && config.headDim !== undefined ? config.headDim : dModel / numHeads;
  return numHeads * (config.valueDim ?? headDim);
}

/** Whether the outputs of a layer's heads are gated. */
export const isGated = ({ mixer }: Pick<BlockSpec, "mixer">): boolean =>
  "more" in mixer && mixer.more?.gated !== undefined;

/** Gates of a row: of each output of heads, or of each head. */
export const gatesOf = (block: Pick<BlockSpec, "mixer">): number =>
  "more" in block.mixer && block.mixer.more?.gated === "per-head" ? headsOf(block.mixer) : widthOfHeads(block);
