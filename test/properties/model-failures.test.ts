// Whatever goes wrong while a model is loaded, its error is one of those that are documented, and nothing stays allocated.

import { describe, expect, test, vi } from "vitest";
import { HeadwiseError } from "../../src/base/util/errors.ts";
import { type Kernels, loadKernels } from "../../src/entries/core.ts";
import { forward } from "../../src/models/decoder/forward.ts";
import { createSession } from "../../src/models/decoder/session.ts";
import { loadEncoder, loadSeq2Seq } from "../../src/models/encoder/load.ts";
import { readSource } from "../../src/models/encoder/read-source.ts";
import { type LoadModelOptions, loadModel } from "../../src/models/load/load-model.ts";
import { gguf } from "../../src/models/spec/read-gguf.ts";
import { createRandom } from "../../src/tools/diagnostics/random.ts";
import { type Written, writeGguf } from "../support/gguf-writer.ts";
import { kernelsOf } from "../support/layers.ts";
import { modulesOf } from "../support/modules.ts";
import { sampled } from "../support/sampled.ts";
import { encoderFolder } from "../support/tiny-encoders.ts";
import { type GgufModel, ggufModel } from "../support/tiny-gguf.ts";
import { TINY, tinyFolder, tinyTensors } from "../support/tiny-models.ts";
import { seq2seqFolder, sourceFor } from "../support/tiny-seq2seq.ts";

const WIDE = { hidden_size: 256, intermediate_size: 256, num_hidden_layers: 1, rms_norm_eps: 2 ** -14 };
const LATENT = { q_lora_rank: 256, kv_lora_rank: 256, qk_nope_head_dim: 256, v_head_dim: 64 };
/** Decoders whose rows hold whole blocks of every type: separate, joint and stacked matrices, experts, latents. */
const CONFIGS = {
  llama: { ...TINY.llama, ...WIDE, head_dim: 64 },
  "llama with a head of its own": { ...TINY.llama, ...WIDE, head_dim: 64, tie_word_embeddings: false },
  mixtral: {
    ...TINY.llama,
    ...WIDE,
    head_dim: 64,
    model_type: "mixtral",
    num_local_experts: 3,
    num_experts_per_tok: 2,
  },
  gpt2: { ...TINY.gpt2, n_embd: 256, n_head: 4, n_layer: 1, layer_norm_epsilon: 2 ** -14 },
  gemma2: { ...TINY.gemma2, ...WIDE, head_dim: 64 },
  deepseek_v3: { ...TINY.deepseek_v3, ...WIDE, num_hidden_layers: 2, moe_intermediate_size: 256, ...LATENT },
};

/** Types of GGUF by number: elements and bytes of a block. One of each layout in memory, and of each number of inputs. */
const TYPES: readonly (readonly [type: number, length: number, bytes: number])[] = [
  ...([
    [0, 1, 4],
    [1, 1, 2],
    [2, 32, 18],
    [3, 32, 20],
    [8, 32, 34],
    [10, 256, 84],
    [12, 256, 144],
  ] as const),
  ...([
    [14, 256, 210],
    [16, 256, 66],
    [30, 1, 2],
    [39, 32, 17],
  ] as const),
];

/** A GGUF file whose matrices are of types that `pick` gives; the weights of most types are all 0. */
function mixedGguf(
  { metadata, tensors }: GgufModel,
  pick: (name: string) => (typeof TYPES)[number],
): Uint8Array<ArrayBuffer> {
  const mixed = tensors.map((tensor): Written => {
    const [type, length, bytes] = pick(tensor.name);
    if (!isWeight(tensor) || type === 0) return tensor;
    return { ...tensor, type, bytes: new Uint8Array((tensor.bytes.length / 4 / length) * bytes) };
  });
  return writeGguf({ metadata, tensors: mixed });
}

/** Whether a tensor is a matrix; routers, tables of positions and biases are float32 whatever they are stored in. */
const isWeight = ({ name, shape }: Written) => shape.length > 1 && !/ffn_gate_inp|position_embd|bias$/.test(name);

/** The decoder of a configuration, without biases of latent attention, which GGUF has none of. */
const modelOf = (config: object) =>
  ggufModel(config, new Map([...tinyTensors(config)].filter(([name]) => !/self_attn\.\w+\.bias$/.test(name))));

const WEIGHTS: readonly LoadModelOptions["weights"][] = [
  undefined,
  { mlp: "f32" },
  { attention: "q8" },
  { embed: "f16" },
];

