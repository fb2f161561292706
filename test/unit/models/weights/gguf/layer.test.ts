// The layer that a GGUF file makes: its weights, and what is read for them.

import { describe, expect, test } from "vitest";
import {
  attend,
  createAttention,
  type SeparateWeights,
  type StoredTensor,
  type Tensor,
} from "../../../../../src/entries/core.ts";
import {
  type ByteSource,
  openGguf,
  permuteRope,
  readAttentionWeights,
  readGgufLayer,
  toFloats,
  writeSafetensors,
} from "../../../../../src/entries/weights.ts";
import { createRandom } from "../../../../../src/tools/diagnostics/random.ts";
import {
  DIMS,
  ENCODERS,
  keys,
  kv,
  layerOf,
  q,
  stored,
  tensors,
  vector,
  widen,
  zeros,
} from "../../../../support/gguf-layers.ts";
import { toQ8_0, writeGguf } from "../../../../support/gguf-writer.ts";
import { floats } from "../../../../support/harness.ts";
import { firstDifference, kernelsOf, matrix } from "../../../../support/layers.ts";

const random = createRandom(31);
describe("the layer it makes", () => {
  const layer = {
    q_proj: matrix(random, q, DIMS.dModel),
    k_proj: matrix(random, kv, DIMS.dModel),
    v_proj: matrix(random, kv, DIMS.dModel),
    o_proj: matrix(random, DIMS.dModel, q),
  };
  const bias = { q_proj: floats(random, q), k_proj: floats(random, kv), v_proj: floats(random, kv) };
  const ours = { q_proj: "attn_q", k_proj: "attn_k", v_proj: "attn_v", o_proj: "attn_output" } as const;
  const heads = { q_proj: DIMS.numHeads, k_proj: DIMS.numKvHeads } as const;
  /** Rows as the file has them: those of queries and keys permuted for a llama. */
  const rows = (name: keyof typeof layer, weight: Tensor, permuted: boolean): Tensor =>
    permuted && (name === "q_proj" || name === "k_proj") ? permuteRope(weight, heads[name], "half") : weight;
  const names = Object.keys(layer) as (keyof typeof layer)[];
  const fileOf = (name: string, permuted: boolean, dtype: string) =>
    writeGguf({
      metadata: keys(name),
      tensors: [
        ...names.map((part) => stored(`blk.3.${ours[part]}.weight`, rows(part, layer[part], permuted), dtype)),
        ...(Object.keys(bias) as (keyof typeof bias)[]).map((part) => {
          const { data } = rows(part, { data: bias[part], shape: [bias[part].length] }, permuted);
          return vector(`blk.3.${ours[part]}.bias`, data);
        }),
      ],
    });
  const x = floats(random, 9 * DIMS.dModel);

  test.each(["F32", "F16", "Q8_0", "Q4_0"])(
    "a llama's permuted rows of %s give the y of the same layer from Hugging Face within 1e-6",
    async (dtype) => {
      using kernels = await kernelsOf("simd");
      // The rows of the checkpoint in the precision of the file.
      const [, encode] = ENCODERS[dtype] as (typeof ENCODERS)[string];
      const rounded = ({ data, shape }: Tensor) => {
        const bytes = encode(data);
        return { data: toFloats({ name: "w", dtype: dtype as "F16", shape, bytes }), shape };
      };
      const checkpoint = Object.fromEntries(
        names.flatMap((part) => [
          [`${part}.weight`, rounded(layer[part])],
          ...(part === "o_proj" ? [] : [[`${part}.bias`, { data: bias[part], shape: [bias[part].length] }]]),
        ]),
      );
      const hf = readAttentionWeights(writeSafetensors(checkpoint as Record<string, Tensor>));
      const rope = { theta: 10_000, pairing: "half" } as const;
      const want = attend(createAttention(kernels, { ...DIMS, causal: true, rope }, hf), x);

      const llama = await readGgufLayer(await openGguf(fileOf("llama", true, dtype)), 3);
      expect(llama.config.rope).toEqual({ theta: 10_000, pairing: "interleaved" });
      expect(llama.weights.wq?.dtype).toBe(dtype);
      const got = attend(createAttention(kernels, llama.config, widen(llama.weights)), x);
      const most = want.reduce((m, y) => Math.max(m, Math.abs(y)), 0);
      const far = (other: Float32Array) => other.reduce((m, y, i) => Math.max(m, Math.abs(y - want[i]!)), 0) / most;
      expect(far(got)).toBeLessThan(1e-6);
      const wrong = { ...llama.config, rope };
      expect(far(attend(createAttention(kernels, wrong, widen(llama.weights)), x))).toBeGreaterThan(0.1);

      // Rows that are moved back are those of the checkpoint, bit for bit, and so is y.
      const { wq, wk, bq, bk } = llama.weights;
      const back: SeparateWeights<StoredTensor> = {
        ...(llama.weights as SeparateWeights<StoredTensor>),
        wq: permuteRope(wq!, DIMS.numHeads, "interleaved"),
        wk: permuteRope(wk!, DIMS.numKvHeads, "interleaved"),
        bq: permuteRope({ data: bq!, shape: [q] }, DIMS.numHeads, "interleaved").data,
        bk: permuteRope({ data: bk!, shape: [kv] }, DIMS.numKvHeads, "interleaved").data,
      };
      expect(back.wq.bytes).toEqual(encode(layer.q_proj.data));
      expect(permuteRope(back.wq, DIMS.numHeads, "half")).toEqual(wq);
      const same = attend(createAttention(kernels, wrong, widen(back)), x);
      expect(firstDifference(same, want)).toBe(-1);

      // Architectures whose rows stay as they are need none of this.
      const qwen = await readGgufLayer(await openGguf(fileOf("qwen2", false, dtype)), 3);
      expect(qwen.config.rope?.pairing).toBe("half");
      expect(firstDifference(attend(createAttention(kernels, qwen.config, widen(qwen.weights)), x), want)).toBe(-1);
    },
  );

  test("only the bytes of the layer are read, in one go", async () => {
    const filler = (name: string) => stored(name, zeros(1024, 1024));
    const bytes = writeGguf({
      metadata: keys("llama"),
      tensors: [
        filler("token_embd.weight"),
        ...tensors(0),
        filler("blk.0.ffn_up.weight"),
        ...tensors(1),
        filler("output.weight"),
      ],
    });
    const log: number[] = [];
    const source: ByteSource = {
      size: bytes.length,
      async read(offset, length) {
        log.push(length);
        return bytes.subarray(offset, offset + length);
      },
    };
    const file = await openGguf(source);
    log.length = 0;
    await readGgufLayer(file, 1);
    expect(log).toEqual([(2 * q * DIMS.dModel + 2 * kv * DIMS.dModel) * 4]);
  });

  test("fused rows, biases, norms and sinks are those of the file", async () => {
    const fused = { weight: matrix(random, q + 2 * kv, DIMS.dModel), bias: floats(random, q + 2 * kv) };
    const more = { bo: floats(random, DIMS.dModel), sinks: floats(random, DIMS.numHeads) };
    const { config, weights } = await layerOf(keys("gpt2"), [
      stored("blk.0.attn_qkv.weight", fused.weight, "Q8_0"),
      vector("blk.0.attn_qkv.bias", fused.bias),
      stored("blk.0.attn_output.weight", zeros(DIMS.dModel, q), "F16"),
      vector("blk.0.attn_output.bias", more.bo),
      vector("blk.0.attn_sinks.weight", more.sinks),
      vector("blk.0.attn_norm.weight", floats(random, 7)),
      vector("blk.0.attn_output_norm.weight", floats(random, 7)),
    ]);
    expect(new Set(Object.keys(weights))).toEqual(new Set(["wqkv", "wo", "bqkv", "bo", "sinkLogits"]));
    expect(weights.wqkv).toEqual({
      name: "blk.0.attn_qkv.weight",
      dtype: "Q8_0",
      shape: [q + 2 * kv, DIMS.dModel],
      bytes: toQ8_0(fused.weight.data),
    });
    expect([weights.bqkv, weights.bo, weights.sinkLogits]).toEqual([fused.bias, more.bo, more.sinks]);
    expect(config).toEqual({ ...DIMS, causal: true });
    using kernels = await kernelsOf("simd");
    expect(attend(createAttention(kernels, config, widen(weights)), new Float32Array(DIMS.dModel)).length).toBe(64);
  });
});
