import { beforeAll, describe, expect, test } from "vitest";
import type { Kernels } from "../../../../src/entries/core.ts";
import { bucketOf } from "../../../../src/models/blocks/model.ts";
import { forward } from "../../../../src/models/decoder/forward.ts";
import { createSession } from "../../../../src/models/decoder/session.ts";
import { embed, encode, encodeAsync, maskedLogits } from "../../../../src/models/encoder/encode.ts";
import {
  type Encoder,
  loadEncoder,
  loadSeq2Seq,
  planEncoder,
  readEncoder,
  readSeq2Seq,
} from "../../../../src/models/encoder/load.ts";
import { DECODERS, ENCODERS, HALVES, LAYERS } from "../../../../src/models/families/index.ts";
import { loadModel } from "../../../../src/models/load/load-model.ts";
import { kernelsOf } from "../../../support/layers.ts";
import { encoderFolder, encoderTensors, TINY_ENCODERS } from "../../../support/tiny-encoders.ts";
import { HYBRIDS, TINY, TINY_FEATURES, tinyFolder, tinyTensors } from "../../../support/tiny-models.ts";
import { seq2seqFolder } from "../../../support/tiny-seq2seq.ts";

let kernels: Kernels;
let model: Encoder;
beforeAll(async () => {
  kernels = await kernelsOf("simd");
  model = await loadEncoder(kernels, encoderFolder("bert"));
});

describe("errors of calls", () => {
  const tokenizer = { encode: (text: string) => Array.from(text, (letter) => letter.charCodeAt(0) - 97) };

  test.each<[call: () => unknown, message: string]>([
    [() => encode(model, [[1], []]), "encode: batch[1] expected 1 or more tokens, got none"],
    [() => encode(model, [[1, 67]]), "encode: batch[0][1] expected an integer from 0 to 66, got 67"],
    [
      () => encode(model, [new Int32Array(321)]),
      "encode: batch[0] expected at most 320 tokens, the positions of the model, got 321",
    ],
    [
      () => embed(model, ["text"]),
      'embed: batch[0] expected token ids, or a tokenizer with encode(text) in the options, got "text"',
    ],
    [() => embed(model, "text" as never), 'embed: batch expected an array of lists, got "text"'],
    [() => embed(model, [null] as never), "embed: batch[0] expected an array, got null"],
    // biome-ignore lint/suspicious/noSparseArray: what is tested.
    [() => embed(model, [, [1]] as never), "embed: batch[0] expected an array, got undefined"],
    [() => embed(model, ["aé"], { tokenizer }), "embed: batch[0][1] expected an integer from 0 to 66, got 136"],
    [
      () => embed(model, [[1]], { pooling: "best" as never }),
      'embed: pooling expected "cls" or "max" or "mean" or "sqrt" or "weighted" or "last", got "best"',
    ],
    [() => embed(model, [[1]], { normalize: 1 as never }), "embed: normalize expected true or false, got 1"],
    [
      () => encode(model, [[1], [2]], { tokenTypes: [[0]] }),
      "encode: tokenTypes expected a list for each of 2 sequences, got 1",
    ],
    [
      () => encode(model, [[1]], { tokenTypes: [[3]] }),
      "encode: tokenTypes[0][0] expected an integer from 0 to 2, got 3",
    ],
    [
      () => encode(model, [[1]], { tokenTypes: [[0, 0]] }),
      "encode: tokenTypes[0] expected 1 types, one for each id, got 2",
    ],
    [
      () => maskedLogits(model, [[1]], { positions: [[1]] }),
      "maskedLogits: positions[0][0] expected an integer from 0 to 0, got 1",
    ],
    [
      // biome-ignore lint/suspicious/noSparseArray: what is tested.
      () => maskedLogits(model, [[1], [2]], { positions: [, [0]] as never }),
      "maskedLogits: positions[0] expected an array, got undefined",
    ],
    [() => maskedLogits(model, [[1]], { top: 68 }), "maskedLogits: top expected an integer from 1 to 67, got 68"],
    [
      () => encode({ ...model } as Encoder, [[1]]),
      "encode: model expected what loadEncoder or loadSeq2Seq gives, got a copy",
    ],
  ])("%o", (call, message) => {
    expect(call).toThrow(message);
  });

  test.each(["roberta", "xlm-roberta", "camembert"])(
    "%s: positions count from pad_token_id on, which leaves at least one, or is refused",
    async (type) => {
      const config = (padding: unknown) => ({
        ...TINY_ENCODERS.roberta,
        ...{ model_type: type, max_position_embeddings: 8, pad_token_id: padding },
      });
      const tensors = (padding: unknown) => tinyTensors(config(padding), 1, readEncoder);
      using one = await loadEncoder(kernels, tinyFolder(config(6), tensors(6)));
      expect([one.maxSeqLen, embed(one, [[1]])[0]?.every(Number.isFinite)]).toEqual([1, true]);
      for (const padding of [7, 8, 2 ** 31 - 1, 2 ** 31, -1, 1.5, "1"])
        await expect(loadEncoder(kernels, tinyFolder(config(padding), tensors(1)))).rejects.toThrow(
          "loadEncoder: pad_token_id expected an integer >= 0 and at most max_position_embeddings (8) - 2, since positions " +
            `count from it on, got ${JSON.stringify(padding)}`,
        );
    },
  );

  test("a text that is longer than config.json says is refused, also by a model without a table of positions", async () => {
    const config = { ...TINY_ENCODERS.modernbert, max_position_embeddings: 8 };
    using other = await loadEncoder(kernels, tinyFolder(config, encoderTensors("modernbert")));
    expect([other.maxSeqLen, embed(other, [new Int32Array(8)]).length]).toEqual([8, 1]);
    expect(() => embed(other, [new Int32Array(9)])).toThrow("batch[0] expected at most 8 tokens");
  });

  test("texts are encoded, and token types refused by models without", async () => {
    expect(embed(model, ["abc", [3]], { tokenizer })).toEqual(embed(model, [[0, 1, 2], [3]]));
    using other = await loadEncoder(kernels, encoderFolder("distilbert"));
    expect(() => encode(other, [[1]], { tokenTypes: [[0]] })).toThrow("the model has no token types");
  });
});

