// The two GGUF files of model/stories, from its safetensors file: node gguf.ts [folder].

import { readFileSync, writeFileSync } from "node:fs";
import { pathToFileURL } from "node:url";
import {
  permuteRope,
  quantizeTensor,
  readSafetensors,
  type StoredTensor,
  toFloats,
} from "../../../src/entries/weights.ts";

/** What config.json and tokenizer.json say of the model, as far as a GGUF file says it too. */
interface Config {
  readonly bos_token_id: number;
  readonly eos_token_id: number;
  readonly pad_token_id: number;
  readonly head_dim: number;
  readonly hidden_size: number;
  readonly intermediate_size: number;
  readonly max_position_embeddings: number;
  readonly num_attention_heads: number;
  readonly num_hidden_layers: number;
  readonly num_key_value_heads: number;
  readonly rms_norm_eps: number;
  readonly rope_theta: number;
  readonly vocab_size: number;
}

interface Tokenizer {
  readonly added_tokens: readonly { readonly id: number }[];
  readonly model: { readonly vocab: Readonly<Record<string, number>>; readonly unk_token: string };
}

/** The matrices' format. In q4 the table of tokens, which is the head too, keeps 8 bits: a tenth of the bytes, half of the error. */
export type GgufKind = "q8" | "q4";

/** Numbers of ggml's types of tensors, and of the metadata's types of values. */
const TENSOR_TYPES = { F32: 0, Q4_0: 2, Q8_0: 8 } as const;
const VALUE_TYPES = { u32: 4, i32: 5, f32: 6, bool: 7, string: 8, array: 9 } as const;
const FILE_TYPES = { q8: 7, q4: 2 } as const;
const TOKEN_TYPES = { normal: 1, unknown: 2, control: 3 } as const;
const ALIGNMENT = 32;

type Value =
  | { readonly u32: number }
  | { readonly f32: number }
  | { readonly bool: boolean }
  | { readonly string: string }
  | { readonly strings: readonly string[] }
  | { readonly i32s: readonly number[] };

/** llama.cpp's names of the tensors of a layer. */
const LAYER_NAMES: Readonly<Record<string, string>> = {
  "input_layernorm.weight": "attn_norm.weight",
  "self_attn.q_proj.weight": "attn_q.weight",
  "self_attn.k_proj.weight": "attn_k.weight",
  "self_attn.v_proj.weight": "attn_v.weight",
  "self_attn.o_proj.weight": "attn_output.weight",
  "post_attention_layernorm.weight": "ffn_norm.weight",
  "mlp.gate_proj.weight": "ffn_gate.weight",
  "mlp.up_proj.weight": "ffn_up.weight",
  "mlp.down_proj.weight": "ffn_down.weight",
};
const OTHER_NAMES: Readonly<Record<string, string>> = {
  "model.embed_tokens.weight": "token_embd.weight",
  "model.norm.weight": "output_norm.weight",
};

/** The name in safetensors files of a tensor that has this one in GGUF files. */
export function nameOf(ggufName: string): string {
  const [, layer, part = ggufName] = /^blk\.(\d+)\.(.*)$/.exec(ggufName) ?? [];
  const [name] = Object.entries(layer ? LAYER_NAMES : OTHER_NAMES).find(([, each]) => each === part) ?? [];
  if (name === undefined) throw new Error(`no name in safetensors for ${ggufName}`);
  return layer ? `model.layers.${layer}.${name}` : name;
}

/** The GGUF file of a folder's model. */
export function createGguf(folder: URL, kind: GgufKind): Uint8Array {
  const text = (file: string) => readFileSync(new URL(file, folder), "utf8");
  const config = JSON.parse(text("config.json")) as Config;
  const { tensors } = readSafetensors(readFileSync(new URL("model.safetensors", folder)));
  const stored = Array.from(tensors, ([name, tensor]) => convert(name, tensor, config, kind));
  return writeGguf(describeModel(config, text("tokenizer.json"), kind), stored);
}

function convert(name: string, tensor: StoredTensor, config: Config, kind: GgufKind): StoredTensor {
  const [, layer, part] = /^model\.layers\.(\d+)\.(.*)$/.exec(name) ?? [];
  const known = part === undefined ? OTHER_NAMES[name] : LAYER_NAMES[part];
  if (known === undefined) throw new Error(`no name in GGUF for ${name}`);
  const newName = part === undefined ? known : `blk.${layer}.${known}`;
  const { shape } = tensor;
  const floats = { data: toFloats(tensor), shape };
  if (shape.length === 1)
    return { name: newName, dtype: "F32", shape, bytes: new Uint8Array(floats.data.slice().buffer) };
  // llama.cpp rotates neighbouring components, the Hugging Face form the two halves of a head.
  const heads = { q_proj: config.num_attention_heads, k_proj: config.num_key_value_heads };
  const turned = /\.(q_proj|k_proj)\./.exec(name)?.[1] as keyof typeof heads | undefined;
  const matrix = turned ? permuteRope(floats, heads[turned], "half") : floats;
  const format = kind === "q4" && newName !== "token_embd.weight" ? "Q4_0" : "Q8_0";
  return { ...quantizeTensor(matrix, format), name: newName };
}

