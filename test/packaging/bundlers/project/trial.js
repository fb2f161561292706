// What every bundle computes: one use of each entry. The bits do not depend on where it runs.

import * as headwise from "headwise";
import { selfTest } from "headwise/doctor";
import { quantized } from "headwise/quantized";
import { loadKernels as loadThreads } from "headwise/threads";
import { readAttentionWeights, writeSafetensors } from "headwise/weights";

const { attend, createAttention, createCache, loadKernels, openModel } = headwise;

const CONFIG = { dModel: 64, numHeads: 8, numKvHeads: 2, causal: true, rope: { theta: 10_000, pairing: "half" } };

/** Bits of the float and the integer kernels, of weights from a file and of two threads; and what was chosen here. */
export async function runTrial() {
  const fast = await loadKernels();
  const kernels = await loadKernels({ deterministic: true, quantized });
  const threaded = await loadThreads({ deterministic: true, threads: 2 });
  const weights = { wq: matrix(64, 64), wk: matrix(16, 64), wv: matrix(16, 64), wo: matrix(64, 64) };
  const outcome = {
    bits: {
      selfTest: selfTest(headwise, kernels).digest,
      floats: prefillAndDecode(kernels, weights),
      integers: prefillAndDecode(kernels, weights, { weights: "q8" }, "q8"),
      file: prefillAndDecode(kernels, throughFile(weights)),
      threads: prefillAndDecode(threaded, weights),
      // What it imports when it is called, and where there are workers the one whose source is inlined.
      opened: await writtenBy({}),
      worker: await writtenBy({ worker: !("EdgeRuntime" in globalThis) }),
    },
    ok: [fast, kernels, threaded].every((each) => selfTest(headwise, each).ok),
    build: fast.build,
    threads: threaded.threads.used,
    reason: threaded.threads.reason,
  };
  for (const each of [fast, kernels, threaded]) each.release();
  return outcome;
}

/** Prefill of four tokens, decode of a fifth. */
function prefillAndDecode(kernels, weights, options = {}, format = "f32") {
  const attention = createAttention(kernels, CONFIG, weights, options);
  const cache = createCache(attention, { maxSeqLen: 8, format });
  const x = matrix(5, 64).data;
  const prompt = attend(attention, x.subarray(0, 4 * 64), { cache });
  const next = attend(attention, x.subarray(4 * 64), { cache });
  return `${fnv1a(prompt)} ${fnv1a(next)}`;
}

function throughFile({ wq, wk, wv, wo }) {
  const file = { "q_proj.weight": wq, "k_proj.weight": wk, "v_proj.weight": wv, "o_proj.weight": wo };
  return readAttentionWeights(writeSafetensors(file));
}

/** What a decoder of one layer writes, opened from its files. */
async function writtenBy(options) {
  const config = {
    ...{ model_type: "llama", hidden_size: 16, num_attention_heads: 4, num_hidden_layers: 1, intermediate_size: 24 },
    ...{ vocab_size: 32, max_position_embeddings: 64, tie_word_embeddings: true },
  };
  const [layer, gain] = ["model.layers.0.", { data: new Float32Array(16).fill(1), shape: [16] }];
  const bytes = writeSafetensors({
    ...{ "model.embed_tokens.weight": matrix(32, 16, 29), "model.norm.weight": gain },
    ...{ [`${layer}input_layernorm.weight`]: gain, [`${layer}post_attention_layernorm.weight`]: gain },
    ...Object.fromEntries(["q", "k", "v", "o"].map((name) => [`${layer}self_attn.${name}_proj.weight`, matrix(16, 16)])),
    ...{ [`${layer}mlp.gate_proj.weight`]: matrix(24, 16), [`${layer}mlp.up_proj.weight`]: matrix(24, 16) },
    [`${layer}mlp.down_proj.weight`]: matrix(16, 24),
  });
  const files = [new File([JSON.stringify(config)], "config.json"), new File([bytes], "model.safetensors")];
  const tokenizer = { encode: (text) => text.split(" ").map(Number), decode: (ids) => ids.join(" ") };
  const model = await openModel(files, { tokenizer, deterministic: true, store: false, ...options });
  const ids = await model.text("1 2 3", { maxTokens: 6 }).ids;
  model.release();
  return ids.join(" ");
}

function matrix(rows, columns, step = 37) {
  return {
    data: Float32Array.from({ length: rows * columns }, (_, i) => ((i * step) % 101) / 505 - 0.1),
    shape: [rows, columns],
  };
}

/** Of the bytes of 32-bit floats. */
function fnv1a({ buffer, byteOffset, byteLength }) {
  let hash = 0x811c9dc5;
  for (const byte of new Uint8Array(buffer, byteOffset, byteLength)) hash = Math.imul(hash ^ byte, 0x01000193) >>> 0;
  return hash.toString(16).padStart(8, "0");
}
