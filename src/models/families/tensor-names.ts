import type { MatrixLayout } from "../../base/tensor/matrix.ts";
import { describe, HeadwiseError } from "../../base/util/errors.ts";

/** The parts of an attention layer that a file can hold. */
export type TensorPart = "q" | "k" | "v" | "qkv" | "o";
export type Extra = "qNorm" | "kNorm" | "sinkLogits" | "biasK" | "biasV";

/** How a family of models names and stores the tensors of an attention layer, below the layer's prefix. */
export interface AttentionNames {
  /** Its name in errors. */
  readonly title: string;
  readonly weights: Readonly<Partial<Record<TensorPart, string>>>;
  readonly biases?: Readonly<Partial<Record<TensorPart, string>>>;
  /** Groups of biases that are all present or all absent: a single missing one means a damaged file. */
  readonly together?: readonly (readonly TensorPart[])[];
  /** A bias of the first is not without one of the second, which may be alone. */
  readonly needs?: readonly [TensorPart, TensorPart];
  readonly extras?: Readonly<Partial<Record<Extra, string>>>;
  readonly layout: MatrixLayout;
  /**
   * What is known of the rows of q, k and v: "equal" = the same number each; "qkv" = fused in that order, with fewer
   * rows of k and v if heads share them; "either" = fused in that order or in groups of [q.., k, v], which only the
   * configuration determines. Undefined = separate matrices.
   */
  readonly rows?: "equal" | "qkv" | "either";
  /** Whether keys and values may be projected from rows of another width. */
  readonly ownKdim?: boolean;
  /** How the rows of q and k are paired by RoPE, where it is not as in `fromHfConfig`. */
  readonly pairing?: "interleaved";
}

const BIAS = /weight$/;

/** A family of nn.Linear layers: X.weight [out, in] and, if it exists, X.bias [out]. */
function linear(title: string, weights: AttentionNames["weights"], rest: Partial<AttentionNames> = {}): AttentionNames {
  const biases: Partial<Record<TensorPart, string>> = {};
  for (const part of ["q", "k", "v", "qkv", "o"] as const) {
    const name = weights[part];
    if (name !== undefined) biases[part] = name.replace(BIAS, "bias");
  }
  return { title, weights, biases, layout: "out-in", ...rest };
}

const SEPARATE: readonly TensorPart[] = ["q", "k", "v"];
const ALL: readonly TensorPart[] = ["q", "k", "v", "o"];
const FUSED: readonly TensorPart[] = ["qkv", "o"];

/** Four linear layers of a module that has the same biases in all of them, or none. */
const four = (q: string, k: string, v: string, o: string): AttentionNames =>
  linear(
    `${q}, ${k}, ${v}, ${o} as linear layers`,
    { q: `${q}.weight`, k: `${k}.weight`, v: `${v}.weight`, o: `${o}.weight` },
    { together: [SEPARATE] },
  );

