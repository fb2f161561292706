// Encoders as one page of float64, by the names of their tensors. It shares no code with the package.

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
import { TINY_ENCODERS, type TinyEncoder } from "./tiny-encoders.ts";

/** The last hidden states of a sequence, and the logits of the head for masked tokens where the file has one. */
export function runOracle(
  name: TinyEncoder,
  tensors: Tensors,
  ids: readonly number[],
  types: readonly number[] = ids.map(() => 0),
): { readonly states: Rows; readonly logits: Rows | undefined } {
  const config: Readonly<Record<string, unknown>> = TINY_ENCODERS[name];
  const number = (...fields: string[]) =>
    Number(fields.map((field) => config[field]).find((value) => value !== undefined));
  const row = (tensor: string, index: number): Vector => rowOf(tensors, tensor, index);
  const linear = (x: Vector, tensor: string): Vector => linearOf(tensors, x, tensor);
  const norm = (x: Vector, tensor: string): Vector => normOf(tensors, x, tensor, name === "modernbert" ? 1e-5 : 1e-12);
  const root =
    (
      { bert: "bert.", roberta: "roberta.", distilbert: "distilbert.", albert: "albert.", mpnet: "mpnet." } as Partial<
        Record<TinyEncoder, string>
      >
    )[name] ?? (name === "modernbert" ? "model." : "bert.");
  const heads = number("num_attention_heads", "n_heads");
  const layers = number("num_hidden_layers", "n_layers");

  // Embeddings.
  const offset = name === "roberta" || name === "mpnet" ? 2 : 0;
  const embeddings = `${root}embeddings.`;
  let rows: Rows = ids.map((id, i) => {
    const word = row(`${embeddings}${name === "modernbert" ? "tok_embeddings" : "word_embeddings"}`, id);
    const places = [`${embeddings}position_embeddings`, `${embeddings}token_type_embeddings`];
    const added = places.map((table, which) =>
      tensors.has(`${table}.weight`) ? row(table, which === 0 ? i + offset : (types[i] as number)) : undefined,
    );
    const x = added.reduce<Vector>((to, other) => (other ? add(to, other) : to), word);
    const own =
      { modernbert: `${embeddings}norm`, nomic_bert: `${root}emb_ln` }[name as string] ?? `${embeddings}LayerNorm`;
    return norm(x, own);
  });
  if (name === "albert") rows = rows.map((x) => linear(x, `${root}encoder.embedding_hidden_mapping_in`));

  for (let layer = 0; layer < layers; layer++) {
    const { q, k, v, o, norms, mlp } = partsOf(name, root, layer, layers, number("num_hidden_groups"));
    const isLocal = name === "modernbert" && layer % 3 !== 0;
    const theta = name === "nomic_bert" ? 1000 : name === "modernbert" ? (isLocal ? 10_000 : 160_000) : undefined;
    const isPre = name === "modernbert";
    const read = isPre && tensors.has(`${norms[0]}.weight`) ? rows.map((x) => norm(x, norms[0])) : rows;
    const project = (part: string, which: number) =>
      read.map((x) => {
        const all = linear(x, part);
        return q === k ? all.slice((which * all.length) / 3, ((which + 1) * all.length) / 3) : all;
      });
    const [queries, keys, values] = [project(q, 0), project(k, 1), project(v, 2)];
    const bias = `${root}encoder.relative_attention_bias`;
    const heard = attendTo(queries, keys, values, heads, (h, t, j, query, key) => {
      if (isLocal && Math.abs(t - j) > number("local_attention") / 2) return Number.NEGATIVE_INFINITY;
      const turned = (x: Vector, position: number) => (theta ? rotate(x, position, theta) : x);
      const score = dot(turned(query, t), turned(key, j)) / Math.sqrt(query.length);
      if (name !== "mpnet") return score;
      return score + (row(bias, bucketAt(j - t, number("relative_attention_num_buckets"), 128, true))[h] as number);
    });
    const outputs = heard.map((x) => linear(x, o));
    rows = rows.map((x, t) => add(x, outputs[t] as Vector));
    if (!isPre) rows = rows.map((x) => norm(x, norms[0]));
    const inner = isPre ? rows.map((x) => norm(x, norms[1])) : rows;
    rows = rows.map((x, t) => add(x, feedForward(inner[t] as Vector, mlp)));
    if (!isPre) rows = rows.map((x) => norm(x, norms[1]));
  }
  if (name === "modernbert") rows = rows.map((x) => norm(x, `${root}final_norm`));

  function feedForward(x: Vector, [first, second, last]: readonly [string, string, string]): Vector {
    if (name === "nomic_bert") {
      const gate = linear(x, second);
      return linear(
        linear(x, first).map((each, i) => (each * (gate[i] as number)) / (1 + Math.exp(-(gate[i] as number)))),
        last,
      );
    }
    const all = linear(x, first);
    if (name !== "modernbert")
      return linear(
        all.map((each) => activate(name, each)),
        last,
      );
    const half = all.length / 2;
    return linear(
      all.slice(0, half).map((each, i) => gelu(each) * (all[half + i] as number)),
      last,
    );
  }

  const head = {
    bert: ["cls.predictions.transform.dense", "cls.predictions.transform.LayerNorm", "cls.predictions.bias"],
    roberta: ["lm_head.dense", "lm_head.layer_norm", "lm_head.bias"],
    mpnet: ["lm_head.dense", "lm_head.layer_norm", "lm_head.bias"],
    distilbert: ["vocab_transform", "vocab_layer_norm", "vocab_projector.bias"],
    albert: ["predictions.dense", "predictions.LayerNorm", "predictions.bias"],
    modernbert: ["head.dense", "head.norm", "decoder.bias"],
  }[name as string] as readonly [string, string, string] | undefined;
  if (!head) return { states: rows, logits: undefined };
  const [dense, last, bias] = head;
  const words = `${embeddings}${name === "modernbert" ? "tok_embeddings" : "word_embeddings"}`;
  const biases = vectorOf(tensors, bias);
  const logits = rows.map((x) => {
    const own = norm(
      linear(x, dense).map((each) => activate(name, each)),
      last,
    );
    return Array.from({ length: number("vocab_size") }, (_, id) => dot(own, row(words, id)) + (biases?.[id] ?? 0));
  });
  return { states: rows, logits };
}

