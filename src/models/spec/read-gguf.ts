// Reads a whole decoder from a GGUF file: its metadata, the shapes of its tensors, and what is known of its architecture.

import { shapeText } from "../../base/tensor/dtypes.ts";
import { describe, HeadwiseError } from "../../base/util/errors.ts";
import type { Handle } from "../../base/util/lifetime.ts";
import { nearestNames } from "../../base/util/strings.ts";
import { type GgufFile, openGgufParts } from "../../files/gguf.ts";
import type { OpenGguf } from "../../files/model-files.ts";
import type { AttentionRules } from "../families/attention-rules.ts";
import { POSITIVE_RULE } from "../families/facts.ts";
import { type Family, LLAMA_NAMES, type MoeNames, type Names } from "../families/family.ts";
import { type Families, GGUF_DECODERS, GGUF_LAYERS } from "../families/index.ts";
import type { RecurrentSpec } from "../families/recurrent.ts";
import { reasonAgainst, UNSUPPORTED_ARCHITECTURES, UNSUPPORTED_RULE } from "../families/unsupported.ts";
import { type MixerFiles, type MixerTensor, namedTensors, withoutGates } from "../mixers/mixer.ts";
import { parallelTensors } from "../mixers/parallel.ts";
import { recurrentTensors } from "../mixers/recurrent.ts";
import type { MixerRole } from "../mixers/weight.ts";
import { latentWeights, readLatents } from "../weights/gguf-latent.ts";
import {
  type AttentionShapes,
  headWeights,
  type Keys,
  keysOf,
  readHeads,
  readLongFactors,
  readRopeFactors,
  refusal,
} from "../weights/gguf-layer.ts";
import { ACTIVATIONS } from "./read-spec.ts";
import {
  type ActivationSpec,
  type BlockSpec,
  type EmbedSpec,
  expectPositions,
  expectSharedKeys,
  type MixerSpec,
  type MlpSpec,
  type ModelSpec,
  type MoeSpec,
  type NormRole,
  type NormSpec,
  positionsOf,
  SESSION_LENGTH,
} from "./spec.ts";
import type { Decoder } from "./tensors.ts";

// The MLPs and experts of GGUF files.

const MOE_NAMES = {
  router: "ffn_gate_inp",
  correction: "exp_probs_b.bias",
  expert: "stacked",
  mlp: { gate: "ffn_gate_exps", up: "ffn_up_exps", down: "ffn_down_exps" },
  shared: "",
  sharedMlp: { gate: "ffn_gate_shexp", up: "ffn_up_shexp", down: "ffn_down_shexp" },
  sharedGate: "ffn_gate_inp_shexp",
} as const satisfies MoeNames;

/** How scores of experts become weights, as files number it: softmax of all, sigmoid, or softmax of those chosen. */
const [SOFTMAX_GATE, SIGMOID_GATE, CHOSEN_GATE] = [1, 2, 3];

/** The MLP of a layer, or its experts if it has a router. `keys` are those of the layer, and `has` looks for its tensors. */
function readMlp(
  keys: Keys,
  { activation: { word = "silu" } = {}, expertActivation, plain, gguf }: Family,
  has: (tensor: string) => boolean,
): MlpSpec | MoeSpec | undefined {
  const activation = expertActivation ?? gguf?.activation?.(keys) ?? (ACTIVATIONS[word] as ActivationSpec);
  const mlp = (dim: number): MlpSpec => ({ kind: "mlp", dim, gated: !plain, activation });
  if (!has(`${MOE_NAMES.router}.weight`)) {
    const dim = keys.countOrNone("feed_forward_length");
    if (dim === 0 && !has("ffn_down.weight")) return undefined;
    return mlp(keys.count("feed_forward_length"));
  }
  const experts = keys.count("expert_count");
  const topK = keys.count("expert_used_count");
  if (topK > experts) keys.fail("expert_used_count", `at most the ${experts} experts`, topK);
  const dim = keys.countOrNone("expert_feed_forward_length") || keys.count("feed_forward_length");
  const gating = keys.countOrNone("expert_gating_func") || SOFTMAX_GATE;
  if (gating !== SOFTMAX_GATE && gating !== SIGMOID_GATE && gating !== CHOSEN_GATE)
    keys.fail("expert_gating_func", "1 (softmax), 2 (sigmoid) or 3 (softmax of the chosen)", gating);
  const [groups, keepGroups] = [keys.count("expert_group_count", 1), keys.count("expert_group_used_count", 1)];
  const size = experts / groups;
  if (!Number.isInteger(size)) keys.fail("expert_group_count", `a divisor of the ${experts} experts`, groups);
  if (keepGroups > groups || topK > keepGroups * size)
    keys.fail("expert_group_used_count", `groups of the ${groups} with ${topK} experts`, keepGroups);
  const beside = gguf?.experts;
  const shared = beside !== undefined || has(`${MOE_NAMES.sharedMlp.down}.weight`);
  const sharedDim = () =>
    beside
      ? keys.count("feed_forward_length")
      : keys.countOrNone("expert_shared_feed_forward_length") || keys.count("expert_shared_count", 1) * dim;
  return {
    kind: "moe",
    experts,
    topK,
    expert: mlp(dim),
    ...(shared && { shared: { mlp: mlp(sharedDim()), gated: has(`${MOE_NAMES.sharedGate}.weight`) } }),
    router: {
      score: gating === SIGMOID_GATE ? "sigmoid" : "softmax",
      correction: has(MOE_NAMES.correction),
      renormalise: gating === CHOSEN_GATE || keys.flag("expert_weights_norm", gguf?.renormalise ?? true),
      scale: keys.factor("expert_weights_scale") ?? 1,
      groups,
      keepGroups,
      pairs: gating === SIGMOID_GATE && groups > 1,
      ...beside?.router(keys),
    },
  };
}