function describeModel(config: Config, tokenizerJson: string, kind: GgufKind): Readonly<Record<string, Value>> {
  const { model, added_tokens: added } = JSON.parse(tokenizerJson) as Tokenizer;
  const tokens = Object.entries(model.vocab).sort(([, a], [, b]) => a - b);
  const special = new Set(added.map(({ id }) => id));
  const unknown = model.vocab[model.unk_token] as number;
  const typeOf = (id: number) =>
    id === unknown ? TOKEN_TYPES.unknown : special.has(id) ? TOKEN_TYPES.control : TOKEN_TYPES.normal;
  return {
    "general.architecture": { string: "llama" },
    "general.name": { string: "stories" },
    "general.license": { string: "mit" },
    "general.file_type": { u32: FILE_TYPES[kind] },
    "general.quantization_version": { u32: 2 },
    "general.alignment": { u32: ALIGNMENT },
    "llama.vocab_size": { u32: config.vocab_size },
    "llama.context_length": { u32: config.max_position_embeddings },
    "llama.embedding_length": { u32: config.hidden_size },
    "llama.block_count": { u32: config.num_hidden_layers },
    "llama.feed_forward_length": { u32: config.intermediate_size },
    "llama.attention.head_count": { u32: config.num_attention_heads },
    "llama.attention.head_count_kv": { u32: config.num_key_value_heads },
    "llama.attention.key_length": { u32: config.head_dim },
    "llama.attention.value_length": { u32: config.head_dim },
    "llama.attention.layer_norm_rms_epsilon": { f32: config.rms_norm_eps },
    "llama.rope.dimension_count": { u32: config.head_dim },
    "llama.rope.freq_base": { f32: config.rope_theta },
    // WordPiece, of whole words only: "▁" marks the beginning of a word, and no piece is without it.
    "tokenizer.ggml.model": { string: "bert" },
    "tokenizer.ggml.tokens": { strings: tokens.map(([token, id]) => (special.has(id) ? token : `\u2581${token}`)) },
    "tokenizer.ggml.token_type": { i32s: tokens.map(([, id]) => typeOf(id)) },
    "tokenizer.ggml.token_type_count": { u32: 1 },
    "tokenizer.ggml.bos_token_id": { u32: config.bos_token_id },
    "tokenizer.ggml.cls_token_id": { u32: config.bos_token_id },
    "tokenizer.ggml.eos_token_id": { u32: config.eos_token_id },
    "tokenizer.ggml.seperator_token_id": { u32: config.eos_token_id }, // the key's spelling
    "tokenizer.ggml.padding_token_id": { u32: config.pad_token_id },
    "tokenizer.ggml.unknown_token_id": { u32: unknown },
    "tokenizer.ggml.add_bos_token": { bool: true },
    "tokenizer.ggml.add_eos_token": { bool: false },
    "tokenizer.ggml.add_sep_token": { bool: false },
    "tokenizer.huggingface.json": { string: tokenizerJson },
  };
}

/** A GGUF file, version 3. Tensors are float32, Q8_0 or Q4_0, their shapes with the outermost dimension first. */
function writeGguf(metadata: Readonly<Record<string, Value>>, tensors: readonly StoredTensor[]): Uint8Array {
  const out: Uint8Array[] = [];
  let length = 0;
  const put = (bytes: Uint8Array) => {
    out.push(bytes);
    length += bytes.length;
  };
  const number = (bytes: number, set: (view: DataView) => void) => {
    const view = new DataView(new ArrayBuffer(bytes));
    set(view);
    put(new Uint8Array(view.buffer));
  };
  const u32 = (value: number) => number(4, (view) => view.setUint32(0, value, true));
  const u64 = (value: number) => number(8, (view) => view.setBigUint64(0, BigInt(value), true));
  const string = (text: string) => {
    const bytes = new TextEncoder().encode(text);
    u64(bytes.length);
    put(bytes);
  };
  const array = <T>(type: number, items: readonly T[], write: (item: T) => void) => {
    u32(VALUE_TYPES.array);
    u32(type);
    u64(items.length);
    items.forEach(write);
  };
  const value = (given: Value) => {
    if ("strings" in given) return array(VALUE_TYPES.string, given.strings, string);
    if ("i32s" in given) return array(VALUE_TYPES.i32, given.i32s, u32);
    u32(VALUE_TYPES[Object.keys(given)[0] as keyof typeof VALUE_TYPES]);
    if ("string" in given) string(given.string);
    else if ("bool" in given) put(Uint8Array.of(given.bool ? 1 : 0));
    else if ("f32" in given) number(4, (view) => view.setFloat32(0, given.f32, true));
    else u32(given.u32);
  };
  const align = () => put(new Uint8Array(-length & (ALIGNMENT - 1)));

  put(new TextEncoder().encode("GGUF"));
  u32(3);
  u64(tensors.length);
  u64(Object.keys(metadata).length);
  for (const [key, given] of Object.entries(metadata)) {
    string(key);
    value(given);
  }
  let offset = 0;
  for (const { name, dtype, shape, bytes } of tensors) {
    string(name ?? "");
    u32(shape.length);
    for (const size of shape.toReversed()) u64(size);
    u32(TENSOR_TYPES[dtype as keyof typeof TENSOR_TYPES]);
    u64(offset);
    offset += Math.ceil(bytes.length / ALIGNMENT) * ALIGNMENT;
  }
  align();
  for (const { bytes } of tensors) {
    put(bytes);
    align();
  }
  return Buffer.concat(out);
}

if (import.meta.main) {
  const folder = process.argv[2] ? pathToFileURL(`${process.argv[2]}/`) : new URL("../../stories/", import.meta.url);
  for (const [file, kind] of [
    ["stories.gguf", "q8"],
    ["stories-q4.gguf", "q4"],
  ] as const) {
    const bytes = createGguf(folder, kind);
    writeFileSync(new URL(file, folder), bytes);
    console.log(`${file}  ${bytes.length} bytes`);
  }
}