/** The supported families. Bundlers drop the table from programs that read no layer. */
export const FAMILIES: readonly AttentionNames[] = /* @__PURE__ */ (() => [
  {
    title: "PyTorch nn.MultiheadAttention",
    weights: { qkv: "in_proj_weight", o: "out_proj.weight" },
    biases: { qkv: "in_proj_bias", o: "out_proj.bias" },
    together: [FUSED],
    extras: { biasK: "bias_k", biasV: "bias_v" },
    layout: "out-in",
    rows: "equal",
  },
  {
    title: "PyTorch nn.MultiheadAttention with kdim or vdim",
    weights: { q: "q_proj_weight", k: "k_proj_weight", v: "v_proj_weight", o: "out_proj.weight" },
    // One bias for all three, although the weights are separate.
    biases: { qkv: "in_proj_bias", o: "out_proj.bias" },
    together: [FUSED],
    extras: { biasK: "bias_k", biasV: "bias_v" },
    layout: "out-in",
    rows: "equal",
    ownKdim: true,
  },
  linear(
    "Llama, Mistral, Qwen, Gemma, OLMo, gpt-oss",
    { q: "q_proj.weight", k: "k_proj.weight", v: "v_proj.weight", o: "o_proj.weight" },
    { together: [SEPARATE], extras: { qNorm: "q_norm.weight", kNorm: "k_norm.weight", sinkLogits: "sinks" } },
  ),
  linear(
    // Keys have no bias in Whisper, but have one in CLIP; in GPT-Neo the output alone has one.
    "Whisper, BART, CLIP, OPT, GPT-J, GPT-Neo, LFM2",
    { q: "q_proj.weight", k: "k_proj.weight", v: "v_proj.weight", o: "out_proj.weight" },
    {
      together: [["q", "v"]],
      needs: ["q", "o"],
      extras: { qNorm: "q_layernorm.weight", kNorm: "k_layernorm.weight" },
    },
  ),
  linear("Phi", { q: "q_proj.weight", k: "k_proj.weight", v: "v_proj.weight", o: "dense.weight" }, { together: [ALL] }),
  linear("Phi-3", { qkv: "qkv_proj.weight", o: "o_proj.weight" }, { together: [FUSED], rows: "qkv" }),
  linear("GPT-2", { qkv: "c_attn.weight", o: "c_proj.weight" }, { together: [FUSED], layout: "in-out", rows: "equal" }),
  linear(
    "BERT, RoBERTa",
    { q: "self.query.weight", k: "self.key.weight", v: "self.value.weight", o: "output.dense.weight" },
    { together: [ALL] },
  ),
  linear(
    "ViT",
    { q: "attention.query.weight", k: "attention.key.weight", v: "attention.value.weight", o: "output.dense.weight" },
    { together: [SEPARATE] },
  ),
  linear(
    "DistilBERT",
    { q: "q_lin.weight", k: "k_lin.weight", v: "v_lin.weight", o: "out_lin.weight" },
    { together: [ALL] },
  ),
  linear("ALBERT", { q: "query.weight", k: "key.weight", v: "value.weight", o: "dense.weight" }, { together: [ALL] }),
  linear("MPT, DBRX, Nomic BERT", { qkv: "Wqkv.weight", o: "out_proj.weight" }, { together: [FUSED], rows: "qkv" }),
  linear("ModernBERT", { qkv: "Wqkv.weight", o: "Wo.weight" }, { together: [FUSED], rows: "equal" }),
  linear("InternLM2", { qkv: "wqkv.weight", o: "wo.weight" }, { rows: "either" }),
  linear(
    "Falcon, GPT-NeoX, BLOOM",
    { qkv: "query_key_value.weight", o: "dense.weight" },
    { together: [FUSED], rows: "either" },
  ),
  linear("T5", { q: "q.weight", k: "k.weight", v: "v.weight", o: "o.weight" }, { together: [SEPARATE] }),
  linear(
    "the original files of Llama and Mistral",
    { q: "wq.weight", k: "wk.weight", v: "wv.weight", o: "wo.weight" },
    { together: [SEPARATE], pairing: "interleaved" },
  ),
  linear(
    "diffusers",
    { q: "to_q.weight", k: "to_k.weight", v: "to_v.weight", o: "to_out.0.weight" },
    { together: [SEPARATE] },
  ),
  linear("vit-pytorch", { qkv: "to_qkv.weight", o: "to_out.0.weight" }, { rows: "equal" }),
  linear(
    "W_q, W_k, W_v, W_o as linear layers",
    { q: "W_q.weight", k: "W_k.weight", v: "W_v.weight", o: "W_o.weight" },
    { together: [ALL] },
  ),
  four("Wq", "Wk", "Wv", "Wo"),
  four("w_q", "w_k", "w_v", "w_o"),
  four("fc_q", "fc_k", "fc_v", "fc_o"),
  four("q_linear", "k_linear", "v_linear", "out_linear"),
  four("q_linear", "k_linear", "v_linear", "out"),
  four("linear_q", "linear_k", "linear_v", "linear_out"),
  four("linears.0", "linears.1", "linears.2", "linears.3"),
  four("W_query", "W_key", "W_value", "out_proj"),
  four("query_proj", "key_proj", "value_proj", "out_proj"),
  four("query", "key", "value", "proj"),
  linear("qkv and W_o", { qkv: "qkv.weight", o: "W_o.weight" }, { together: [FUSED], rows: "qkv" }),
  linear("qkv and proj", { qkv: "qkv.weight", o: "proj.weight" }, { rows: "qkv" }),
  { title: "W_q, W_k, W_v, W_o of x·W", weights: { q: "W_q", k: "W_k", v: "W_v", o: "W_o" }, layout: "in-out" },
  { title: "W_Q, W_K, W_V, W_O of x·W", weights: { q: "W_Q", k: "W_K", v: "W_V", o: "W_O" }, layout: "in-out" },
  { title: "Wq, Wk, Wv, Wo of x·W", weights: { q: "Wq", k: "Wk", v: "Wv", o: "Wo" }, layout: "in-out" },
])();

