// The kinds of mixers in files of Hugging Face: how config.json describes a layer, and which tensors of safetensors files it has. Those
// of GGUF files are in spec/read-gguf.ts.

import type { StoredTensor } from "../../base/tensor/dtypes.ts";
import type { AttentionWeights } from "../../layers/attention/weights.ts";
import type {
  AttentionRules,
  LatentRules,
  LayerRules,
  ParallelRules,
  RecurrentRules,
} from "../families/attention-rules.ts";
import type { Fields } from "../families/facts.ts";
import type { Family, Names, TensorForm } from "../families/family.ts";
import type { RecurrentSpec } from "../families/recurrent.ts";
import type { HeadsSpec, LatentSpec, MixerSpec, MixerSpecs, NormSpec, ParallelSpec } from "../spec/spec.ts";
import { readHfLayer } from "../weights/hf-config.ts";
import { latentBiases, latentTensors, readHfLatents, readLatentWeights } from "../weights/hf-latent.ts";
import { readAttentionWeights } from "../weights/hf-weights.ts";
import { HEADS } from "./heads.ts";
import { type MixerFiles, type MixerReaders, type MixerTensor, namedTensors, withoutGates } from "./mixer.ts";
import { parallelTensors } from "./parallel.ts";
import { recurrentTensors } from "./recurrent.ts";
import type { MixerRole } from "./weight.ts";

/** A kind of mixers in these files. */
interface HfMixer<Spec extends MixerSpec = MixerSpec> {
  /** Whether it can round what its matrices multiply (`rounded` of ModelSpec). */
  readonly rounds?: true;
  /** Reads a layer of config.json by the rules of its family. */
  read(file: Fields, rules: LayerRules, layer: number, of: LayerFacts): Spec;
  /** Its tensors in safetensors files. `tensorsOf` gives those of a mixer that is a part of this one. */
  tensors(mixer: Spec, names: Names, form: TensorForm, tensorsOf: MixerFiles["tensors"]): readonly MixerTensor[];
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
  rounds: true,

  read(file, rules: AttentionRules, layer, { family, norm, maxSeqLen }) {
    const { headNorm: own, part } = family;
    // First, since they read fields that layers alone would refuse.
    const more = family.heads?.(file, layer);
    const headNorm =
      own && file.flag(own.flag, own.otherwise ?? false) ? { eps: norm.eps, each: own.each !== undefined } : undefined;
    const limits = more?.limit !== undefined;
    const config = readHfLayer(file, rules, layer, { maxSeqLen, layerNorms: own !== undefined, limits, part });
    return { kind: "heads", config, ...(headNorm && { headNorm }), ...(more && { more }) };
  },

