// The codebooks of GGUF's formats of one to three bits, and what blocks with all of their entries stand for, beside digests of the
// Python package gguf 0.19, which has the tables and the reading of blocks from elsewhere. With numpy:
//
//   from gguf import GGMLQuantizationType, quants
//   quants.IQ3_S.init_grid()
//   sha256(quants.IQ3_S.grid.astype("i1").tobytes())                                   # of a codebook; IQ1 is that of IQ1_S
//   sha256(quants.dequantize(blocks, GGMLQuantizationType.IQ3_S).astype("<f4").tobytes())    # of the blocks below

import { createHash } from "node:crypto";
import { expect, test } from "vitest";
import { ELEMENTS } from "../../../../src/base/tensor/ggml-codebooks.ts";
import { openGguf, toFloats } from "../../../../src/entries/weights.ts";
import { writeGguf } from "../../../support/gguf-writer.ts";

const digestOf = (bytes: Uint8Array) => createHash("sha256").update(bytes).digest("hex");

/** Entries, digits of each, and the digest of all elements as bytes. */
const CODEBOOKS: Readonly<Record<keyof typeof ELEMENTS, readonly [number, 4 | 8, string]>> = {
  IQ1: [2048, 8, "07540ffc1aeaf6ad4d97e96b0fcc765aae39671d4ae4a27bbd0e796fde167c6a"],
  IQ2_XXS: [256, 8, "05826b5d3e472a3a78f196be62ac78acf81df0f909626e12ab9fa2a5d490dd54"],
  IQ2_XS: [512, 8, "06e47aaca60b4dc1d9b5a3f34540437058a6b142b4d7a59d5ded769b4d1bf1de"],
  IQ2_S: [1024, 8, "e1aa1473412b0552c2174c30ef22ab4073f6a181b85a17056e8249bd2932fd88"],
  IQ3_XXS: [256, 4, "46e35f5a997efdee6c99ce57854c8a0d4f0ff8ca57e5e8a60c0793ea580acf5d"],
  IQ3_S: [512, 4, "bd1af4945a1717c65610b0284e4628b9a1ba3b306fae3a06f6e5f597356e349f"],
};

test.each(Object.entries(CODEBOOKS))("every entry of the codebook %s is that of gguf", (name, [size, n, digest]) => {
  const elements = ELEMENTS[name as keyof typeof ELEMENTS]();
  expect(elements.length).toBe(size * n);
  expect(digestOf(new Uint8Array(elements.buffer))).toBe(digest);
});

/** The number of the type, the bytes of a block of 256 elements, and the digest of the values of 1024 blocks. */
const BLOCKS: Readonly<Record<string, readonly [number, number, string]>> = {
  IQ1_S: [19, 50, "3b2a1d79107d6be05315b29470979f64d930a7519925ea1b06e1cb34a75c7b7f"],
  IQ1_M: [29, 56, "2852f19068fe47ab21f1e2fa7c50e03c1c4af0f0b930720c815aeea72eb864bf"],
  IQ2_XXS: [16, 66, "2a8565f5e0e27d919216887744aa14fa9cf8a0d469eb5078b2de207a9cf1d597"],
  IQ2_XS: [17, 74, "9af4784c57ba0c22fffef21e7e56a9b6e502fbff0a50022bd6c7a5e012e15cde"],
  IQ2_S: [22, 82, "ccc6a053ac163d65c219b6ed446d26c27e1e40a10aa855ef652ab0e24ba880c3"],
  IQ3_XXS: [18, 98, "476614b245f71f7e6066e7a9cdf6aa57c6710d0280afcee227a0f0af6c52aef7"],
  IQ3_S: [21, 110, "b833281fc40e6a9b3476f8f93935cb73eedd70363d82bacebad55833d1dfa2a3"],
};

/**
 * Blocks of bytes (x >> 8) & 255, where x begins at 1 and is multiplied by 48271 modulo 2^31 - 1 for each, and with the scale 1: the first
 * two bytes as float16, and in IQ1_M the upper four bits of bytes 49, 51, 53 and 55.
 */
function blocksOf(name: string, count: number, length: number): Uint8Array {
  let x = 1;
  const bytes = Uint8Array.from({ length: count * length }, () => {
    x = (x * 48271) % (2 ** 31 - 1);
    return (x >> 8) & 255;
  });
  for (let at = 0; at < bytes.length; at += length) {
    if (name !== "IQ1_M") bytes.set([0, 0x3c], at);
    else
      for (const [i, upper] of [0, 0, 0xc0, 0x30].entries())
        bytes[at + 49 + 2 * i] = (bytes[at + 49 + 2 * i]! & 15) | upper;
  }
  return bytes;
}

test.each(Object.entries(BLOCKS))(
  "blocks of %s with all entries have the values that gguf gives, to the bit",
  async (name, [type, bytes, digest]) => {
    const tensor = { name: "w", type, shape: [1024 * 256], bytes: blocksOf(name, 1024, bytes) };
    const file = await openGguf(writeGguf({ tensors: [tensor] }));
    const values = toFloats(await file.read("w"));
    expect(digestOf(new Uint8Array(values.buffer, values.byteOffset, values.byteLength))).toBe(digest);
  },
);
