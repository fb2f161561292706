// Softmax heads as the mixer of a layer.

import { type StoredTensor, toFloats } from "../../base/tensor/dtypes.ts";
import { exp } from "../../base/util/math.ts";
import { CHUNK_ROWS } from "../../base/util/rows.ts";
import { packBlockHeads } from "../../layers/attention/attention.ts";
import { type CheckedConfig, checkConfig } from "../../layers/attention/config.ts";
import {
  type HeadGains,
  type HeadRules,
  headNormBytes,
  headRules,
  normValuesOf,
  packHeadNorm,
  placeLayerRows,
} from "../../layers/attention/heads.ts";
import { planCache } from "../../layers/attention/kv-state.ts";
import {
  type AttentionWeights,
  checkWeightOptions,
  checkWeights,
  layerLayout,
  PROJECTIONS,
  type ProjectionName,
  projectionSizes,
  vectorSizes,
} from "../../layers/attention/weights.ts";
import { eachOf } from "../../layers/linear/formats.ts";
import { aligned } from "../../wasm/memory.ts";
import type { HfAttentionConfig } from "../families/attention-rules.ts";
import type { HeadsMore, HeadsSpec } from "../spec/spec.ts";
import type { MixerKind, MixerLoader, MixerMemory, MixerPacking } from "./mixer.ts";
import { BARE, type MixerRole, type Source, weightOf } from "./weight.ts";

/** For messages about a configuration, which whoever read it has checked. */
const WHERE = "weightsOf";

/** The matrices of a layer: one that attends the keys of another one has none for its own. */
const projectionsOf = ({ more }: HeadsSpec): readonly ProjectionName[] =>
  more?.keysOf === undefined ? PROJECTIONS : QUERIES_ONLY;
const QUERIES_ONLY = ["q", "o"] as const;

/** The checked configuration of a layer as files describe it. */
export function checkHeads(where: string, { fused: _, ...config }: HfAttentionConfig): CheckedConfig {
  return checkConfig(where, config);
}

export const HEADS: MixerKind<HeadsSpec> = {
  readsInOrder: ({ more }) => more?.keysOf !== undefined,

  *weights(mixer, of) {
    const config = checkConfig(WHERE, mixer.config);
    const { pairs } = mixer.more ?? {};
    const sizes = { ...projectionSizes(config) };
    // As the file has them.
    if (pairs) {
      sizes.v = { ...sizes.v, n: sizes.v.n / 2 };
      sizes.o = { ...sizes.o, k: sizes.o.k / 2 };
      for (const role of LAMBDAS) yield weightOf(role, "vector", [config.headDim], of);
    }
    const linear = { ...of, part: "attention", bias: true } as const;
    for (const role of projectionsOf(mixer)) {
      const shape = [sizes[role].n, sizes[role].k] as const;
      const isKey = role === "v" && mixer.more?.valuesAreKeys;
      yield weightOf(role, "matrix", shape, isKey ? { ...linear, optional: true } : linear);
    }
    const { qNorm, kNorm, sinks } = vectorSizes(config);
    if (config.qkNorm) {
      const bare = mixer.more?.bare && BARE;
      yield weightOf("qNorm", "vector", [qNorm], { ...of, ...bare });
      if (mixer.more?.keysOf === undefined) yield weightOf("kNorm", "vector", [kNorm], { ...of, ...bare });
    }
    yield weightOf("sinks", "vector", [sinks], { ...of, optional: true });
    const { headNorm } = mixer;
    if (!headNorm) return;
    yield weightOf("qHeadNorm", "vector", [headNorm.each ? sizes.q.n : config.headDim], { ...of, bias: true });
    yield weightOf("kHeadNorm", "vector", [headNorm.each ? sizes.k.n : config.headDim], { ...of, bias: true });
  },

  formatOf: (role, requested, { nameOf, formatOf }) =>
    formatOf(role === "v" && nameOf("v") === undefined ? "k" : role, requested),

  plan(where, mixer, formatOf) {
    const { config: given, headNorm, more } = mixer;
    const config = checkHeads(where, given);
    const formats = eachOf(PROJECTIONS, formatOf);
    const values = more?.valueNorm ? aligned(4 * config.valueDim) : 0;
    const pairs = more?.pairs ? pairBytes(config) : 0;
    const norms = values + pairs + (headNorm ? headNormBytes(config, headNorm.each) : 0);
    return {
      bytes: aligned(layerLayout(config, formats, projectionsOf(mixer)).bytes) + norms,
      rope: config.rope,
      chunkRows: CHUNK_ROWS,
      state: (where, maxSeqLen, options) => planCache(where, config, config, maxSeqLen, options),
      place: (layout, rows, pageFormats, rotations) =>
        void placeLayerRows(config, formats, layout, rows, pageFormats, 0, rotations),
    };
  },
};