describe("files", () => {
  test("a missing, an unexpected and a misshapen tensor are named together", async () => {
    const tensors = encoderTensors("bert");
    tensors.delete("bert.encoder.layer.1.output.dense.weight");
    tensors.set("bert.embeddings.more.weight", { data: new Float32Array(1), shape: [1] });
    tensors.set("bert.embeddings.LayerNorm.weight", { data: new Float32Array(41), shape: [41] });
    const used = kernels.usedBytes;
    await expect(loadEncoder(kernels, encoderFolder("bert", tensors))).rejects.toMatchObject({
      code: "BAD_FILE",
      message:
        'loadEncoder: tensors expected those of "bert" with 3 layers, got 1 missing: bert.encoder.layer.1.output.dense.weight; ' +
        "1 unexpected: bert.embeddings.more.weight; 1 of another shape: bert.embeddings.LayerNorm.weight expected [40], got [41]",
    });
    expect(kernels.usedBytes).toBe(used);
  });

  test.each<[config: object, message: string]>([
    [{ ...TINY_ENCODERS.bert, is_decoder: true }, "is_decoder expected false"],
    [{ ...TINY_ENCODERS.albert, inner_group_num: 2 }, "inner_group_num expected 1"],
    [{ ...TINY_ENCODERS.bert, position_embedding_type: "relative_key" }, 'position_embedding_type expected "absolute"'],
    [{ ...TINY_ENCODERS.nomic_bert, rotary_scaling_factor: 2 }, "rotary_scaling_factor expected null"],
    [{ ...TINY_ENCODERS.bert, new_field: 1 }, "new_field expected a field that this package knows, or none, got 1"],
    [
      { ...TINY_ENCODERS.bert, model_type: "bart" },
      'model_type expected one that loadEncoder reads, got "bart", which loadSeq2Seq reads',
    ],
    [
      { ...HYBRIDS.lfm2, architectures: ["Lfm2BidirectionalModel"] },
      'architectures expected one that this package knows to attend both ways, got "Lfm2BidirectionalModel"',
    ],
  ])("%o is refused", (config, message) => {
    expect(() => readEncoder("loadEncoder", config)).toThrow(`loadEncoder: ${message}`);
  });

  test("a head that the file lacks is not read, and layers of a group share their weights", async () => {
    const tensors = encoderTensors("albert");
    for (const name of [...tensors.keys()]) if (name.startsWith("predictions.")) tensors.delete(name);
    using without = await loadEncoder(kernels, encoderFolder("albert", tensors));
    using whole = await loadEncoder(kernels, encoderFolder("albert"));
    expect(without.bytes).toBeLessThan(whole.bytes);
    expect([whole.layers, whole.spec.blocks.length]).toEqual([5, 2]);
    expect(encode(without, [[1, 2]])).toEqual(encode(whole, [[1, 2]]));
    expect(() => maskedLogits(without, [[1]])).toThrow("got one without");
  });

  test("a model's bytes are those that memory grows by, and its positions limit its texts", async () => {
    const used = kernels.usedBytes;
    const other = await loadEncoder(kernels, encoderFolder("roberta"));
    expect(kernels.usedBytes - used).toBe(other.bytes);
    expect([other.maxSeqLen, model.maxSeqLen]).toEqual([320, 320]);
    other.release();
    expect(kernels.usedBytes).toBe(used);
  });

  test("what other functions load is refused with their names", async () => {
    const file = new TextEncoder().encode("GGUF and more bytes of such a file");
    await expect(loadSeq2Seq(kernels, file)).rejects.toMatchObject({
      code: "BAD_FILE",
      message:
        "loadSeq2Seq: source expected config.json and safetensors, got a GGUF file, or bytes without config.json",
    });
    await expect(loadModel(kernels, encoderFolder("bert"))).rejects.toThrow(
      'loadModel: model_type expected one that loadModel reads, got "bert", which loadEncoder reads',
    );
    await expect(loadEncoder(kernels, seq2seqFolder("t5"))).rejects.toThrow(
      'loadEncoder: model_type expected one that loadEncoder reads, got "t5", which loadSeq2Seq reads',
    );
    for (const [type, reader] of [
      ["bert", "loadEncoder"],
      ["llama", "loadModel"],
    ])
      expect(() => readSeq2Seq("loadSeq2Seq", { model_type: type })).toThrow(
        `loadSeq2Seq: model_type expected one that loadSeq2Seq reads, got "${type}", which ${reader} reads`,
      );
  });

  test("what reads whole models is known of every type", () => {
    const readers = (families: typeof ENCODERS) => [...families.keys()].map((type) => LAYERS.get(type)?.reader);
    expect(new Set(readers(ENCODERS))).toEqual(new Set(["loadEncoder"]));
    expect(new Set(readers(HALVES))).toEqual(new Set(["loadSeq2Seq"]));
    expect(new Set(readers(DECODERS))).toEqual(new Set([undefined]));
  });
});

