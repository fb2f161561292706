// What is done wherever a page, a worker or a service worker has got hold of the package.

import { runSuite } from "./suite.mjs";

const warnings = [];
const { warn } = console;
console.warn = (...words) => {
  warnings.push(words.join(" "));
  warn.apply(console, words);
};

/** The suite on one entry, with two threads where that is `threads`; and what comes of asking for two threads anywhere. */
export async function work(entries, name, step = () => {}) {
  const { threads, latent: latents, quantized } = entries;
  step("two threads");
  const two = await twoThreads(entries);
  // Once more: the warning about one thread instead of two is printed once.
  (await threads.loadKernels({ threads: 2 })).release();
  step("the suite");
  const load = { quantized: quantized.quantized, ...(name === "threads" && { threads: 2 }) };
  return {
    two,
    suite: await runSuite({ ...entries, headwise: entries[name], latents, load }),
    warnings,
  };
}

/** Asks for two threads, in the build that is the same everywhere, and tests what comes of it. */
export async function twoThreads({ threads, doctor }, options = {}) {
  const kernels = await threads.loadKernels({ threads: 2, deterministic: true, ...options });
  try {
    const { ok, digest } = doctor.selfTest(threads, kernels);
    return { ...kernels.threads, ok, digest };
  } finally {
    kernels.release();
  }
}

/** What a decoder of one layer writes, opened with these options; or the code of the error and its message. */
export async function writtenBy({ headwise, weights }, options) {
  const config = {
    ...{ model_type: "llama", hidden_size: 16, num_attention_heads: 4, num_hidden_layers: 1, intermediate_size: 24 },
    ...{ vocab_size: 32, max_position_embeddings: 64, tie_word_embeddings: true },
  };
  const matrix = (rows, columns, step = 37) => ({
    data: Float32Array.from({ length: rows * columns }, (_, i) => ((i * step) % 101) / 505 - 0.1),
    shape: [rows, columns],
  });
  const [layer, gain] = ["model.layers.0.", { data: new Float32Array(16).fill(1), shape: [16] }];
  const bytes = weights.writeSafetensors({
    ...{ "model.embed_tokens.weight": matrix(32, 16, 29), "model.norm.weight": gain },
    ...{ [`${layer}input_layernorm.weight`]: gain, [`${layer}post_attention_layernorm.weight`]: gain },
    ...Object.fromEntries(
      ["q", "k", "v", "o"].map((name) => [`${layer}self_attn.${name}_proj.weight`, matrix(16, 16)]),
    ),
    ...{ [`${layer}mlp.gate_proj.weight`]: matrix(24, 16), [`${layer}mlp.up_proj.weight`]: matrix(24, 16) },
    [`${layer}mlp.down_proj.weight`]: matrix(16, 24),
  });
  const files = [new File([JSON.stringify(config)], "config.json"), new File([bytes], "model.safetensors")];
  const tokenizer = { encode: (text) => text.split(" ").map(Number), decode: (ids) => ids.join(" ") };
  try {
    const model = await headwise.openModel(files, { tokenizer, deterministic: true, store: false, ...options });
    const ids = await model.text("1 2 3", { maxTokens: 6 }).ids;
    model.release();
    return ids.join(" ");
  } catch ({ code, message }) {
    return `${code}: ${message}`;
  }
}