  tensors(mixer, names, { layout, headNorm, attentionNames, gatedQueries }) {
    const weights = [...HEADS.weights(mixer, {})].filter(({ constant }) => constant === undefined);
    const { projections, sinks } = names;
    const own = mixer.more?.valuesAreKeys ? projections.filter((name) => name !== "v_proj") : projections;
    const linears = own.flatMap((name): readonly MixerTensor[] => {
      const i = projections.indexOf(name);
      const roles = ROLES_OF[projections.length === 2 ? "fused" : "separate"][i] as readonly MixerRole[];
      const parts = weights.filter(({ role }) => roles.includes(role));
      if (parts.length === 0) return [];
      const sum = parts.reduce((rows, { shape: [n] }) => rows + n, 0);
      const outputs = gatedQueries && i === 0 ? 2 * sum : sum;
      const inputs = parts[0]?.shape[1] as number;
      const shape = layout === "in-out" ? [inputs, outputs] : [outputs, inputs];
      return [{ name: `${name}.weight`, shape, roles, bias: [`${name}.bias`, [outputs]] }];
    });
    const vectors = weights.flatMap(({ role, shape: [n] }): readonly MixerTensor[] => {
      if (role === "qNorm" || role === "kNorm") {
        const name = attentionNames?.[`${role[0]}_norm`] ?? `${role[0]}_norm`;
        return [{ name: `${name}.weight`, shape: [n], roles: [role] }];
      }
      if (role.startsWith("lambda")) return [{ name: role, shape: [n], roles: [role] }];
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
  read: (file, rules: LatentRules, layer, { maxSeqLen }) => ({
    kind: "latent",
    config: readHfLatents(file, rules, layer, { maxSeqLen }),
  }),

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

const HF_RECURRENT: HfMixer<RecurrentSpec> = {
  read: (file, rules: RecurrentRules, layer) => rules.read(file, layer),
  tensors: (mixer) => recurrentTensors(mixer),
};

const HF_PARALLEL: HfMixer<ParallelSpec> = {
  read(file, rules: ParallelRules, layer, of) {
    const parts = rules.parts.map(({ rules: own, at, scale }) => ({
      ...{ at, scale: scale(file) },
      mixer: HF_MIXERS[own.kind ?? "heads"].read(file, own, layer, of),
    }));
    const { dModel } = (parts[0] as ParallelSpec["parts"][number]).mixer.config;
    return { kind: "parallel", at: "", config: { dModel }, parts };
  },
  tensors: (mixer, _names, _form, tensorsOf) => parallelTensors(mixer, tensorsOf),
};

/** The kinds. */
export const HF_MIXERS: Readonly<Record<keyof MixerSpecs, HfMixer>> = {
  heads: HF_HEADS,
  latent: HF_LATENT,
  recurrent: HF_RECURRENT,
  parallel: HF_PARALLEL,
};

/** What reads the weights of a kind of safetensors files. */
const readersOf = ({ attentionNames, fusedBlocks: blocks, gatedQueries }: TensorForm): MixerReaders => ({
  heads(all, prefix, { config: { dModel, numHeads, numKvHeads, headDim, fused }, more }) {
    const own = gatedQueries ? withoutGates(all, `${prefix}q_proj`, numHeads) : all;
    const given = more?.pairs ? inPairs(own, prefix, numKvHeads as number, dModel) : own;
    const tensors = new Map(renamed(given, prefix, attentionNames));
    // What a layer lacks, others stand for: values are keys, or neither is read.
    const copy = (to: string, from: string) => {
      for (const end of ["weight", "bias"]) {
        const found = tensors.get(`${prefix}${from}.${end}`);
        if (found) tensors.set(`${prefix}${to}.${end}`, found);
      }
    };
    if (more?.keysOf !== undefined) for (const part of ["proj", "norm"]) copy(`k_${part}`, `q_${part}`);
    if (more?.valuesAreKeys || more?.keysOf !== undefined) copy("v_proj", "k_proj");
    const file = { metadata: new Map(), tensors };
    const groups = more?.keysOf === undefined ? numKvHeads : numHeads;
    if (blocks === undefined)
      return readAttentionWeights(file, prefix, { numHeads, numKvHeads: groups, headDim, fused });
    // Queries, values and keys of each block are read as queries, keys and values of a head.
    const as = { numHeads: blocks, numKvHeads: blocks, fused: "grouped" } as const;
    const { wk, wv, bk, bv, ...rest } = readAttentionWeights(file, prefix, as);
    return { ...rest, wk: wv, wv: wk, bk: bv, bv: bk } as AttentionWeights;
  },
  latent: (tensors, prefix) => readLatentWeights({ metadata: new Map(), tensors }, prefix),
});

/** Tensors by the names that readers of layers know. */
function renamed(
  tensors: ReadonlyMap<string, StoredTensor>,
  prefix: string,
  names: TensorForm["attentionNames"] = {},
): ReadonlyMap<string, StoredTensor> {
  const known = new Map(Object.entries(names).map(([name, own]) => [prefix + own, prefix + name]));
  const nameOf = (name: string) => name.replace(/^(.*)(\.\w+)$/s, (_, own, rest) => (known.get(own) ?? own) + rest);
  return new Map([...tensors].map(([name, tensor]) => [nameOf(name), tensor]));
}

/**
 * Tensors whose heads of values are pairs of those of the file, a head and that as far in the second half, each pair twice; and whose
 * outputs have columns of zeros for the second half of the heads.
 */
function inPairs(
  all: ReadonlyMap<string, StoredTensor>,
  prefix: string,
  groups: number,
  dModel: number,
): Map<string, StoredTensor> {
  const tensors = new Map(all);
  /** Makes a tensor of two pieces for each of `count`. */
  const spread = (name: string, dim: number, count: number, from: (i: number) => number) => {
    const tensor = all.get(prefix + name);
    if (!tensor) return;
    const size = tensor.bytes.length / count;
    const bytes = new Uint8Array(2 * count * size);
    for (let i = 0; i < 2 * count; i++)
      bytes.set(tensor.bytes.subarray(from(i) * size, (from(i) + 1) * size), i * size);
    tensors.set(prefix + name, { ...tensor, bytes, shape: tensor.shape.map((n, i) => (i === dim ? 2 * n : n)) });
  };
  const half = groups / 2;
  for (const end of ["weight", "bias"])
    spread(`v_proj.${end}`, 0, groups, (i) => (Math.floor(i / 2) % half) + (i % 2) * half);
  // Beyond the last piece there is nothing.
  spread("o_proj.weight", 1, dModel, (i) => (i % 2 === 0 ? i / 2 : Infinity));
  return tensors;
}

/** The mixers of safetensors files of a family. */
export const hfMixers = (names: Names, form: TensorForm): MixerFiles => ({
  tensors: function tensorsOf(mixer): readonly MixerTensor[] {
    return HF_MIXERS[mixer.kind].tensors(mixer, names, form, tensorsOf);
  },
  ignored: (mixer) =>
    "more" in mixer && mixer.more?.keysOf !== undefined ? ["k_proj", "v_proj", "k_norm", "v_norm"] : [],
  readers: readersOf(form),
});
