// Matrices that are packed in several parts, in formats whose blocks have minimums, beside them or apart; experts of few bits.

import { expect, test } from "vitest";
import { widenGgml } from "../../../../src/base/tensor/ggml-blocks.ts";
import { forward } from "../../../../src/models/decoder/forward.ts";
import { createSession } from "../../../../src/models/decoder/session.ts";
import { loadModel, planModelFiles } from "../../../../src/models/load/load-model.ts";
import { gguf } from "../../../../src/models/spec/read-gguf.ts";
import { createRandom } from "../../../../src/tools/diagnostics/random.ts";
import { writeGguf } from "../../../support/gguf-writer.ts";
import { kernelsOf } from "../../../support/layers.ts";
import { ggufModel } from "../../../support/tiny-gguf.ts";
import { tinyTensors } from "../../../support/tiny-models.ts";

const PHI3 = {
  ...{ model_type: "phi3", hidden_size: 256, intermediate_size: 256, num_hidden_layers: 1, vocab_size: 1652 },
  ...{ num_attention_heads: 4, num_key_value_heads: 2, max_position_embeddings: 512, rms_norm_eps: 2 ** -14 },
  tie_word_embeddings: false,
};

test.each([
  ["Q4_K", 12, 144],
  ["Q5_K", 13, 176],
  ["IQ4_XS", 23, 136],
] as const)(
  "a head of %s that is packed in several parts gives the logits of its floats within 1 %",
  async (_name, type, size) => {
    using kernels = await kernelsOf("simd");
    const random = createRandom(3);
    const model = ggufModel(PHI3, tinyTensors(PHI3));
    const tensors = model.tensors.map((tensor) => {
      if (tensor.name !== "output.weight") return tensor;
      const bytes = Uint8Array.from({ length: (tensor.bytes.length / 4 / 256) * size }, () => random.int(0, 255));
      // Scales of about 3e-4 and minimums of about 2e-3, as float16; the former alone.
      for (let at = 0; at < bytes.length; at += size)
        bytes.set([0xea, 0x0c, 0x19, 0x18].slice(0, type === 23 ? 2 : 4), at);
      return { ...tensor, type, bytes };
    });
    const logitsOf = async (weights?: "f32") => {
      using loaded = await loadModel(kernels, writeGguf({ ...model, tensors }), { gguf, weights });
      using session = createSession(loaded, { maxSeqLen: 8 });
      return forward(session, [1, 2, 3]).logits.slice();
    };
    const [got, want] = [await logitsOf(), await logitsOf("f32")];
    const most = Math.max(...want.map(Math.abs));
    expect(Math.max(...got.map((x, i) => Math.abs(x - (want[i] as number)))) / most).toBeLessThan(0.01);
    expect(got).not.toEqual(want);
  },
);

const GPT_OSS = {
  ...{ model_type: "gpt_oss", hidden_size: 96, intermediate_size: 192, num_hidden_layers: 1, vocab_size: 67 },
  ...{ num_attention_heads: 4, num_key_value_heads: 2, head_dim: 32, num_local_experts: 3, num_experts_per_tok: 2 },
  ...{ sliding_window: 9, max_position_embeddings: 512, rms_norm_eps: 2 ** -14, tie_word_embeddings: false },
};

const isExpert = (name: string) => /ffn_(gate|up|down)_exps\.weight$/.test(name);

/** A file whose experts are MXFP4, or float32 of the same values. */
function expertsOf(exact: boolean): Uint8Array {
  const random = createRandom(9);
  const model = ggufModel(GPT_OSS, tinyTensors(GPT_OSS));
  const tensors = model.tensors.map((tensor) => {
    if (!isExpert(tensor.name)) return tensor;
    // Exponents of 2^-6.
    const blocks = Uint8Array.from({ length: (tensor.bytes.length / 4 / 32) * 17 }, (_, i) =>
      i % 17 === 0 ? 121 : random.int(0, 255),
    );
    const floats = new Float32Array((blocks.length / 17) * 32);
    widenGgml("MXFP4", blocks, new Uint8Array(0), floats);
    return exact ? { ...tensor, bytes: new Uint8Array(floats.buffer) } : { ...tensor, type: 39, bytes: blocks };
  });
  return writeGguf({ ...model, tensors });
}

test("experts of MXFP4 take 4.25 bits a weight, as planned, and give the logits of their floats within 1 %", async () => {
  using kernels = await kernelsOf("simd");
  const logitsOf = async (source: Uint8Array) => {
    using loaded = await loadModel(kernels, source, { gguf, maxSeqLen: 16 });
    expect(loaded.bytes).toBe((await planModelFiles(source, { gguf, maxSeqLen: 16 })).weights);
    using session = createSession(loaded, { maxSeqLen: 8 });
    return forward(session, [1, 2, 3]).logits.slice();
  };
  const [got, want] = [await logitsOf(expertsOf(false)), await logitsOf(expertsOf(true))];
  const most = Math.max(...want.map(Math.abs));
  expect(Math.max(...got.map((x, i) => Math.abs(x - (want[i] as number)))) / most).toBeLessThan(0.01);
  expect(got).not.toEqual(want);
  const planOf = async (exact: boolean) => (await planModelFiles(expertsOf(exact), { gguf })).weights;
  // 3 experts of 3 matrices.
  expect((await planOf(true)) - (await planOf(false))).toBe(9 * 96 * 192 * (4 - 4.25 / 8));
});

test("the experts of a layer of gpt-oss-20b are planned as 423 MB in MXFP4, where int8 takes 945", async () => {
  const lengths = new Map(Object.entries({ 96: 2880, 192: 2880, 128: 4096, 64: 512, 67: 201_088, 4: 64, 3: 32 }));
  const real = {
    ...{ ...GPT_OSS, hidden_size: 2880, intermediate_size: 2880, vocab_size: 201_088, num_local_experts: 32 },
    ...{ num_attention_heads: 64, num_key_value_heads: 8, head_dim: 64, num_experts_per_tok: 4, sliding_window: 128 },
  };
  const { metadata } = ggufModel(real, tinyTensors(GPT_OSS));
  const planOf = async (type: number, block: number) => {
    let offset = 0;
    const tensors = ggufModel(GPT_OSS, tinyTensors(GPT_OSS)).tensors.map((tensor) => {
      const shape = tensor.shape.map((n) => lengths.get(`${n}`) ?? n);
      const count = shape.reduce((a, b) => a * b);
      const own = { ...tensor, shape, offset, ...(isExpert(tensor.name) && { type }), bytes: new Uint8Array(0) };
      offset += Math.ceil((isExpert(tensor.name) ? (count / 32) * block : 4 * count) / 32) * 32;
      return own;
    });
    // A header, and of the rest only its length.
    const header = writeGguf({ metadata, tensors });
    const read = async (at: number, n: number) => {
      const bytes = new Uint8Array(n);
      bytes.set(header.subarray(at, at + n));
      return bytes;
    };
    return (await planModelFiles({ size: Math.ceil(header.length / 32) * 32 + offset, read }, { gguf })).weights;
  };
  const experts = 32 * 3 * 2880 ** 2;
  expect(experts * (4.25 / 8)).toBe(423_014_400);
  // Int8 have float32 scales and sums of 16 bits.
  expect((await planOf(8, 34)) - (await planOf(39, 17))).toBe(experts * ((9.5 - 4.25) / 8));
});
