import { describe, expect, test } from "vitest";
import { PAGE } from "../../assembly/layout.ts";
import { append_f32, append_pages, gather_f32, gather_pages } from "../../src/reference/attention.ts";
import { pageBytes } from "../../src/reference/pages.ts";
import type { Page } from "../../src/wasm/abi.ts";
import { type Arguments, builds, copyArguments, createRandom, load, pieces, runKernel } from "../support/harness.ts";
import { sampled } from "../support/sampled.ts";

const random = createRandom(11);

/** Any 32 bits, signalling NaNs included. The twins see them as integers, because a float may not survive a copy. */
const words = (length: number) => Uint32Array.from({ length }, () => random.next() * 2 ** 32);
const asFloats = (data: Uint32Array) => new Float32Array(data.buffer);
const asWords = (data: Float32Array) => new Uint32Array(data.buffer, data.byteOffset, data.length);
const floatsOf = (pages: readonly Page[]) => pages as readonly Float32Array[];
const cheat = (data: Float32Array) => asWords(data) as unknown as Float32Array;

const poisons = [0x7fc12345, 0xffc00001, 0x7fffffff, 0x7f800001, 0x7f800000, 0x80000000, 0x00000001];

/** Fills rows with numbers of all sizes; some are not finite, some all zeros, some too small for integers. */
function numbers(data: Float32Array, stride: number): void {
  for (let at = 0; at < data.length; at += stride) {
    const size = [1, 1, 1, 1000, 1e-36, 0][random.int(0, 5)] as number;
    const row = data.subarray(at, at + stride);
    for (let i = 0; i < row.length; i++) row[i] = random.normal() * size;
    if (random.next() < 0.1) row[random.int(0, row.length - 1)] = [Number.NaN, Infinity, -Infinity][random.int(0, 2)]!;
  }
}

interface Case {
  readonly numKvHeads: number;
  readonly headDim: number;
  readonly valueDim: number;
  readonly past: number;
  readonly tokens: number;
}

const cases: Case[] = [
  { numKvHeads: 1, headDim: 8, valueDim: 8, past: 0, tokens: 8 },
  { numKvHeads: 2, headDim: 64, valueDim: 64, past: 0, tokens: 131 },
  { numKvHeads: 1, headDim: 4, valueDim: 8, past: 8, tokens: 15 },
  { numKvHeads: 3, headDim: 1, valueDim: 1, past: 5, tokens: 31 },
  { numKvHeads: 2, headDim: 31, valueDim: 17, past: 121, tokens: 16 },
  { numKvHeads: 1, headDim: 6, valueDim: 9, past: 127, tokens: 130 },
  { numKvHeads: 4, headDim: 67, valueDim: 7, past: 250, tokens: 1 },
  { numKvHeads: 1, headDim: 5, valueDim: 16, past: 128, tokens: 9 },
];

/** Everything a cache test needs: inputs between strides wider than a head, and pages full of other bits. */
function make({ numKvHeads, headDim, valueDim, past, tokens }: Case) {
  const shape = {
    numKvHeads,
    headDim,
    valueDim,
    kStride: numKvHeads * (headDim + 1) + 3,
    kHeadStride: headDim + 1,
    vStride: numKvHeads * (valueDim + 2),
    vHeadStride: valueDim + 2,
  };
  const k = words(tokens * shape.kStride);
  const v = words(tokens * shape.vStride);
  for (const [i, poison] of poisons.entries()) {
    k[(i * 5) % k.length] = poison;
    v[(i * 3) % v.length] = poison;
  }
  const pageFloats = numKvHeads * PAGE * (headDim + Math.ceil(valueDim / 8) * 8);
  const pages = Array.from({ length: Math.ceil((past + tokens) / PAGE) }, () => asFloats(words(pageFloats)));
  return { shape, k: asFloats(k), v: asFloats(v), pages };
}

