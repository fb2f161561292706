// Mamba-2: scans whose decays and steps come from one projection; alone, and for hybrids that have such layers between others.

import type { RecurrentConfig, ScanConfig } from "../../layers/recurrent/config.ts";
import { scanSizes } from "../../layers/recurrent/config.ts";
import type { AttentionRules, RecurrentRules } from "./attention-rules.ts";
import type { Facts } from "./facts.ts";
import type { Family } from "./family.ts";
import type { RecurrentSpec, RecurrentTensor } from "./recurrent.ts";
import { expectSilu, ownTensors, partsInOrder } from "./recurrent.ts";

/** The fields that hold what a layer is made of. */
interface MambaFields {
  readonly heads: string;
  readonly headDim: string;
  readonly state: string;
  readonly groups: string;
  readonly taps: string;
  readonly convBias: string;
  readonly bias: string;
  readonly eps: string;
  /** The activation behind the convolution. */
  readonly activation: string;
  /** Whether outputs are normalised, and whether the gate comes behind that. Default true and false. */
  readonly norm?: string;
  readonly normFirst?: string;
}

/** What fields of Granite, Bamba and Falcon-H1 are called. */
export const HYBRID_FIELDS: MambaFields = {
  heads: "mamba_n_heads",
  headDim: "mamba_d_head",
  state: "mamba_d_state",
  groups: "mamba_n_groups",
  taps: "mamba_d_conv",
  convBias: "mamba_conv_bias",
  bias: "mamba_proj_bias",
  eps: "rms_norm_eps",
  activation: "hidden_act",
};

/** What absent fields stand for. */
interface MambaDefaults {
  readonly heads: number;
  readonly headDim: number;
  readonly state: number;
  readonly groups: number;
}

/** What the projected gates, values, keys, queries and steps are multiplied by. */
export type MambaFactors = readonly [gate: number, values: number, keys: number, queries: number, steps: number];

/** What all scans of Mamba-2 have in common. */
const MAMBA: Omit<ScanConfig, "numHeads" | "numKeyHeads" | "keyDim" | "valueDim" | "norm"> = {
  turns: false,
  order: "vkq",
  delta: false,
  decay: "head",
  steps: [0, Infinity],
  write: "step",
  unitEps: undefined,
  scale: 1,
  skip: true,
  gate: "silu",
  gateRank: 0,
  stepRank: 0,
  gateScale: 1,
  stepScale: 1,
};

/** Reads a layer whose tensors are below `at`. */
export function readMamba(
  facts: Facts,
  at: string,
  fields: MambaFields,
  absent: MambaDefaults,
  factors: MambaFactors = [1, 1, 1, 1, 1],
): RecurrentSpec {
  const { heads, headDim, state, groups, taps, convBias, bias, eps, activation } = fields;
  const dModel = facts.count("hidden_size");
  expectSilu(facts, activation);
  const numHeads = facts.count(heads, absent.heads);
  const numKeyHeads = facts.count(groups, absent.groups);
  if (numHeads % numKeyHeads !== 0) throw facts.refusal(groups, `a divisor of ${heads}, ${numHeads}`, numKeyHeads);
  // Some files leave the size of heads to that of the model.
  const isAuto = facts.raw(headDim) === "auto";
  const inner = (facts.number("mamba_expand") ?? facts.number("expand") ?? 2) * dModel;
  const valueDim = isAuto ? inner / numHeads : facts.count(headDim, absent.headDim);
  if (!Number.isInteger(valueDim)) throw facts.refusal(heads, `a divisor of ${inner}`, numHeads);
  const isNormed = fields.norm === undefined || facts.flag(fields.norm, false);
  const gateFirst = fields.normFirst === undefined || !facts.flag(fields.normFirst, true);
  const scan: ScanConfig = {
    ...MAMBA,
    ...{ numHeads, numKeyHeads, keyDim: facts.count(state, absent.state), valueDim, steps: readLimit(facts) },
    ...{ gateScale: factors[0], stepScale: factors[4] },
    norm: isNormed ? { eps: facts.number(eps) ?? 1e-5, groups: numKeyHeads, shared: false, gateFirst } : undefined,
  };
  const config: RecurrentConfig = { dModel, taps: facts.count(taps, 4, 16), scan };
  const { channels, values } = scanSizes(scan);
  const rows = values + channels + numHeads;
  const projection: RecurrentTensor = {
    ...{ name: "in_proj.weight", shape: [rows, dModel] },
    parts: partsInOrder([
      ["gate", values],
      ["in", channels],
      ["step", numHeads],
    ]),
    ...(facts.flag(bias, false) && { bias: "in_proj.bias" }),
  };
  const own = ownTensors(
    config,
    {
      ...{ stepBias: "dt_bias", rate: "A_log", skip: "D", out: "out_proj.weight" },
      ...(isNormed && { norm: "norm.weight" }),
    },
    facts.flag(convBias, true) ? "conv1d.bias" : undefined,
  );
  const [, forValues, forKeys, forQueries] = factors;
  const keys = numKeyHeads * scan.keyDim;
  // The convolution takes the factors of what it reads.
  const convolution: RecurrentTensor = {
    ...{ name: "conv1d.weight", shape: [channels, 1, config.taps] },
    parts: [
      { of: "conv", rows: values, to: 0, scale: forValues },
      { of: "conv", rows: keys, to: values, scale: forKeys },
      { of: "conv", rows: keys, to: values + keys, scale: forQueries },
    ],
  };
  return { kind: "recurrent", config, at, tensors: [projection, convolution, ...own] };
}

