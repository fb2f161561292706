// The models that are compared: shapes of real ones, with random weights.

import { mkdirSync, writeFileSync } from "node:fs";
import { dirname, join } from "node:path";
import { quantizeTensor, type StoredTensor } from "../../../src/base/tensor/dtypes.ts";
import type { Tensor } from "../../../src/base/tensor/tensor.ts";
import { writeSafetensors } from "../../../src/files/safetensors/safetensors.ts";
import { readEncoder } from "../../../src/models/encoder/load.ts";
import { expectedTensors } from "../../../src/models/spec/tensors.ts";
import { createRandom } from "../../../src/tools/diagnostics/random.ts";
import { MODEL_CONFIGS } from "../../lib/random-model.ts";
import type { RandomWeights } from "../decoders/random-weights.ts";
import { elements, type TensorSpec } from "../decoders/shape.ts";
import { tokenizerFiles } from "./vocabulary.ts";

/** Tokens of all vocabularies, BERT's: of larger ones only rows that are looked up would matter. */
const VOCABULARY = 30_522;

const BERT = {
  ...{ model_type: "bert", hidden_size: 384, num_attention_heads: 12, intermediate_size: 1536, hidden_act: "gelu" },
  ...{ vocab_size: VOCABULARY, max_position_embeddings: 512, type_vocab_size: 2, layer_norm_eps: 1e-12 },
};

export interface EncoderShape {
  readonly name: string;
  /** "rank": a classifier of one score behind a pooler, for pairs of texts. */
  readonly task: "embed" | "rank";
  readonly pooling: "mean" | "cls" | "last";
  /** Widths behind the pooling. */
  readonly dense: readonly number[];
  readonly config: Readonly<Record<string, unknown>> & EncoderSizes;
  /** Whether ONNX models have their weights in a file beside them. */
  readonly external: boolean;
}

export interface EncoderSizes {
  readonly model_type: string;
  readonly hidden_size: number;
  readonly num_hidden_layers: number;
  readonly num_attention_heads: number;
  readonly num_key_value_heads?: number;
  readonly head_dim?: number;
}

const shape = (
  name: string,
  config: object,
  pooling: EncoderShape["pooling"],
  own: Partial<EncoderShape> = {},
): EncoderShape => ({
  ...{ name, config: config as EncoderShape["config"], pooling, task: "embed", dense: [], external: false },
  ...own,
});

export const SHAPES: readonly EncoderShape[] = [
  shape("MiniLM-L6", { ...BERT, architectures: ["BertModel"], num_hidden_layers: 6 }, "mean"),
  shape("bge-small", { ...BERT, architectures: ["BertModel"], num_hidden_layers: 12 }, "cls"),
  shape(
    "cross-encoder-L6",
    {
      ...{ ...BERT, architectures: ["BertForSequenceClassification"], num_hidden_layers: 6 },
      ...{ id2label: { 0: "LABEL_0" }, label2id: { LABEL_0: 0 } },
      sentence_transformers: { activation_fn: "torch.nn.modules.linear.Identity" },
    },
    "cls",
    { task: "rank" },
  ),
  shape(
    "EmbeddingGemma-300M",
    {
      ...{ model_type: "gemma3_text", architectures: ["Gemma3TextModel"], hidden_size: 768, intermediate_size: 1152 },
      ...{
        num_hidden_layers: 24,
        num_attention_heads: 3,
        num_key_value_heads: 1,
        head_dim: 256,
        vocab_size: VOCABULARY,
      },
      ...{
        hidden_activation: "gelu_pytorch_tanh",
        rms_norm_eps: 1e-6,
        query_pre_attn_scalar: 256,
        sliding_window: 512,
      },
      ...{ attention_bias: false, use_bidirectional_attention: true, max_position_embeddings: 2048 },
      ...{ rope_theta: 1_000_000, rope_local_base_freq: 10_000, _sliding_window_pattern: 6 },
    },
    "mean",
    { dense: [3072, 768], external: true },
  ),
  shape(
    "Qwen3-Embedding-0.6B",
    { ...MODEL_CONFIGS["Qwen3-0.6B"], architectures: ["Qwen3ForCausalLM"], vocab_size: VOCABULARY },
    "last",
    { external: true },
  ),
];

const LAYER = /(^|\.)layers?\.\d+\./;

/** Multiply-adds of the layers for a text of `n` tokens: products with matrices, scores, and sums of values. */
export function multiplyAdds({ config }: EncoderShape, { tensors }: RandomWeights, n: number): number {
  const matrices = tensors.filter(({ name, shape }) => LAYER.test(name) && shape.length === 2);
  const weights = matrices.reduce((sum, each) => sum + elements(each.shape), 0);
  const { num_hidden_layers: layers, num_attention_heads: heads, hidden_size: dModel } = config;
  const keys = config.model_type === "qwen3" ? (n + 1) / 2 : n;
  return n * (weights + 2 * layers * heads * (config.head_dim ?? dModel / heads) * keys);
}