const { gemma4_text } = TINY_FEATURES;
const CONFIGS = {
  ...HYBRIDS,
  deepseek_v3: TINY.deepseek_v3,
  gemma4_text: { ...gemma4_text, final_logit_softcapping: null },
};
test.each(["lfm2", "falcon_h1", "mamba2", "deepseek_v3", "gemma4_text"] as const)(
  "%s gives the states that its logits come from, with the same bits alone and in a batch, in the memory that is planned",
  async (name) => {
    const own = await kernelsOf("simd");
    const config = { ...CONFIGS[name], tie_word_embeddings: true };
    const tensors = tinyTensors(config);
    using encoder = await loadEncoder(own, tinyFolder(config, tensors));
    const { scratch } = planEncoder(config, { tokens: 300 });
    const used = own.usedBytes;
    const ids = [5, 300, 1, 130].map((length) => Array.from({ length }, (_, i) => (7 * i + length) % 60));
    const states = encode(encoder, ids);
    expect(own.usedBytes - used).toBeLessThanOrEqual(scratch);
    const alone = await Promise.all(ids.map(async (one) => (await encodeAsync(encoder, [one]))[0]));
    expect(states).toEqual(alone);
    using decoder = await loadModel(own, tinyFolder(config, tensors));
    using session = createSession(decoder, { maxSeqLen: 300 });
    const { logits } = forward(session, ids[1] as number[]);
    const table = [...tensors].find(([tensor]) => /embed|wte/.test(tensor))?.[1].data as Float32Array;
    const last = (states[1] as Float32Array).slice(-decoder.dModel);
    const row = (id: number) => last.reduce((sum, x, i) => sum + x * (table[id * decoder.dModel + i] as number), 0);
    // A factor of the logits is the same for all.
    const factor = (logits[3] as number) / row(3);
    for (const id of [0, 9, 44]) expect(Math.abs((logits[id] as number) - factor * row(id))).toBeLessThan(1e-4);
    own.release();
  },
);

