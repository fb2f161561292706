// Decoders of real shapes with random weights, made as they are read: no file holds them.

import type { ByteSource } from "../../src/files/byte-source.ts";
import { readDecoder } from "../../src/models/spec/read-spec.ts";
import { expectedTensors } from "../../src/models/spec/tensors.ts";

const LLAMA = { hidden_act: "silu", attention_bias: false, mlp_bias: false };

/** config.json of real models. */
export const MODEL_CONFIGS: Readonly<Record<string, object>> = {
  "SmolLM2-135M": {
    ...LLAMA,
    ...{ model_type: "llama", hidden_size: 576, intermediate_size: 1536, num_hidden_layers: 30, vocab_size: 49152 },
    ...{ num_attention_heads: 9, num_key_value_heads: 3, rope_theta: 100_000, rms_norm_eps: 1e-5 },
    ...{ max_position_embeddings: 8192, tie_word_embeddings: true },
  },
  "Qwen3-0.6B": {
    ...{ model_type: "qwen3", hidden_act: "silu", attention_bias: false, head_dim: 128, rms_norm_eps: 1e-6 },
    ...{ hidden_size: 1024, intermediate_size: 3072, num_hidden_layers: 28, vocab_size: 151_936 },
    ...{ num_attention_heads: 16, num_key_value_heads: 8, rope_theta: 1_000_000 },
    ...{ max_position_embeddings: 40_960, tie_word_embeddings: true },
  },
  "Llama-3.2-1B": {
    ...LLAMA,
    ...{ model_type: "llama", hidden_size: 2048, intermediate_size: 8192, num_hidden_layers: 16, vocab_size: 128_256 },
    ...{ num_attention_heads: 32, num_key_value_heads: 8, head_dim: 64, rope_theta: 500_000, rms_norm_eps: 1e-5 },
    ...{ max_position_embeddings: 131_072, tie_word_embeddings: true },
  },
};

/** `layer_types` of `count` layers: `attention` at the places `at`, else `other`. */
const layerTypes = (count: number, at: readonly number[], attention: string, other: string): string[] =>
  Array.from({ length: count }, (_, i) => (at.includes(i) ? attention : other));

/** The same of models with recurrent layers. */
export const HYBRID_CONFIGS: Readonly<Record<string, object>> = {
  "LFM2-350M": {
    ...{ model_type: "lfm2", hidden_size: 1024, intermediate_size: 6656, num_hidden_layers: 16, vocab_size: 65_536 },
    ...{ num_attention_heads: 16, num_key_value_heads: 8, norm_eps: 1e-5, conv_L_cache: 3, conv_bias: false },
    ...{ block_auto_adjust_ff_dim: true, block_ffn_dim_multiplier: 1, block_multiple_of: 256 },
    rope_parameters: { rope_type: "default", rope_theta: 1_000_000 },
    layer_types: layerTypes(16, [2, 5, 8, 10, 12, 14], "full_attention", "conv"),
    ...{ max_position_embeddings: 128_000, tie_word_embeddings: true },
  },
  "Qwen3.5-0.8B": {
    ...{ model_type: "qwen3_5_text", hidden_act: "silu", attention_bias: false, head_dim: 256, rms_norm_eps: 1e-6 },
    ...{ hidden_size: 1024, intermediate_size: 3584, num_hidden_layers: 24, vocab_size: 248_320 },
    ...{ num_attention_heads: 8, num_key_value_heads: 2, linear_conv_kernel_dim: 4, linear_key_head_dim: 128 },
    ...{ linear_value_head_dim: 128, linear_num_key_heads: 16, linear_num_value_heads: 16 },
    rope_parameters: { rope_type: "default", rope_theta: 10_000_000, partial_rotary_factor: 0.25 },
    layer_types: layerTypes(24, [3, 7, 11, 15, 19, 23], "full_attention", "linear_attention"),
    ...{ max_position_embeddings: 262_144, tie_word_embeddings: true },
  },
  "Granite-4-H-350M": {
    ...{ model_type: "granitemoehybrid", hidden_act: "silu", attention_bias: false, rms_norm_eps: 1e-5 },
    ...{ hidden_size: 768, intermediate_size: 2048, shared_intermediate_size: 2048, num_hidden_layers: 32 },
    ...{ vocab_size: 100_352, num_attention_heads: 12, num_key_value_heads: 4, num_local_experts: 0 },
    ...{ mamba_n_heads: 48, mamba_d_head: 32, mamba_d_state: 128, mamba_n_groups: 1, mamba_d_conv: 4, mamba_expand: 2 },
    ...{ mamba_conv_bias: true, mamba_proj_bias: false, mamba_chunk_size: 256, position_embedding_type: "nope" },
    ...{ embedding_multiplier: 12, logits_scaling: 3, residual_multiplier: 0.246, attention_multiplier: 0.015625 },
    layer_types: layerTypes(32, [10, 13, 17, 27], "attention", "mamba"),
    ...{ max_position_embeddings: 32_768, tie_word_embeddings: true },
  },
};

/** Random values that all tensors repeat: a prime number of them, so that rows differ. */
const RANDOM_VALUES = 1_048_583;

/** bfloat16 values of about ±0.04. */
function createRandomBytes(): Uint8Array {
  const values = new Uint16Array(RANDOM_VALUES);
  let state = 1;
  for (let i = 0; i < values.length; i++) {
    state = (Math.imul(state, 1_664_525) + 1_013_904_223) >>> 0;
    // A sign, an exponent of 2^-8 to 2^-5, and 7 bits of fraction.
    values[i] = ((state >>> 16) & 0x8000) | ((119 + ((state >>> 20) & 3)) << 7) | ((state >>> 24) & 0x7f);
  }
  return new Uint8Array(values.buffer);
}

/** A folder of config.json and model.safetensors in bfloat16. */
export function randomModel(config: object): (name: string) => Uint8Array | ByteSource | undefined {
  const decoder = readDecoder("randomModel", config);
  const { required } = expectedTensors(decoder, decoder.names.roots[0] ?? "");
  let end = 0;
  const header = Object.fromEntries(
    [...required].map(([name, shape = []]) => {
      const begin = end;
      end += 2 * shape.reduce((product, side) => product * side, 1);
      return [name, { dtype: "BF16", shape, data_offsets: [begin, end] }];
    }),
  );
  const text = JSON.stringify(header);
  const start = new TextEncoder().encode(text.padEnd(Math.ceil(text.length / 8) * 8));
  const before = 8 + start.length;
  const random = createRandomBytes();
  const source: ByteSource = {
    size: before + end,
    async read(offset, length) {
      const bytes = new Uint8Array(length);
      if (offset < before) {
        const head = new Uint8Array(before);
        new DataView(head.buffer).setUint32(0, start.length, true);
        head.set(start, 8);
        bytes.set(head.subarray(offset, offset + length));
        return bytes;
      }
      for (let at = 0; at < length; ) {
        const from = (offset - before + at) % random.length;
        const piece = random.subarray(from, from + Math.min(length - at, random.length - from));
        bytes.set(piece, at);
        at += piece.length;
      }
      return bytes;
    },
  };
  return (name) => {
    if (name === "config.json") return new TextEncoder().encode(JSON.stringify(config));
    return name === "model.safetensors" ? source : undefined;
  };
}