test.each(Object.entries(CONFIGS))(
  "%s of any mix of types: maxBytes counts each matrix, and what it names is what is used",
  async (_, config) => {
    const random = createRandom(5);
    const decoder = modelOf(config);
    for (let i = 0; i < 4; i++) {
      const file = mixedGguf(decoder, () => TYPES[random.int(0, TYPES.length - 1)] as (typeof TYPES)[number]);
      using kernels = await kernelsOf("simd");
      const before = kernels.usedBytes;
      const options = { gguf, weights: WEIGHTS[i % WEIGHTS.length], maxSeqLen: 40 };
      const { message } = await loadModel(kernels, file, { ...options, maxBytes: 0 }).catch((error) => error);
      const [total, weights] = [/expected (\d+) or more \((\d+) of weights/.exec(message) ?? []].flatMap((found) =>
        found.slice(1).map(Number),
      );
      expect(kernels.usedBytes).toBe(before);
      using model = await loadModel(kernels, file, { ...options, maxBytes: total });
      expect([model.bytes, kernels.usedBytes - before]).toEqual([weights, weights]);
      using session = createSession(model);
      forward(
        session,
        Array.from({ length: 40 }, (_, id) => id),
      );
      expect(kernels.usedBytes - before).toBe(total);
    }
  },
);

test("each matrix of integers is refused without kernels for it, before anything is read, unless float32 is asked for", async () => {
  using kernels = await loadKernels({ ...modulesOf("simd"), quantized: undefined });
  const before = kernels.usedBytes;
  const [f32, q6k] = [TYPES[0], TYPES[7]] as (typeof TYPES)[number][];
  for (const config of sampled(Object.values(CONFIGS), 4)) {
    const decoder = modelOf(config);
    // Parts that are joined become float32.
    const matrices = decoder.tensors.filter((own) => isWeight(own) && !/attn_[kv]_b/.test(own.name));
    for (const own of sampled(matrices, 4, undefined, matrices.length)) {
      const file = mixedGguf(decoder, (name) => (name === own.name ? q6k : f32)!);
      const onProgress = vi.fn();
      const load = loadModel(kernels, file, { gguf, onProgress });
      const error = await load.then(
        () => new Error(`${own.name} was loaded`),
        (thrown) => thrown,
      );
      expect(error.message).toContain(`loadModel: format of tensor "${own.name}" expected "f32"`);
      expect(error.code).toBe("NO_QUANTIZED");
      expect(onProgress).not.toHaveBeenCalled();
      expect(kernels.usedBytes).toBe(before);
    }
    using model = await loadModel(
      kernels,
      mixedGguf(decoder, () => q6k!),
      { gguf, weights: "f32" },
    );
    expect(model.bytes).toBe(kernels.usedBytes - before);
  }
});

test("numbers of config.json that are too large for any file are refused at once, and leave nothing", async () => {
  using kernels = await kernelsOf("simd");
  const before = kernels.usedBytes;
  let [refused, tried] = [0, 0];
  for (const config of sampled(Object.values(TINY), 5)) {
    const tensors = tinyTensors(config);
    for (const [name, value] of Object.entries(config)) {
      if (typeof value !== "number") continue;
      for (const large of [1e6, 2e9]) {
        const begin = performance.now();
        tried++;
        try {
          (await loadModel(kernels, tinyFolder({ ...config, [name]: large }, tensors), { maxSeqLen: 8 })).release();
        } catch (error) {
          expect(error).toMatchObject({ code: "BAD_FILE" });
          refused++;
        }
        expect(performance.now() - begin).toBeLessThan(5000);
        expect(kernels.usedBytes).toBe(before);
      }
    }
  }
  expect(refused).toBeGreaterThan(tried / 4);
});

/** What loads a model, and runs it, from a file whose reads may fail. */
const LOADERS: Readonly<
  Record<string, (kernels: Kernels, files: (name: string) => Uint8Array | undefined) => Promise<void>>
> = {
  async decoder(kernels, files) {
    using model = await loadModel(kernels, files);
    using session = createSession(model, { maxSeqLen: 8 });
    forward(session, [1, 2, 3]);
  },
  async encoder(kernels, files) {
    using _model = await loadEncoder(kernels, files);
  },
  async halves(kernels, files) {
    using model = await loadSeq2Seq(kernels, files);
    using session = await readSource(model, sourceFor("bart", 9), { maxSeqLen: 8 });
    forward(session, [1, 2, 3]);
  },
};
const FOLDERS = {
  decoder: [tinyFolder(TINY.qwen2_moe), tinyFolder(TINY.phi), tinyFolder(TINY.deepseek_v3)],
  encoder: [encoderFolder("bert")],
  halves: [seq2seqFolder("bart")],
};

describe.each(Object.keys(LOADERS))("%s", (kind) => {
  test("whichever allocation fails, all that was allocated is free", async () => {
    for (const folder of FOLDERS[kind as keyof typeof FOLDERS]) {
      using kernels = await kernelsOf("simd");
      const before = kernels.usedBytes;
      const { memory } = kernels;
      const allocate = memory.allocate.bind(memory);
      let [left, isDone] = [0, false];
      const spy = vi.spyOn(memory, "allocate").mockImplementation((where, bytes) => {
        if (left-- === 0) throw new HeadwiseError("OUT_OF_MEMORY", `${where}: no more`);
        return allocate(where, bytes);
      });
      let failed = 0;
      for (let most = 0; !isDone; most++) {
        left = most;
        try {
          await LOADERS[kind]?.(kernels, folder);
          isDone = left >= 0;
        } catch (error) {
          expect(error).toMatchObject({ code: "OUT_OF_MEMORY" });
          failed++;
        }
        expect(memory.used - memory.scratchBytes).toBe(before);
      }
      expect(failed).toBeGreaterThanOrEqual(10);
      spy.mockRestore();
    }
  });
});