describe.each(builds)("the cache in the %s build", (build) => {
  const instance = load(build);

  test.each(cases)("append_f32 leaves the bits of its twin, whole and split, for %o", (dims) => {
    const { shape, k, v, pages } = make(dims);
    const args: Arguments<"append_f32"> = [pages, k, v, shape, dims.past, 0, dims.tokens];
    const split = copyArguments<"append_f32">(args);
    const twin = copyArguments<"append_f32">(args);
    append_f32(floatsOf(twin[0]).map(cheat), cheat(k), cheat(v), shape, dims.past, 0, dims.tokens);
    runKernel(instance, "append_f32", args);
    expect(floatsOf(args[0]).map(asWords)).toEqual(floatsOf(twin[0]).map(asWords));
    for (const [begin, end] of pieces(random, dims.tokens)) {
      split[5] = begin;
      split[6] = end;
      runKernel(instance, "append_f32", split);
    }
    expect(floatsOf(split[0]).map(asWords)).toEqual(floatsOf(twin[0]).map(asWords));
  });

  test.each(cases)("gather_f32 leaves the bits of its twin and gives back what was appended, for %o", (dims) => {
    const { shape, k, v, pages } = make(dims);
    runKernel(instance, "append_f32", [pages, k, v, shape, dims.past, 0, dims.tokens]);
    const args: Arguments<"gather_f32"> = [
      k.slice().fill(7),
      v.slice().fill(7),
      pages,
      shape,
      dims.past,
      0,
      dims.tokens,
    ];
    const split = copyArguments<"gather_f32">(args);
    const twin = copyArguments<"gather_f32">(args);
    gather_f32(cheat(twin[0]), cheat(twin[1]), floatsOf(twin[2]).map(cheat), shape, dims.past, 0, dims.tokens);
    runKernel(instance, "gather_f32", args);
    expect([asWords(args[0]), asWords(args[1])]).toEqual([asWords(twin[0]), asWords(twin[1])]);
    for (const [begin, end] of pieces(random, dims.tokens)) {
      split[5] = begin;
      split[6] = end;
      runKernel(instance, "gather_f32", split);
    }
    expect([asWords(split[0]), asWords(split[1])]).toEqual([asWords(twin[0]), asWords(twin[1])]);
    for (let t = 0; t < dims.tokens; t++)
      for (let h = 0; h < dims.numKvHeads; h++) {
        const at = t * shape.kStride + h * shape.kHeadStride;
        const end = at + dims.headDim;
        expect(asWords(args[0]).subarray(at, end)).toEqual(asWords(k).subarray(at, end));
      }
  });

  test("append_pages and gather_pages leave the bytes of their twins on pages of any formats", () => {
    const all = Array.from({ length: 16 }, (_, formats) => cases.map((dims) => ({ formats, dims }))).flat();
    for (const { formats, dims } of sampled(all, 2, (each) => each.formats)) {
      const { shape, k, v } = make(dims);
      numbers(k, shape.kStride);
      numbers(v, shape.vStride);
      const length = pageBytes(formats, dims.numKvHeads, dims);
      const pages = Array.from({ length: Math.ceil((dims.past + dims.tokens) / PAGE) }, () => ({
        formats,
        bytes: new Uint8Array(words(length / 4).buffer),
      }));
      const args: Arguments<"append_pages"> = [pages, k, v, shape, dims.past, 0, dims.tokens];
      const split = copyArguments<"append_pages">(args);
      const twin = copyArguments<"append_pages">(args);
      append_pages(...twin);
      runKernel(instance, "append_pages", args);
      expect(args[0], `formats ${formats}`).toEqual(twin[0]);
      for (const [begin, end] of pieces(random, dims.tokens)) {
        split[5] = begin;
        split[6] = end;
        runKernel(instance, "append_pages", split);
      }
      expect(split[0], `formats ${formats}, split`).toEqual(twin[0]);

      const blank = [k.slice().fill(7), v.slice().fill(7)] as const;
      const given: Arguments<"gather_pages"> = [...blank, args[0], shape, dims.past, 0, dims.tokens];
      const read = copyArguments<"gather_pages">(given);
      runKernel(instance, "gather_pages", given);
      gather_pages(...read);
      expect([given[0], given[1]], `formats ${formats}, read`).toEqual([read[0], read[1]]);
    }
  });
});