export const HEADS_MEMORY: MixerMemory<HeadsSpec> = {
  kind: "heads",
  keeps({ config, more }) {
    if (more?.keysOf !== undefined) return { kind: "shared", perToken: 0, window: undefined, state: 0 };
    const { dModel, numHeads, numKvHeads = numHeads, headDim = dModel / numHeads, valueDim = headDim, window } = config;
    const left = window?.left;
    return {
      perToken: numKvHeads * (headDim + valueDim),
      window: left === undefined ? undefined : left + 1,
      state: 0,
    };
  },
};

export const HEADS_LOADER: MixerLoader<HeadsSpec> = {
  load(packing, mixer) {
    const { where, kernels, tensors, prefix, readers, ownBlock } = packing;
    const { config, headNorm, more } = mixer;
    // Taken first: readers refuse tensors that are no part of the attention of single layers.
    const gains = headNorm && { q: takeGains(packing, "qHeadNorm"), k: takeGains(packing, "kHeadNorm") };
    const checked = checkHeads(where, config);
    const pairs = more?.pairs && packPairs(packing, checked, more.pairs);
    const weights = { ...readers.heads(tensors, prefix, mixer), ...(more?.bare && onesFor(checked)) };
    const options = checkWeightOptions(where, "options.", packing);
    const given = checkWeights(where, checked, weights, options, kernels.quantized, projectionsOf(mixer));
    const norm =
      headNorm && gains
        ? packHeadNorm(kernels, checked, headNorm, gains, ownBlock(headNormBytes(checked, headNorm.each)))
        : undefined;
    const normValues =
      more?.valueNorm && normValuesOf(kernels, checked, more.valueNorm.eps, ownBlock(aligned(4 * checked.valueDim)));
    const { rounded } = packing;
    const chunk = more?.chunked && Number.isFinite(checked.window.left) ? checked.window.left + 1 : undefined;
    const rules = more && headRules(kernels, { ...more, normValues, chunk, pairs });
    return packBlockHeads(where, kernels, checked, { ...given, rounded }, norm, rules);
  },
};

/** The vectors that λ is made of. */
const LAMBDAS = ["lambda_q1", "lambda_k1", "lambda_q2", "lambda_k2"] as const;

const pairBytes = ({ valueDim }: CheckedConfig): number => aligned(4 * (1 + valueDim));

/** Takes λ out of the tensors, and writes it and the gains behind it to a block of its own. */
function packPairs(
  { kernels, tensors, prefix, ownBlock }: MixerPacking,
  config: CheckedConfig,
  { first, eps }: NonNullable<HeadsMore["pairs"]>,
): HeadRules["pairs"] {
  const [q1, k1, q2, k2] = LAMBDAS.map((name) => {
    const vector = toFloats(tensors.get(prefix + name) as StoredTensor);
    tensors.delete(prefix + name);
    return vector;
  }) as [Float32Array, Float32Array, Float32Array, Float32Array];
  const power = (a: Float32Array, b: Float32Array) => exp(a.reduce((sum, x, i) => sum + x * (b[i] as number), 0));
  const at = ownBlock(pairBytes(config));
  const floats = kernels.memory.f32(at, 1 + config.valueDim).fill(1 - first);
  floats[0] = power(q1, k1) - power(q2, k2) + first;
  return { at, eps };
}

/** The gains of norms of queries and keys that have none. */
function onesFor(config: CheckedConfig): Pick<AttentionWeights, "qNorm" | "kNorm"> {
  const { qNorm, kNorm } = vectorSizes(config);
  const ones = (n: number) => new Float32Array(n).fill(config.qkNorm?.onePlus ? 0 : 1);
  return { qNorm: ones(qNorm), kNorm: ones(kNorm) };
}

/** Takes the gains and biases of a norm of heads out of the tensors: one tensor each, or one for each head. */
function takeGains({ tensors, sources }: MixerPacking, role: MixerRole): HeadGains {
  const own = sources.filter(({ weights: [first] }) => first?.role === role);
  const take = (nameOf: (source: Source) => string | undefined) => {
    const names = own.map(nameOf);
    const found = names.flatMap((name) => tensors.get(name as string) ?? []);
    for (const name of names) tensors.delete(name as string);
    const all = found.flatMap((tensor: StoredTensor) => [...toFloats(tensor)]);
    return all.length > 0 ? Float32Array.from(all) : undefined;
  };
  return { bias: take(({ bias }) => bias?.name), gain: take(({ name }) => name) as Float32Array };
}
