// Matrices in the blocks that GGUF's other types become: packed as they are, in a format that was asked for, or refused.

import { afterAll, beforeAll, describe, expect, test } from "vitest";
import {
  type BlockTensor,
  CODED_BLOCKS,
  type CodedDtype,
  codeBits,
  decodedOf,
  decodeFloats,
  FILE_BLOCKS,
  type StoredTensor,
} from "../../../../src/base/tensor/dtypes.ts";
import { GGML_FORMATS, type GgmlDtype, ggmlBlocks } from "../../../../src/base/tensor/ggml-blocks.ts";
import { attend, createLinear, type Kernels, linear, type Tensor } from "../../../../src/entries/core.ts";
import { createLatentAttention } from "../../../../src/entries/latent.ts";
import { FORMATS, formatOf, WEIGHT_FORMATS } from "../../../../src/layers/linear/formats.ts";
import { createRandom } from "../../../../src/tools/diagnostics/random.ts";
import { floats } from "../../../support/harness.ts";
import { latentWeights } from "../../../support/latent-layers.ts";
import { kernelsOf } from "../../../support/layers.ts";

let kernels: Kernels;
beforeAll(async () => {
  kernels = await kernelsOf("simd");
});
afterAll(() => kernels.release());

const DTYPES = Object.keys(CODED_BLOCKS) as CodedDtype[];

const LATENT = {
  dModel: 24,
  numHeads: 2,
  kvLoraRank: 128,
  nopeDim: 32,
  ropeDim: 8,
  valueDim: 8,
  causal: true,
  rope: { theta: 100, pairing: "half" },
} as const;

/** Blocks of random integers, with scales and minimums around 1. */
function blocksOf(dtype: CodedDtype, n: number, k: number): StoredTensor {
  const random = createRandom(5);
  const { length, bytes } = CODED_BLOCKS[dtype];
  const all = new Uint8Array(((n * k) / length) * bytes);
  const view = new DataView(all.buffer);
  for (let at = 0; at < all.length; at += bytes) {
    // Codes have a scale of 1, as float16 or float32, or as 2^(128 - 128).
    const isCodes = codeBits(dtype) < 8;
    const head = dtype === "I4_K" ? 4 : dtype === "I4_XS" ? 2 : isCodes ? bytes - 16 : bytes - length;
    if (dtype === "I4_K") for (const half of [0, 2]) view.setUint16(at + half, 0x3c00, true);
    else if (dtype === "I4_MX") all[at] = 128;
    else if (dtype === "I4_NV") all.fill(0x40, at, at + 4);
    else if (bytes === 18 || dtype === "I4_XS") view.setUint16(at, 0x3c00, true);
    else for (let i = 0; i < head; i += 4) view.setFloat32(at + i, isCodes ? 1 : random.int(1, 9) / 8, true);
    for (let i = dtype === "I4_NV" ? 4 : head; i < bytes; i++)
      all[at + i] = random.int(0, dtype === "I4_32_MIN" ? 15 : 255);
  }
  const [ggml] = Object.entries(GGML_FORMATS).find(([, { coded }]) => coded === dtype) ?? [];
  const blocks = decodedOf(dtype) !== dtype ? ggmlBlocks(ggml as GgmlDtype, new Uint8Array(0)) : undefined;
  const stored: BlockTensor = { name: "w", dtype, shape: [n, k], bytes: all, [FILE_BLOCKS]: blocks };
  return stored;
}

describe.each(DTYPES)("%s", (dtype) => {
  // In the format that it is packed in, nothing is rounded again.
  const own = [dtype, decodedOf(dtype)].map((each) => formatOf({ dtype: each }, true));
  const others = WEIGHT_FORMATS.filter((format) => !own.includes(format));
  test.each(others)("asked for as %s, it is what its floats are", (weights) => {
    const [n, k] = [19, { I1_128: 128, I4_K: 256, I4_XS: 256 }[dtype as string] ?? (codeBits(dtype) < 8 ? 192 : 96)];
    const stored = blocksOf(dtype, n, k);
    const data = decodeFloats(stored, "");
    const x = floats(createRandom(6), 3 * k);
    using got = createLinear(kernels, { weight: stored, layout: "out-in" }, { weights });
    using want = createLinear(kernels, { weight: { data, shape: [n, k] }, layout: "out-in" }, { weights });
    expect(linear(got, x)).toEqual(linear(want, x));
  });

  test.each(others)("the matrix from latents to keys and values, as %s, is what its floats are", (weights) => {
    const config = { ...LATENT, kvLoraRank: Math.max(128, CODED_BLOCKS[dtype].length) };
    const given = latentWeights(createRandom(7), config);
    const shape = [2 * (32 + 8), config.kvLoraRank] as const;
    const stored = blocksOf(dtype, ...shape);
    const layerOf = (wkvUp: StoredTensor | Tensor) =>
      createLatentAttention(kernels, config, { ...given, wkvUp }, { weights });
    using got = layerOf(stored);
    using want = layerOf({ data: decodeFloats(stored, ""), shape });
    const x = floats(createRandom(8), 5 * LATENT.dModel);
    expect(attend(got, x)).toEqual(attend(want, x));
  });

  test("rows that are not of whole blocks are refused, and nothing is allocated", () => {
    const before = kernels.usedBytes;
    const block = Math.max(32, CODED_BLOCKS[dtype].length);
    const k = 1.5 * block;
    expect(() => createLinear(kernels, { weight: blocksOf(dtype, 8, k), layout: "out-in" })).toThrow(
      `createLinear: weight expected rows of whole blocks of ${block}, got shape [8, ${k}]`,
    );
    expect(kernels.usedBytes).toBe(before);
  });
});

test("only kernels that work in scratch are given any", () => {
  const formats = [...WEIGHT_FORMATS, "q8-16", "q8-min", "q8-16-min", "q4-min", "q4-k", "q2", "q2-row", "q1"] as const;
  const indices = ["iq4-nl", "iq4-xs", "mxfp4", "nvfp4"] as const;
  expect([...formats, ...indices].filter((format) => FORMATS[format].work > 0)).toEqual([
    "f16",
    "bf16",
    "q4",
    "q8-min",
    "q8-16-min",
    "q4-min",
    "q4-k",
    "q2",
    "q2-row",
    "q1",
    ...indices,
  ]);
});