type Header = Pick<GgufFile, "metadata" | "tensors" | "read">;

/** The table of token types, and what computes scores or vectors of the pooled rows of encoders. */
const TYPES = "token_types";
const BEHIND_POOLING = /^(cls|dense_\d)\./;

const NAMES: Names = {
  roots: [""],
  embed: "token_embd",
  embedNorm: "token_embd_norm",
  positions: "position_embd",
  types: TYPES,
  projectIn: "project_in",
  projectOut: "project_out",
  layers: "blk",
  attention: "attn_",
  projections: [],
  norms: {
    attentionPre: "attn_norm",
    attentionSub: "attn_sub_norm",
    attentionPost: "post_attention_norm",
    attentionAfter: "attn_output_norm",
    mlpPre: "ffn_norm",
    mlpSub: "ffn_sub_norm",
    mlpPost: "post_ffw_norm",
    mlpAfter: "layer_output_norm",
    perLayerPost: "post_norm",
    routerPre: "ffn_gate_inp.scale",
    sharedPost: "post_ffw_norm_1",
    expertsPre: "pre_ffw_norm_2",
    expertsPost: "post_ffw_norm_2",
    lowRankPost: "laurel_post_norm",
    streamsPre: "altup_router_norm",
  },
  layerScale: "layer_output_scale.weight",
  others: {
    perLayerTable: "per_layer_token_embd.weight",
    perLayerProjection: "per_layer_model_proj.weight",
    perLayerNorm: "per_layer_proj_norm.weight",
    perLayerGate: "inp_gate.weight",
    perLayerOut: "proj.weight",
    expertScales: "ffn_down_exps.scale",
    ...{ lowRankDown: "laurel_l.weight", lowRankUp: "laurel_r.weight", streamRouter: "altup_router.weight" },
    ...{ streamPredict: "altup_predict_coef.weight", streamCorrect: "altup_correct_coef.weight" },
    ...{
      streamScale: "altup_correct_scale.weight",
      streamIn: "altup_proj.weight",
      streamOut: "altup_unembd_proj.weight",
    },
  },
  mlpAt: "",
  mlp: { gate: "ffn_gate", up: "ffn_up", down: "ffn_down" },
  finalNorm: "output_norm",
  head: "output",
};

const MOST_LAYERS = 10_000;

/**
 * Reads the decoder of a file for the public function `where`. `maxSeqLen` is the longest sequence that will be run, where it is
 * known; `encoders` are architectures that the function knows besides decoders.
 */
