// Models with two halves as one page of float64, by the names of their tensors. It shares no code with the package.

import type { Tensor } from "../../src/base/tensor/tensor.ts";
import {
  add,
  attendTo,
  bucketAt,
  dot,
  gelu,
  geluTanh,
  linearOf,
  normOf,
  type Rows,
  rowOf,
  type Tensors,
  type Vector,
  vectorOf,
} from "./oracle-math.ts";
import { TINY_SEQ2SEQ, type TinySeq2Seq } from "./tiny-seq2seq.ts";

/** The states of the encoder for a source, and the logits of all tokens of the decoder. */
export function runSeq2SeqOracle(
  name: TinySeq2Seq,
  tensors: Tensors,
  source: readonly number[] | Tensor,
  ids: readonly number[],
): { readonly states: Rows; readonly logits: Rows } {
  const config: Readonly<Record<string, unknown>> = TINY_SEQ2SEQ[name];
  const isT5 = config.model_type === "t5";
  const isWhisper = name === "whisper";
  const number = (field: string) => Number(config[field]);
  const width = number("d_model");
  const norm = (x: Vector, own: string) => normOf(tensors, x, own, isT5 ? 1e-6 : 1e-5, !isT5);
  const root = isT5 ? "" : "model.";
  const table = `${root}${isWhisper ? "decoder.embed_tokens" : "shared"}`;

  const embed = (side: "encoder" | "decoder", tokens: readonly number[]): Rows =>
    tokens.map((id, i) => {
      const word = rowOf(tensors, table, id).map((x) => (name === "bart" ? x * Math.sqrt(width) : x));
      if (isT5) return word;
      const x = add(word, rowOf(tensors, `${root}${side}.embed_positions`, i + (isWhisper ? 0 : 2)));
      return isWhisper ? x : norm(x, `${root}${side}.layernorm_embedding`);
    });

  const attend = (at: string, x: Rows, from: Rows, heads: number, side: "encoder" | "decoder" | "cross"): Rows => {
    const [q, k, v, o] = isT5 ? ["q", "k", "v", "o"] : ["q_proj", "k_proj", "v_proj", "out_proj"];
    const through = (rows: Rows, part = "") => rows.map((row) => linearOf(tensors, row, `${at}.${part}`));
    const first = `${side}.block.0.layer.0.SelfAttention.relative_attention_bias`;
    const [buckets, furthest] = [
      number("relative_attention_num_buckets") || 32,
      number("relative_attention_max_distance") || 128,
    ];
    const queries = through(x, q);
    const heard = attendTo(queries, through(from, k), through(from, v), heads, (h, t, j, query, key) => {
      if (side === "decoder" && j > t) return Number.NEGATIVE_INFINITY;
      if (!isT5) return dot(query, key) / Math.sqrt(query.length);
      const bias =
        side === "cross" ? 0 : rowOf(tensors, first, bucketAt(j - t, buckets, furthest, side === "encoder"))[h];
      return dot(query, key) + (bias as number);
    });
    return through(heard, o);
  };

  const feedForward = (at: string, x: Vector): Vector => {
    if (!isT5) return linearOf(tensors, linearOf(tensors, x, `${at}fc1`).map(gelu), `${at}fc2`);
    if (name === "t5")
      return linearOf(
        tensors,
        linearOf(tensors, x, `${at}.wi`).map((y) => Math.max(0, y)),
        `${at}.wo`,
      );
    const other = linearOf(tensors, x, `${at}.wi_1`);
    return linearOf(
      tensors,
      linearOf(tensors, x, `${at}.wi_0`).map((y, i) => geluTanh(y) * (other[i] as number)),
      `${at}.wo`,
    );
  };

  /** A branch with its norm: before it in T5 and Whisper, behind it in BART. */
  const branch = (x: Rows, own: string, run: (rows: Rows) => Rows): Rows => {
    const isPre = name !== "bart";
    const outputs = run(isPre ? x.map((row) => norm(row, own)) : x);
    const added = x.map((row, t) => add(row, outputs[t] as Vector));
    return isPre ? added : added.map((row) => norm(row, own));
  };

  const runLayers = (side: "encoder" | "decoder", rows: Rows, states?: Rows): Rows => {
    const count = isT5
      ? number(side === "decoder" && config.num_decoder_layers ? "num_decoder_layers" : "num_layers")
      : number(`${side}_layers`);
    const heads = isT5 ? number("num_heads") : number(`${side}_attention_heads`);
    let x = rows;
    for (let i = 0; i < count; i++) {
      const at = isT5 ? `${side}.block.${i}.` : `${root}${side}.layers.${i}.`;
      const own = isT5 ? "layer.0.SelfAttention" : "self_attn";
      x = branch(x, `${at}${isT5 ? "layer.0.layer_norm" : "self_attn_layer_norm"}`, (y) =>
        attend(`${at}${own}`, y, y, heads, side),
      );
      if (states) {
        const cross = isT5 ? "layer.1.EncDecAttention" : "encoder_attn";
        const after = isT5 ? "layer.1.layer_norm" : "encoder_attn_layer_norm";
        x = branch(x, `${at}${after}`, (y) => attend(`${at}${cross}`, y, states, heads, "cross"));
      }
      const last = states ? 2 : 1;
      const mlp = isT5 ? `${at}layer.${last}.DenseReluDense` : at;
      x = branch(x, `${at}${isT5 ? `layer.${last}.layer_norm` : "final_layer_norm"}`, (y) =>
        y.map((row) => feedForward(mlp, row)),
      );
    }
    if (name === "bart") return x;
    return x.map((row) => norm(row, isT5 ? `${side}.final_layer_norm` : `${root}${side}.layer_norm`));
  };

  const first = isWhisper ? hear(tensors, source as Tensor) : embed("encoder", source as readonly number[]);
  const states = runLayers("encoder", first);
  const outputs = runLayers("decoder", embed("decoder", ids), states);
  const scale = name === "t5" ? 1 / Math.sqrt(width) : 1;
  const bias =
    vectorOf(tensors, "final_logits_bias") ?? vectorOf(tensors, isWhisper ? "proj_out.bias" : "lm_head.bias");
  const head = name === "t5_gated" ? "lm_head" : table;
  const logits = outputs.map((row) =>
    Array.from(
      { length: number("vocab_size") },
      (_, id) => (dot(row, rowOf(tensors, head, id)) + (bias?.[id] ?? 0)) * scale,
    ),
  );
  return { states, logits };
}

/** Two convolutions with GELU, by their definition, and positions. */
function hear(tensors: Tensors, { data, shape }: Tensor): Rows {
  const [bands = 0, frames = 0] = shape;
  const first = Array.from({ length: frames }, (_, t) =>
    Array.from({ length: bands }, (_, c) => data[c * frames + t] as number),
  );
  const convolve = (rows: Rows, own: string, step: number): Rows =>
    Array.from({ length: Math.ceil(rows.length / step) }, (_, t) => {
      const width = (rows[0] as Vector).length;
      // Weights are [outputs, channels, 3].
      const near = Array.from({ length: 3 * width }, (_, i) => rows[t * step + (i % 3) - 1]?.[Math.floor(i / 3)] ?? 0);
      return linearOf(tensors, near, own).map(gelu);
    });
  const rows = convolve(convolve(first, "model.encoder.conv1", 1), "model.encoder.conv2", 2);
  return rows.map((row, t) => add(row, rowOf(tensors, "model.encoder.embed_positions", t)));
}