/** What steps lie within. JSON has no infinity: files write it as a word, or as an object with that word. */
function readLimit(facts: Facts): readonly [low: number, high: number] {
  const given = facts.list("time_step_limit") ?? [0, Infinity];
  const [low, high] = given.map((each) => {
    const word = typeof each === "object" && each !== null ? (each as Record<string, unknown>).__float__ : each;
    return word === "Infinity" || word === "inf" ? Infinity : word;
  });
  if (typeof low === "number" && typeof high === "number" && low >= 0 && low <= high) return [low, high];
  throw facts.refusal("time_step_limit", "two numbers, of which the first is at least 0 and at most the second", given);
}

/** A layer of a GGUF file: its keys are the same in all architectures. Files without a norm have no `ssm_norm`. */
export function readGgufMamba(facts: Facts, isNormed = true): RecurrentSpec {
  const dModel = facts.count("embedding_length");
  const inner = facts.count("ssm.inner_size");
  const [numHeads, groups] = [facts.count("ssm.time_step_rank"), facts.count("ssm.group_count", 1)];
  if (inner % numHeads !== 0) throw facts.refusal("ssm.time_step_rank", `a divisor of ${inner}`, numHeads);
  if (numHeads % groups !== 0) throw facts.refusal("ssm.group_count", `a divisor of the ${numHeads} heads`, groups);
  const eps = facts.number("attention.layer_norm_rms_epsilon") ?? facts.number("attention.layer_norm_epsilon") ?? 1e-5;
  const scan: ScanConfig = {
    ...MAMBA,
    ...{ numHeads, numKeyHeads: groups, keyDim: facts.count("ssm.state_size"), valueDim: inner / numHeads },
    norm: isNormed ? { eps, groups, shared: false, gateFirst: true } : undefined,
  };
  const config: RecurrentConfig = { dModel, taps: facts.count("ssm.conv_kernel", undefined, 16), scan };
  const { channels, values } = scanSizes(scan);
  const projection: RecurrentTensor = {
    ...{ name: "ssm_in.weight", shape: [values + channels + numHeads, dModel] },
    parts: partsInOrder([
      ["gate", values],
      ["in", channels],
      ["step", numHeads],
    ]),
  };
  const column = (of: "rate" | "skip", name: string, form?: "negative"): RecurrentTensor => ({
    ...{ name, shape: [numHeads, 1], parts: [{ of, rows: numHeads, to: 0 }], ...(form && { form }) },
  });
  const norm: RecurrentTensor = {
    ...{ name: "ssm_norm.weight", shape: [groups, values / groups], parts: [{ of: "norm", rows: values, to: 0 }] },
  };
  const own = ownTensors(
    config,
    { conv: "ssm_conv1d.weight", stepBias: "ssm_dt.bias", out: "ssm_out.weight" },
    "ssm_conv1d.bias",
    true,
  );
  const columns = [column("rate", "ssm_a", "negative"), column("skip", "ssm_d")];
  return { kind: "recurrent", config, at: "", tensors: [projection, ...own, ...columns, ...(isNormed ? [norm] : [])] };
}

const attention: AttentionRules = { types: "mamba2", gguf: {} };

const layer: RecurrentRules = {
  kind: "recurrent",
  read: (facts) =>
    readMamba(
      facts,
      "mixer.",
      {
        ...{ heads: "num_heads", headDim: "head_dim", state: "state_size", groups: "n_groups", taps: "conv_kernel" },
        ...{ convBias: "use_conv_bias", bias: "use_bias", eps: "layer_norm_epsilon", activation: "hidden_act" },
      },
      { heads: 128, headDim: 64, state: 128, groups: 8 },
    ),
};

export const decoders = (): Family[] => [
  {
    attention,
    mixer: () => layer,
    gguf: { recurrent: (keys) => readGgufMamba(keys) },
    mlpDim: () => 0,
    norm: { field: "layer_norm_epsilon", eps: 1e-5 },
    names: {
      ...{ roots: ["backbone.", "model."], embed: "embeddings", norms: { attentionPre: "norm" }, finalNorm: "norm_f" },
    },
    ignored: [
      ...["chunk_size", "expand", "rescale_prenorm_residual", "residual_in_fp32"],
      ...["time_step_floor", "time_step_max", "time_step_min", "time_step_rank", "norm_before_gate", "rms_norm"],
    ],
  },
];