export const POOLER = { name: "pooler.dense", classifier: "classifier" };
export const denseFolder = (index: number) => `${index + 2}_Dense`;
export const denseName = (index: number) => `${denseFolder(index)}/linear.weight`;

/** The tensors that stand behind the layers. */
function headTensors({ task, dense, config: { hidden_size: dModel } }: EncoderShape): [string, readonly number[]][] {
  if (task === "rank")
    return [
      [`${POOLER.name}.weight`, [dModel, dModel]],
      [`${POOLER.name}.bias`, [dModel]],
      [`${POOLER.classifier}.weight`, [1, dModel]],
      [`${POOLER.classifier}.bias`, [1]],
    ];
  return dense.map((width, i) => [denseName(i), [width, dense[i - 1] ?? dModel]]);
}

/** Random values that all tensors repeat: a prime number, so that no two rows are the same. */
const RANDOM_VALUES = 1_048_583;

/** Values about as large as trained weights. */
export function randomWeights(shape: EncoderShape): RandomWeights {
  const decoder = readEncoder("bench", shape.config);
  const { transform: _, ...head } = decoder.spec.head;
  const { required, optional } = expectedTensors({ ...decoder, spec: { ...decoder.spec, head } }, "");
  // Of optional tensors, those that BERT has: biases.
  const all = [...required, ...(shape.config.model_type === "bert" ? optional : []), ...headTensors(shape)];
  const tensors = all
    .filter(([name]) => !/^(cls|lm_head)\./.test(name))
    .map(([name, size]): TensorSpec => ({ name, shape: size }));
  const random = createRandom(7).floats(RANDOM_VALUES);
  const starts = new Map<string, number>();
  let start = 0;
  for (const { name, shape: size } of tensors) {
    starts.set(name, start);
    start += elements(size);
  }
  // Gemma's gains are stored less 1.
  const gain = shape.config.model_type === "gemma3_text" ? 0 : 1;
  return {
    tensors,
    read({ name, shape: size }, begin = 0, end = elements(size)) {
      const scale = size.length > 1 ? 1.7 / Math.sqrt(size.at(-1) as number) : 0.1;
      const base = size.length === 1 && name.endsWith("weight") ? gain : 0;
      const values = new Float32Array(end - begin);
      for (let i = 0, at = (starts.get(name)! + begin) % RANDOM_VALUES; i < values.length; i++) {
        values[i] = base + scale * random[at]!;
        if (++at === RANDOM_VALUES) at = 0;
      }
      return values;
    },
  };
}

/** Writes the files of sentence-transformers: the tensors in float32, or matrices of layers and the table of words in Q8_0. */
export function writeFolder(folder: string, shape: EncoderShape, weights: RandomWeights, format: "f32" | "q8"): void {
  const write = (name: string, content: object | Uint8Array | string) => {
    const path = join(folder, name);
    mkdirSync(dirname(path), { recursive: true });
    const isRaw = typeof content === "string" || content instanceof Uint8Array;
    writeFileSync(path, isRaw ? content : JSON.stringify(content));
  };
  write("config.json", shape.config);
  for (const [name, text] of Object.entries(tokenizerFiles(VOCABULARY))) write(name, text);
  const tensorOf = (spec: TensorSpec): Tensor => ({ data: weights.read(spec), shape: spec.shape });
  const model = new Map<string, Tensor | StoredTensor>();
  for (const spec of weights.tensors) {
    const { name, shape: size } = spec;
    const isPacked = size.length === 2 && (LAYER.test(name) || /(word_embeddings|embed_tokens)\.weight$/.test(name));
    if (name.includes("/"))
      write(join(dirname(name), "model.safetensors"), writeSafetensors({ "linear.weight": tensorOf(spec) }));
    else model.set(name, isPacked && format === "q8" ? quantizeTensor(tensorOf(spec), "Q8_0") : tensorOf(spec));
  }
  write("model.safetensors", writeSafetensors(model));
  if (shape.task === "rank") return;

  const modules = [
    "",
    "1_Pooling",
    ...shape.dense.map((_, i) => denseFolder(i)),
    `${shape.dense.length + 2}_Normalize`,
  ];
  const kindOf = (path: string) => path.replace(/^\d_/, "") || "Transformer";
  write(
    "modules.json",
    modules.map((path, idx) => ({ idx, name: `${idx}`, path, type: `sentence_transformers.models.${kindOf(path)}` })),
  );
  const word = { mean: "mean_tokens", cls: "cls_token", last: "lasttoken" }[shape.pooling];
  write("1_Pooling/config.json", {
    word_embedding_dimension: shape.config.hidden_size,
    [`pooling_mode_${word}`]: true,
  });
  for (const [i, width] of shape.dense.entries())
    write(`${denseFolder(i)}/config.json`, {
      ...{ in_features: shape.dense[i - 1] ?? shape.config.hidden_size, out_features: width, bias: false },
      activation_function: "torch.nn.modules.linear.Identity",
    });
}