interface Parts {
  readonly q: string;
  readonly k: string;
  readonly v: string;
  readonly o: string;
  readonly norms: readonly [string, string];
  readonly mlp: readonly [string, string, string];
}

/** The tensors of a layer. A joint projection stands for q, k and v. */
function partsOf(name: TinyEncoder, root: string, layer: number, layers: number, groups: number): Parts {
  const parts = (
    at: string,
    [q, k, v, o]: readonly string[],
    norms: readonly string[],
    mlp: readonly string[],
  ): Parts => ({
    ...{ q: `${at}${q}`, k: `${at}${k}`, v: `${at}${v}`, o: `${at}${o}` },
    norms: [`${at}${norms[0]}`, `${at}${norms[1]}`],
    mlp: [`${at}${mlp[0]}`, `${at}${mlp[1]}`, `${at}${mlp[2]}`],
  });
  const bertMlp = ["intermediate.dense", "", "output.dense"];
  const self = ["query", "key", "value"].map((each) => `attention.self.${each}`);
  switch (name) {
    case "bert":
    case "roberta":
      return parts(
        `${root}encoder.layer.${layer}.`,
        [...self, "attention.output.dense"],
        ["attention.output.LayerNorm", "output.LayerNorm"],
        bertMlp,
      );
    case "mpnet":
      return parts(
        `${root}encoder.layer.${layer}.`,
        ["q", "k", "v", "o"].map((each) => `attention.attn.${each}`),
        ["attention.LayerNorm", "output.LayerNorm"],
        bertMlp,
      );
    case "distilbert":
      return parts(
        `${root}transformer.layer.${layer}.`,
        ["q", "k", "v", "out"].map((each) => `attention.${each}_lin`),
        ["sa_layer_norm", "output_layer_norm"],
        ["ffn.lin1", "", "ffn.lin2"],
      );
    case "albert":
      return parts(
        `${root}encoder.albert_layer_groups.${Math.floor(layer / (layers / groups))}.albert_layers.0.`,
        ["query", "key", "value", "dense"].map((each) => `attention.${each}`),
        ["attention.LayerNorm", "full_layer_layer_norm"],
        ["ffn", "", "ffn_output"],
      );
    case "modernbert":
      return parts(
        `${root}layers.${layer}.`,
        ["attn.Wqkv", "attn.Wqkv", "attn.Wqkv", "attn.Wo"],
        ["attn_norm", "mlp_norm"],
        ["mlp.Wi", "", "mlp.Wo"],
      );
    case "nomic_bert":
      return parts(
        `${root}encoder.layers.${layer}.`,
        ["attn.Wqkv", "attn.Wqkv", "attn.Wqkv", "attn.out_proj"],
        ["norm1", "norm2"],
        ["mlp.fc11", "mlp.fc12", "mlp.fc2"],
      );
  }
}

function rotate(x: Vector, position: number, theta: number): Vector {
  const half = x.length / 2;
  return x.map((each, i) => {
    const angle = position / theta ** ((i % half) / half);
    const other = i < half ? -(x[i + half] as number) : (x[i - half] as number);
    return each * Math.cos(angle) + other * Math.sin(angle);
  });
}

const activate = (name: TinyEncoder, x: number) => (name === "albert" ? geluTanh(x) : gelu(x));