export async function readGgufDecoder(
  where: string,
  file: Header,
  maxSeqLen?: number,
  encoders?: Families,
): Promise<Decoder> {
  const { metadata, tensors } = file;
  const { name, family } = findFamily(where, metadata, encoders);
  const keyAt = (layer: number) => keysOf(where, metadata, name, layer);
  const keys = keyAt(0);
  const stated = keys.count("context_length");
  const longest = maxSeqLen ?? stated;
  const factors = (await readLongFactors(where, file, name, longest)) ?? (await readRopeFactors(where, file));
  const has = (tensor: string) => tensors.has(`${tensor}.weight`);
  const { kind: normKind = "rms", bare } = family.norm ?? {};
  const norm: NormSpec = { kind: normKind, eps: readEps(keys, family), ...(bare && { bare }) };
  const temperature = family.gguf?.temperature?.(keys);
  const names = namesIn(keys, family, has, (tensor) => tensors.has(tensor));
  const stored = keys.count("block_count");
  if (stored > MOST_LAYERS) keys.fail("block_count", `at most ${MOST_LAYERS}`, stored);
  // The last ones predict tokens further ahead, and are not read.
  const ahead = keys.countOrNone("nextn_predict_layers");
  const layers = stored - ahead;
  if (layers < 1) keys.fail("nextn_predict_layers", `less than the ${stored} layers`, ahead);
  const unread = Array.from({ length: ahead }, (_, i) => layers + i).join("|");
  const shapes = new Map<MixerSpec, AttentionShapes>();
  const pairs = family.gguf?.pairs?.(keys, layers);
  const readMixer = (layer: number): MixerSpec => {
    const scan = family.gguf?.recurrent?.(keyAt(layer), (tensor) => tensors.has(`blk.${layer}.${tensor}`));
    if (scan && !family.gguf?.beside) return scan;
    const [attends, own] = READERS[family.attention.kind ?? "heads"](where, file, layer, factors, family, keys);
    shapes.set(attends, own);
    return scan ? besideOf(attends, scan) : attends;
  };
  const blocks = (pairs ?? Array.from({ length: layers }, (_, layer) => [layer, layer] as const)).map(
    ([layer, second]): BlockSpec => {
      const mixer = readMixer(layer);
      const there = Object.entries(names.norms).filter(
        ([role, tensor]) => role !== "mlpPre" || !family.gguf?.oneNorm || has(`blk.${layer}.${tensor}`),
      );
      const mlp =
        second === undefined
          ? undefined
          : readMlp(keyAt(second), family, (tensor) => tensors.has(`blk.${second}.${tensor}`));
      const norms: BlockSpec["norms"] = Object.fromEntries(
        there.filter(([role]) => mlp || !role.startsWith("mlp")).map(([role]) => [role as NormRole, norm]),
      );
      return {
        ...{
          mixer,
          norms,
          mlp,
          ...(temperature && { temperature }),
          ...(pairs && { layers: [layer, second ?? layer] as const }),
        },
        parallel: family.gguf?.oneNorm ? norms.mlpPre === undefined : (family.parallel?.(keys) ?? false),
        addsToNormed: false,
        scale: keys.factor("residual_scale") ?? 1,
        ...(tensors.has(`blk.${layer}.${NAMES.layerScale}`) && { scaled: true as const }),
        ...(family.lowRank && {
          lowRank: expectMatrix(where, file, `blk.${layer}.${NAMES.others?.lowRankDown}`)[0] as number,
        }),
      };
    },
  );
  expectSharedKeys(where, blocks);
  const { dModel } = (blocks[0] as BlockSpec).mixer.config;
  // 0 without a table, which is reported with all other tensors that are missing.
  const [vocabSize = 0] = tensors.get(`${NAMES.embed}.weight`)?.shape ?? [];
  const embed = readEmbed(where, file, keys, family, dModel, norm, encoders !== undefined);
  expectPositions(where, positionsOf(embed), maxSeqLen);
  const spec: ModelSpec = {
    type: name,
    dModel,
    vocabSize,
    maxSeqLen: longest,
    sessionLength: maxSeqLen ?? Math.min(stated, SESSION_LENGTH, positionsOf(embed)),
    embed,
    blocks,
    ...(family.streams && { streams: family.streams(keys) }),
    finalNorm: (family.finalNorm?.(keys) ?? true) ? norm : undefined,
    head: {
      scale: keys.factor("logit_scale") ?? 1,
      softcap: keys.factor("final_logit_softcapping") ?? 0,
      ...family.head?.(keys),
      tied: !has(NAMES.head),
    },
  };
  const form = {
    moeNames: { ...moeNamesIn(tensors), ...family.gguf?.experts?.names },
    ...(family.gatedQueries && { gatedQueries: true as const }),
    ...(family.gguf?.scaled && { scales: "product" as const }),
    ignoredTensors: new RegExp(`^blk\\.(${unread})\\.`),
    ...(encoders && { ignoredTensors: BEHIND_POOLING }),
  };
  return { spec, names, family: form, mixers: mixersOf(where, shapes, family) };
}