/**
 * What changes the result of a layer and is not read: norms of q and k with names that a family does not have (LayerNorm, or RMS
 * norm in a family without it), biases of single parts beside a fused matrix, relative positions, scales, and further projections.
 */
const UNREAD = new RegExp(
  [
    "(q|k|query|key)_?(layer)?norm\\. [qk]_ln\\. norm_(added_)?[qk]\\. norm_cross\\. (group|spatial)_norm\\. [qv]_bias$ pos_bias_[uv]$ linear_pos\\. rel_pos_[hw]$",
    "relative_position_bias_table$ logit_scale$ temperature$ add_[qkv]_proj\\. to_add_out\\. to_[kv]_ip\\. to_out\\.[1-9]",
  ]
    .join(" ")
    .split(" ")
    .map((each) => `^${each}`)
    .join("|"),
);

/** A family and the prefix of its names. */
interface Found {
  readonly family: AttentionNames;
  /** The prefix, including its last dot. */
  readonly root: string;
}

/**
 * Finds the family of the layer whose names begin with `prefix`. If there is none, throws with what was found instead.
 */
export function findFamily(where: string, names: readonly string[], prefix: string): Found {
  const fail = (text: string): never => {
    throw new HeadwiseError("BAD_FILE", `${where}: ${text}`);
  };
  const undotted = prefix !== "" && !prefix.endsWith(".") && names.some((name) => name.startsWith(`${prefix}.`));
  const root = undotted ? `${prefix}.` : prefix;
  const below = new Set(names.filter((name) => name.startsWith(root)).map((name) => name.slice(root.length)));
  if (below.size === 0) return fail(`prefix ${describe(root)} expected to begin a tensor's name, got ${layers(names)}`);

  const lacking = ({ weights }: AttentionNames) => Object.values(weights).filter((name) => !below.has(name));
  const [family, other] = FAMILIES.filter((each) => lacking(each).length === 0);
  if (family !== undefined && other !== undefined) {
    const own = ({ weights: mine }: AttentionNames, { weights: its }: AttentionNames) =>
      Object.values(mine).filter((name) => !Object.values(its).includes(name));
    const [first, second] = [own(family, other), own(other, family)];
    return fail(
      `names below prefix ${describe(root)} expected those of one family, got ${list(first)} of ${family.title} and ` +
        `${list(second)} of ${other.title}: leave out what the layer does not use`,
    );
  }
  if (family === undefined) {
    // Not by the output matrix, whose name several families share.
    const inputs = ({ weights: { q, k, v, qkv } }: AttentionNames) =>
      [q, k, v, qkv].filter((name) => name !== undefined);
    const partial = FAMILIES.filter((each) => inputs(each).some((name) => below.has(name)));
    const [closest] = partial.sort((a, b) => lacking(a).length - lacking(b).length);
    if (closest === undefined)
      return fail(`names below prefix ${describe(root)} expected one of the known families, got ${list([...below])}`);
    return fail(`tensor ${describe(root + lacking(closest)[0])} expected, as in ${closest.title}, got none`);
  }

  const read = [family.weights, family.biases, family.extras].flatMap((group) => Object.values(group ?? {}));
  const modules = read.filter((name) => name.endsWith(".weight")).map((name) => name.slice(0, -"weight".length));
  // Its attention normalises what it reads.
  if (read.includes("to_qkv.weight")) modules.push("norm.");
  for (const name of below)
    if (!read.includes(name) && (UNREAD.test(name) || modules.some((module) => name.startsWith(module))))
      fail(`tensor ${describe(root + name)} expected to be absent: ${family.title} would be read without it, got it`);
  return { family, root };
}

/** The prefixes of a file at which a family's output matrix exists, as text; some of its names if there are none. */
function layers(names: readonly string[]): string {
  const outputs = new Set(FAMILIES.map(({ weights }) => `.${weights.o}`));
  const prefixes = new Set<string>();
  for (const name of names)
    for (const output of outputs) if (name.endsWith(output)) prefixes.add(name.slice(0, 1 - output.length));
  return prefixes.size > 0 ? `layers at ${list([...prefixes])}` : list(names);
}

function list(names: readonly string[]): string {
  if (names.length === 0) return "no tensors";
  const shown = names.slice(0, 6).map(describe).join(", ");
  return names.length > 6 ? `${shown} and ${names.length - 6} more` : shown;
}