test("distances share buckets as in T5: near ones alone, far ones in growing groups, the last without end", () => {
  const both = { buckets: 32, maxDistance: 128, bothWays: true };
  const buckets = (distances: readonly number[], spec = both) => distances.map((distance) => bucketOf(spec, distance));
  expect(buckets([0, -1, -7, -8, -11, -12, -15, -16, -22, -23, -127, -128, -5000])).toEqual([
    ...[0, 1, 7, 8, 8, 9, 9, 10, 10, 11, 15, 15, 15],
  ]);
  expect(buckets([1, 7, 8, 12, 16, 5000])).toEqual([17, 23, 24, 25, 26, 31]);
  const past = { ...both, bothWays: false };
  expect(buckets([3, 0, -15, -16, -18, -19, -32, -64, -5000], past)).toEqual([0, 0, 15, 16, 16, 17, 21, 26, 31]);
});

/** config.json of published models, what it says of training left out. */
const PUBLISHED: Readonly<Record<string, { read: typeof readEncoder; config: object; says: readonly unknown[] }>> = {
  "all-MiniLM-L6-v2": {
    read: readEncoder,
    config: {
      ...{
        _name_or_path: "nreimers/MiniLM-L6-H384-uncased",
        architectures: ["BertModel"],
        gradient_checkpointing: false,
      },
      ...{ hidden_act: "gelu", hidden_size: 384, intermediate_size: 1536, layer_norm_eps: 1e-12, pad_token_id: 0 },
      ...{ max_position_embeddings: 512, model_type: "bert", num_attention_heads: 12, num_hidden_layers: 6 },
      ...{ position_embedding_type: "absolute", type_vocab_size: 2, use_cache: true, vocab_size: 30_522 },
    },
    says: [384, 6, 512, 30_522],
  },
  "all-mpnet-base-v2": {
    read: readEncoder,
    config: {
      ...{ model_type: "mpnet", hidden_act: "gelu", hidden_size: 768, intermediate_size: 3072, layer_norm_eps: 1e-5 },
      ...{ max_position_embeddings: 514, num_attention_heads: 12, num_hidden_layers: 12, pad_token_id: 1 },
      ...{ relative_attention_num_buckets: 32, vocab_size: 30_527, bos_token_id: 0, eos_token_id: 2 },
    },
    says: [768, 12, 512, 30_527],
  },
  "nomic-embed-text-v1.5": {
    read: readEncoder,
    config: {
      ...{
        model_type: "nomic_bert",
        activation_function: "swiglu",
        causal: false,
        dense_seq_output: true,
        n_embd: 768,
      },
      ...{ fused_bias_fc: true, fused_dropout_add_ln: true, layer_norm_epsilon: 1e-12, max_trained_positions: 2048 },
      ...{ mlp_fc1_bias: false, mlp_fc2_bias: false, n_head: 12, n_inner: 3072, n_layer: 12, n_positions: 8192 },
      ...{ pad_vocab_size_multiple: 64, parallel_block: false, parallel_block_tied_norm: false, prenorm: false },
      ...{ qkv_proj_bias: false, reorder_and_upcast_attn: false, rotary_emb_base: 1000, rotary_emb_fraction: 1 },
      ...{
        rotary_emb_interleaved: false,
        rotary_emb_scale_base: null,
        rotary_scaling_factor: null,
        vocab_size: 30_528,
      },
      ...{ scale_attn_by_inverse_layer_idx: false, scale_attn_weights: true, summary_type: "cls_index" },
      ...{ type_vocab_size: 2, use_flash_attn: true, use_rms_norm: false, use_xentropy: true },
    },
    says: [768, 12, undefined, 30_528],
  },
  "deberta-v3-base": {
    read: readEncoder,
    config: {
      ...{
        model_type: "deberta-v2",
        hidden_act: "gelu",
        hidden_size: 768,
        intermediate_size: 3072,
        vocab_size: 128_100,
      },
      ...{ max_position_embeddings: 512, relative_attention: true, position_buckets: 256, norm_rel_ebd: "layer_norm" },
      ...{ share_att_key: true, pos_att_type: "p2c|c2p", layer_norm_eps: 1e-7, max_relative_positions: -1 },
      ...{ position_biased_input: false, num_attention_heads: 12, num_hidden_layers: 12, type_vocab_size: 0 },
    },
    says: [768, 12, 512, 128_100],
  },
  "nli-deberta-v3-small": {
    read: readEncoder,
    config: {
      ...{
        model_type: "deberta-v2",
        _name_or_path: "microsoft/deberta-v3-small",
        hidden_act: "gelu",
        hidden_size: 768,
      },
      ...{
        architectures: ["DebertaV2ForSequenceClassification"],
        id2label: { 0: "contradiction" },
        num_hidden_layers: 6,
      },
      ...{ intermediate_size: 3072, layer_norm_eps: 1e-7, max_position_embeddings: 512, max_relative_positions: -1 },
      ...{ norm_rel_ebd: "layer_norm", num_attention_heads: 12, pad_token_id: 0, pooler_dropout: 0 },
      ...{ pooler_hidden_act: "gelu", pooler_hidden_size: 768, pos_att_type: ["p2c", "c2p"], position_buckets: 256 },
      ...{ position_biased_input: false, relative_attention: true, share_att_key: true, summary_activation: "tanh" },
      ...{ summary_last_dropout: 0, summary_type: "first", summary_use_proj: true, type_vocab_size: 0 },
      vocab_size: 128_100,
    },
    says: [768, 6, 512, 128_100],
  },
  "electra-small-discriminator": {
    read: readEncoder,
    config: {
      ...{ model_type: "electra", embedding_size: 128, hidden_act: "gelu", hidden_size: 256, intermediate_size: 1024 },
      ...{ layer_norm_eps: 1e-12, max_position_embeddings: 512, num_attention_heads: 4, num_hidden_layers: 12 },
      ...{ pad_token_id: 0, position_embedding_type: "absolute", summary_activation: "gelu", summary_type: "first" },
      ...{ summary_last_dropout: 0.1, summary_use_proj: true, type_vocab_size: 2, vocab_size: 30_522 },
    },
    says: [256, 12, 512, 30_522],
  },
  "gte-multilingual-base": {
    read: readEncoder,
    config: {
      ...{ model_type: "new", hidden_act: "gelu", hidden_size: 768, intermediate_size: 3072, layer_norm_eps: 1e-12 },
      ...{ layer_norm_type: "layer_norm", logn_attention_clip1: false, logn_attention_scale: false, pad_token_id: 1 },
      ...{ max_position_embeddings: 8192, num_attention_heads: 12, num_hidden_layers: 12, pack_qkv: true },
      ...{ position_embedding_type: "rope", rope_scaling: { factor: 8, type: "ntk" }, rope_theta: 20_000 },
      ...{ type_vocab_size: 1, unpad_inputs: false, use_memory_efficient_attention: false, vocab_size: 250_048 },
    },
    says: [768, 12, 8192, 250_048],
  },
  "EuroBERT-210m": {
    read: readEncoder,
    config: {
      ...{ model_type: "eurobert", attention_bias: false, bos_token: "<|begin_of_text|>", clf_pooling: "late" },
      ...{ eos_token: "<|end_of_text|>", head_dim: 64, hidden_act: "silu", hidden_size: 768, intermediate_size: 3072 },
      ...{ is_causal: false, mask_token: "<|mask|>", mask_token_id: 128_002, max_position_embeddings: 8192 },
      ...{
        mlp_bias: false,
        num_attention_heads: 12,
        num_hidden_layers: 12,
        num_key_value_heads: 12,
        pad_token_id: 128_001,
      },
      ...{ pad_token: "<|end_of_text|>", rms_norm_eps: 1e-5, rope_scaling: null, rope_theta: 250_000 },
      ...{ tie_word_embeddings: false, use_cache: false, vocab_size: 128_256 },
    },
    says: [768, 12, 8192, 128_256],
  },
  "embeddinggemma-300m": {
    read: readEncoder,
    config: {
      ...{ model_type: "gemma3_text", _sliding_window_pattern: 6, attention_bias: false, attn_logit_softcapping: null },
      ...{ final_logit_softcapping: null, head_dim: 256, hidden_activation: "gelu_pytorch_tanh", hidden_size: 768 },
      ...{ intermediate_size: 1152, max_position_embeddings: 2048, num_attention_heads: 3, num_hidden_layers: 24 },
      ...{ layer_types: Array.from({ length: 24 }, (_, i) => (i % 6 === 5 ? "full_attention" : "sliding_attention")) },
      ...{ num_key_value_heads: 1, query_pre_attn_scalar: 256, rms_norm_eps: 1e-6, rope_local_base_freq: 10_000 },
      ...{ rope_scaling: null, rope_theta: 1_000_000, sliding_window: 512, use_bidirectional_attention: true },
      vocab_size: 262_144,
    },
    says: [768, 24, 2048, 262_144],
  },
  "ModernBERT-base": {
    read: readEncoder,
    config: {
      ...{ model_type: "modernbert", attention_bias: false, classifier_activation: "gelu", classifier_bias: false },
      ...{
        classifier_pooling: "mean",
        decoder_bias: true,
        deterministic_flash_attn: false,
        gradient_checkpointing: false,
      },
      ...{ global_attn_every_n_layers: 3, global_rope_theta: 160_000, hidden_activation: "gelu", hidden_size: 768 },
      ...{ initializer_cutoff_factor: 2, intermediate_size: 1152, layer_norm_eps: 1e-5, local_attention: 128 },
      ...{ local_rope_theta: 10_000, max_position_embeddings: 8192, mlp_bias: false, norm_bias: false, norm_eps: 1e-5 },
      ...{ num_attention_heads: 12, num_hidden_layers: 22, position_embedding_type: "absolute", vocab_size: 50_368 },
      ...{ reference_compile: false, sparse_pred_ignore_index: -100, sparse_prediction: false },
    },
    says: [768, 22, 8192, 50_368],
  },
  "albert-base-v2": {
    read: readEncoder,
    config: {
      ...{ model_type: "albert", down_scale_factor: 1, embedding_size: 128, gap_size: 0, hidden_act: "gelu_new" },
      ...{ hidden_size: 768, inner_group_num: 1, intermediate_size: 3072, layer_norm_eps: 1e-12, vocab_size: 30_000 },
      ...{ max_position_embeddings: 512, net_structure_type: 0, num_attention_heads: 12, num_hidden_groups: 1 },
      ...{ num_hidden_layers: 12, num_memory_blocks: 0, output_past: true, type_vocab_size: 2 },
    },
    says: [768, 12, 512, 30_000],
  },
  "flan-t5-small": {
    read: readSeq2Seq,
    config: {
      ...{
        model_type: "t5",
        d_ff: 1024,
        d_kv: 64,
        d_model: 512,
        decoder_start_token_id: 0,
        feed_forward_proj: "gated-gelu",
      },
      ...{ initializer_factor: 1, is_encoder_decoder: true, layer_norm_epsilon: 1e-6, n_positions: 512, num_heads: 6 },
      ...{ num_decoder_layers: 8, num_layers: 8, output_past: true, relative_attention_max_distance: 128 },
      ...{
        relative_attention_num_buckets: 32,
        task_specific_params: {},
        tie_word_embeddings: false,
        vocab_size: 32_128,
      },
    },
    says: [512, 8, 512, 32_128],
  },
  "bart-base": {
    read: readSeq2Seq,
    config: {
      ...{ model_type: "bart", _num_labels: 3, activation_function: "gelu", add_bias_logits: false, d_model: 768 },
      ...{ add_final_layer_norm: false, decoder_attention_heads: 12, decoder_ffn_dim: 3072, decoder_layers: 6 },
      ...{ early_stopping: true, encoder_attention_heads: 12, encoder_ffn_dim: 3072, encoder_layers: 6, num_beams: 4 },
      ...{ forced_bos_token_id: 0, forced_eos_token_id: 2, is_encoder_decoder: true, max_position_embeddings: 1024 },
      ...{ no_repeat_ngram_size: 3, normalize_before: false, normalize_embedding: true, num_hidden_layers: 6 },
      ...{ scale_embedding: false, task_specific_params: {}, vocab_size: 50_265 },
    },
    says: [768, 6, 1024, 50_265],
  },
  "whisper-tiny": {
    read: readSeq2Seq,
    config: {
      ...{ model_type: "whisper", activation_function: "gelu", begin_suppress_tokens: [220, 50_257], d_model: 384 },
      ...{ decoder_attention_heads: 6, decoder_ffn_dim: 1536, decoder_layers: 4, encoder_attention_heads: 6 },
      ...{ encoder_ffn_dim: 1536, encoder_layers: 4, forced_decoder_ids: [[1, 50_259]], is_encoder_decoder: true },
      ...{ max_length: 448, max_source_positions: 1500, max_target_positions: 448, num_hidden_layers: 4 },
      ...{ num_mel_bins: 80, scale_embedding: false, suppress_tokens: [1, 2], vocab_size: 51_865 },
    },
    says: [384, 4, 448, 51_865],
  },
};

test.each(Object.entries(PUBLISHED))("config.json of %s is read", (_, { read, config, says }) => {
  const { spec } = read("test", config);
  expect([spec.dModel, (spec.order ?? spec.blocks).length, spec.maxSeqLen, spec.vocabSize]).toEqual(says);
});