/** What a file calls the tensors of a family. */
function namesIn(
  keys: Keys,
  family: Family,
  has: (tensor: string) => boolean,
  hasBare: (tensor: string) => boolean,
): Names {
  const own: Names = { ...LLAMA_NAMES, ...family.names, ...family.namesOf?.(keys) };
  const roles = Object.keys(own.norms) as NormRole[];
  return {
    ...NAMES,
    ...(own.bareNorms && { bareNorms: own.bareNorms }),
    ...(family.gguf?.finalNorm && { finalNorm: family.gguf.finalNorm }),
    // Files of Falcon-H1 have it so.
    ...(!has("blk.0.ffn_norm") && hasBare("blk.0.ffn_norm") && { bareNorms: ["mlpPre"] as const }),
    norms: has("blk.0.attn_norm_2")
      ? FALCON_NORMS
      : (family.gguf?.norms ?? Object.fromEntries(roles.map((role) => [role, NAMES.norms[role] as string]))),
    ...(own.mlp.up === undefined && !has("blk.0.ffn_gate") && { mlp: { gate: "ffn_up", down: "ffn_down" } }),
  };
}

/** Norms side by side, of which the first is that of the MLP. */
const FALCON_NORMS: Names["norms"] = { attentionPre: "attn_norm_2", mlpPre: "attn_norm" };

function findFamily(
  where: string,
  metadata: Header["metadata"],
  encoders: Families | undefined,
): { name: string; family: Family } {
  const known = new Map([...GGUF_DECODERS, ...(encoders ?? [])]);
  const name = metadata.get("general.architecture");
  const family = known.get(name);
  if (typeof name === "string" && family !== undefined) return { name, family };
  const reason = reasonAgainst(name, UNSUPPORTED_ARCHITECTURES);
  const [rule, why] =
    GGUF_LAYERS.get(name)?.reader === "loadEncoder"
      ? [`one that ${where} reads`, ", which loadEncoder reads"]
      : reason
        ? [UNSUPPORTED_RULE, `, which has ${reason}`]
        : GGUF_LAYERS.has(name)
          ? ["one that is read whole", ", whose layers readGgufLayer reads"]
          : [
              `a supported ${encoders ? "one" : "decoder"}${nearestNames(name, [...(known.keys() as Iterable<string>)])}`,
              "",
            ];
  throw new HeadwiseError(
    "BAD_FILE",
    `${where}: key "general.architecture" expected ${rule}, got ${describe(name)}${why}`,
  );
}

/** How tokens become rows. */
function readEmbed(
  where: string,
  file: Header,
  keys: Keys,
  family: Family,
  dModel: number,
  norm: NormSpec,
  isEncoder: boolean,
): EmbedSpec {
  const ownEmbed = family.embed?.(keys, dModel, norm) ?? {};
  return {
    dim: dModel,
    scale: ownEmbed.scale ?? keys.factor("embedding_scale") ?? 1,
    ...(ownEmbed.norm && { norm }),
    ...(ownEmbed.positions && {
      positions: { offset: 0, rows: expectMatrix(where, file, `${NAMES.positions}.weight`)[0] as number },
    }),
    ...(ownEmbed.perLayer && {
      perLayer: {
        ...ownEmbed.perLayer,
        rows: expectMatrix(where, file, `${NAMES.others?.perLayerTable}`)[0] as number,
      },
    }),
    // A single type may be a vector.
    ...(isEncoder &&
      file.tensors.has(`${TYPES}.weight`) && { types: file.tensors.get(`${TYPES}.weight`)!.shape.at(-2) ?? 1 }),
  };
}

function readEps(keys: Keys, { norm }: Family): number {
  const both = ["attention.layer_norm_rms_epsilon", "attention.layer_norm_epsilon"] as const;
  const [key, other] = norm?.kind === "layer" ? [both[1], undefined] : both;
  // Some files of RMS norms have the other name.
  return keys.number(key) ?? (other && keys.number(other)) ?? keys.fail(key, POSITIVE_RULE, keys.raw(key));
}

type RopeFactors = Parameters<typeof readHeads>[4];

/** The names of experts. What has one row is a vector or a matrix, as programs of different years wrote it. */
function moeNamesIn(tensors: Header["tensors"]): MoeNames {
  const isVector = (end: string) => [...tensors].find(([name]) => name.endsWith(`.${end}`))?.[1].shape.length === 1;
  const { correction, sharedGate } = MOE_NAMES;
  return { ...MOE_NAMES, correctionRow: !isVector(correction), sharedGateFlat: isVector(`${sharedGate}.weight`) };
}

