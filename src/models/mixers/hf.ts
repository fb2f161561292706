// The kinds of mixers in files of Hugging Face: how config.json describes a layer, and which tensors of safetensors files it has. Those
// of GGUF files are in spec/read-gguf.ts.

import type { AttentionRules, LatentRules } from "../families/attention-rules.ts";
import type { Fields } from "../families/facts.ts";
import type { Family, Names, TensorForm } from "../families/family.ts";
import type { HeadsSpec, LatentSpec, MixerSpec, MixerSpecs, NormSpec } from "../spec/spec.ts";
import { readHfLayer } from "../weights/hf-config.ts";
import { latentBiases, latentTensors, readHfLatents, readLatentWeights } from "../weights/hf-latent.ts";
import { readAttentionWeights } from "../weights/hf-weights.ts";
import { HEADS } from "./heads.ts";
import { type MixerFiles, type MixerReaders, type MixerTensor, namedTensors } from "./mixer.ts";
import type { MixerRole } from "./weight.ts";

/** A kind of mixers in these files. */
interface HfMixer<Spec extends MixerSpec = MixerSpec> {
  /** Reads a layer of config.json by the rules of its family. */
  read(file: Fields, rules: AttentionRules | LatentRules, layer: number, of: LayerFacts): Spec;
  /** Its tensors in safetensors files. */
  tensors(mixer: Spec, names: Names, form: TensorForm): readonly MixerTensor[];
}

/** What the reader of a layer knows besides the rules of its mixer. */
interface LayerFacts {
  readonly family: Family;
  /** The norm of the model. */
  readonly norm: NormSpec;
  /** Tokens of the longest sequence that will be run. */
  readonly maxSeqLen: number | undefined;
}

const HF_HEADS: HfMixer<HeadsSpec> = {
  read(file, rules: AttentionRules, layer, { family, norm, maxSeqLen }) {
    const { headNorm: own, part } = family;
    const headNorm = own && file.flag(own.flag, false) ? { eps: norm.eps, each: own.each !== undefined } : undefined;
    const config = readHfLayer(file, rules, layer, { maxSeqLen, layerNorms: own !== undefined, part });
    return { kind: "heads", config, ...(headNorm && { headNorm }) };
  },

  tensors(mixer, names, { layout, headNorm }) {
    const weights = [...HEADS.weights(mixer, {})];
    const { projections, sinks } = names;
    const linears = projections.map((name, i): MixerTensor => {
      const roles = ROLES_OF[projections.length === 2 ? "fused" : "separate"][i] as readonly MixerRole[];
      const parts = weights.filter(({ role }) => roles.includes(role));
      const outputs = parts.reduce((sum, { shape: [n] }) => sum + n, 0);
      const inputs = parts[0]?.shape[1] as number;
      const shape = layout === "in-out" ? [inputs, outputs] : [outputs, inputs];
      return { name: `${name}.weight`, shape, roles, bias: [`${name}.bias`, [outputs]] };
    });
    const vectors = weights.flatMap(({ role, shape: [n] }): readonly MixerTensor[] => {
      if (role === "qNorm" || role === "kNorm") return [{ name: `${role[0]}_norm.weight`, shape: [n], roles: [role] }];
      if (role === "sinks" && sinks !== undefined) return [{ name: sinks, shape: [n], roles: [role] }];
      if (!headNorm || (role !== "qHeadNorm" && role !== "kHeadNorm")) return [];
      const { dModel, numHeads, headDim = dModel / numHeads } = mixer.config;
      return headNormTensors(headNorm, role, n, headDim);
    });
    return [...linears, ...vectors];
  },
};

/** The weights of the matrices of a layer, where queries, keys and values have one of their own or one together. */
const ROLES_OF: Readonly<Record<"fused" | "separate", readonly (readonly MixerRole[])[]>> = {
  fused: [["q", "k", "v"], ["o"]],
  separate: [["q"], ["k"], ["v"], ["o"]],
};

/** The gains of layer norms of `n` floats in all: one tensor, or one for each head. */
function headNormTensors(
  { each, ...names }: NonNullable<TensorForm["headNorm"]>,
  role: "qHeadNorm" | "kHeadNorm",
  n: number,
  headDim: number,
): readonly MixerTensor[] {
  const name = role === "qHeadNorm" ? names.q : names.k;
  const tensor = (own: string, shape: readonly number[]): MixerTensor => ({
    ...{ name: `${own}.weight`, shape, roles: [role], bias: [`${own}.bias`, shape] },
  });
  if (each === "apart")
    return Array.from({ length: n / headDim }, (_, head) => tensor(`${name}.norms.${head}`, [headDim]));
  return [tensor(name, each === "together" ? [n / headDim, headDim] : [n])];
}

const HF_LATENT: HfMixer<LatentSpec> = {
  read: (file, rules: LatentRules, layer) => ({ kind: "latent", config: readHfLatents(file, rules, layer) }),

  tensors: ({ config }) => namedTensors(ROLES, latentTensors(config), latentBiases(config)),
};

/** The weights of tensors of safetensors files. */
const ROLES: Readonly<Record<string, readonly MixerRole[]>> = {
  q_proj: ["q"],
  q_a_proj: ["qDown"],
  q_a_layernorm: ["qNorm"],
  q_b_proj: ["q"],
  kv_a_proj_with_mqa: ["kvDown"],
  kv_a_layernorm: ["kvNorm"],
  kv_b_proj: ["k", "v"],
  o_proj: ["o"],
};

/** The kinds. */
export const HF_MIXERS: Readonly<Record<keyof MixerSpecs, HfMixer>> = { heads: HF_HEADS, latent: HF_LATENT };

/** What reads the weights of a kind of safetensors files. */
const READERS: MixerReaders = {
  heads: (tensors, prefix, { config: { numHeads, numKvHeads, headDim, fused } }) =>
    readAttentionWeights({ metadata: new Map(), tensors }, prefix, { numHeads, numKvHeads, headDim, fused }),
  latent: (tensors, prefix) => readLatentWeights({ metadata: new Map(), tensors }, prefix),
};

/** The mixers of safetensors files of a family. */
export const hfMixers = (names: Names, form: TensorForm): MixerFiles => ({
  tensors: (mixer) => HF_MIXERS[mixer.kind].tensors(mixer, names, form),
  readers: READERS,
});