/** How a layer of a kind is read, and which tensors it has. */
const READERS: Readonly<
  Record<
    "heads" | "latent",
    (
      where: string,
      file: Header,
      layer: number,
      factors: RopeFactors,
      family: Family,
      keys: Keys,
    ) => [MixerSpec, AttentionShapes]
  >
> = {
  heads(where, file, layer, factors, { attention, heads }, keys) {
    const more = heads?.(keys, layer, (tensor) => file.tensors.has(`blk.${layer}.${tensor}`));
    const rules = attention as AttentionRules;
    const { config, ...shapes } = readHeads(where, file, layer, undefined, factors, rules, more);
    return [{ kind: "heads", config, ...(more && { more }) }, shapes];
  },
  latent(where, file, layer) {
    const { config, ...shapes } = readLatents(where, file, layer);
    return [{ kind: "latent", config }, shapes];
  },
};

/** The weights of the tensors of mixers, by their names behind `attn_`. */
const ROLES: Readonly<Record<string, readonly MixerRole[]>> = {
  ...{ q: ["q"], k: ["k"], v: ["v"], qkv: ["q", "k", "v"], output: ["o"], q_norm: ["qNorm"], k_norm: ["kNorm"] },
  ...{ sinks: ["sinks"], q_a: ["qDown"], q_a_norm: ["qNorm"], q_b: ["q"], kv_a_mqa: ["kvDown"], kv_a_norm: ["kvNorm"] },
  ...{ kv_b: ["k", "v"], k_b: ["k"], v_b: ["v"] },
};

/** Attention and a scan side by side. */
const besideOf = (attends: MixerSpec, scan: RecurrentSpec): MixerSpec => ({
  ...{ kind: "parallel", at: "", config: { dModel: scan.config.dModel } },
  parts: [
    { at: NAMES.attention, mixer: attends, scale: 1 },
    { at: "", mixer: scan, scale: 1 },
  ],
});

/** The mixers of a file whose layers have these tensors. */
const mixersOf = (
  where: string,
  shapes: ReadonlyMap<MixerSpec, AttentionShapes>,
  { gatedQueries }: Family,
): MixerFiles => ({
  tensors: function tensorsOf(mixer): readonly MixerTensor[] {
    if ("parts" in mixer) return parallelTensors(mixer, tensorsOf);
    if ("tensors" in mixer) return recurrentTensors(mixer);
    const { required, optional } = shapes.get(mixer) as AttentionShapes;
    const double = ([name, shape]: (typeof required)[number]) =>
      gatedQueries && /^q\.(weight|bias)$/.test(name)
        ? ([name, [2 * (shape[0] as number), ...shape.slice(1)]] as const)
        : ([name, shape] as const);
    return namedTensors(ROLES, required.map(double), optional.map(double));
  },
  ignored: (mixer) => ("more" in mixer && mixer.more?.keysOf !== undefined ? ["k", "v", "k_norm"] : []),
  readers: {
    heads(tensors, prefix, { config: { numHeads }, more }) {
      const given = gatedQueries ? withoutGates(tensors, `${prefix}q`, numHeads) : tensors;
      const weights = headWeights(where, given, prefix);
      return more?.valuesAreKeys ? ({ ...weights, wv: weights.wk } as typeof weights) : weights;
    },
    latent: (tensors, prefix) => latentWeights(where, tensors, prefix),
  },
});

function expectMatrix(where: string, { tensors }: Header, name: string): readonly number[] {
  const { shape } = tensors.get(name) ?? {};
  if (shape?.length === 2) return shape;
  throw refusal(where, name, "two dimensions", shape ? shapeText(shape) : "no such tensor");
}

// What loadModel takes as an option, so that only those who read GGUF files import it.

/** What reads GGUF files: `gguf`. */
export interface GgufReader extends Handle {
  /** @internal */
  readonly open: OpenGguf;
  /** @internal */
  readonly read: typeof readGgufDecoder;
}

/**
 * Lets `loadModel`, and `loadEncoder` of `headwise/models`, read GGUF files: pass it as the option `gguf`.
 * @example
 * import { type Kernels, loadKernels } from "headwise";
 * import { gguf, loadModel, type Model, models } from "headwise/models";
 * import { quantized } from "headwise/quantized";
 * const load = async (file: File): Promise<Model> => loadModel(await loadKernels({ models, quantized }), file, { gguf });
 * console.log(typeof load); // function: load(file) keeps the file's formats, such as those of Q4_K_M
 */
export const gguf: GgufReader = { open: openGgufParts, read: readGgufDecoder } as GgufReader;
