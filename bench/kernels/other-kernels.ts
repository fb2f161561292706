// All other kernels on a prompt of 512 tokens, 8 heads of 64. The two products of the unfused path are compared with
// arithmetic, the others, which do little but read and write, with reading their input.

import { PAGE } from "../../assembly/layout.ts";
import { createPageLayout } from "../../src/layers/state/pages.ts";
import { reference } from "../../src/reference/index.ts";
import { AttentionShape, CacheShape, type KernelTable, type Reference, RopeShape } from "../../src/wasm/abi.ts";
import type { Build } from "../lib/builds.ts";
import { type Case, expectNear, type Prepared } from "../lib/case.ts";
import { randomFloats } from "../lib/random.ts";

const TOKENS = 512;
const HEADS = 8;
const DIM = 64;
const WIDTH = HEADS * DIM;
/** There is no mask, so every pair of a query and a key counts. */
const PAIRS = TOKENS * TOKENS;
const FAR = 2 ** 30;
/** Relative error: far above that of a correct kernel, far below that of a wrong one. */
const TOLERANCE = 2e-5;

type Name = keyof KernelTable;

interface CallOf<K extends Name> {
  readonly kernel: K;
  /** The arguments in the form of its twin. The first one is the output. */
  readonly args: () => Parameters<Reference[K]>;
  /** The index of the argument whose bytes it must read. */
  readonly reads: number;
  readonly flops: number;
  readonly limit: Case["limit"];
  readonly quick?: boolean;
}
type KernelCall = { [K in Name]: CallOf<K> }[Name];

const pages = () => Array.from({ length: TOKENS / PAGE }, (_, p) => randomFloats(2 * PAGE * DIM, p + 1));
const cacheShape = {
  numKvHeads: 1,
  headDim: DIM,
  valueDim: DIM,
  kStride: DIM,
  kHeadStride: DIM,
  vStride: DIM,
  vHeadStride: DIM,
};
const ropeShape = { numHeads: HEADS, headDim: DIM, ropeDim: DIM, interleaved: 0, stride: WIDTH };
const attentionShape = {
  ...{
    qLen: TOKENS,
    kvLen: TOKENS,
    qStart: 0,
    left: FAR,
    right: 0,
    numHeads: 1,
    numKvHeads: 1,
    headDim: DIM,
    valueDim: DIM,
  },
  ...{
    qStride: DIM,
    qHeadStride: DIM,
    outStride: DIM,
    outHeadStride: DIM,
    scale: 1 / 8,
    softcap: 0,
    slopes: null,
    sinks: null,
  },
  ...{ extraKey: null, extraValue: null, zeroKey: 0, keep: null, keepHeadStride: 0, keepRowStride: 0 },
  ...{ bias: null, biasHeadStride: 0, biasRowStride: 0, lse: null },
  formats: createPageLayout({ numKvHeads: 1, headDim: DIM, valueDim: DIM }).formats,
};
const rows = (seed: number) => randomFloats(TOKENS * WIDTH, seed);
const square = (seed: number) => randomFloats(TOKENS * TOKENS, seed);
const half = (seed: number) => randomFloats((TOKENS * DIM) / 2, seed);
const reading = { limit: "reading", flops: 0, reads: 1 } as const;

const calls: readonly KernelCall[] = [
  {
    ...reading,
    kernel: "rms_norm_f32",
    args: () => [rows(1), rows(2), randomFloats(WIDTH, 3), WIDTH, WIDTH, 1e-6, 0, TOKENS],
  },
  {
    ...reading,
    reads: 0,
    kernel: "rope_f32",
    args: () => [rows(1), half(2), half(3), ropeShape, 0, TOKENS],
    quick: true,
  },
  { ...reading, kernel: "split_heads_f32", args: () => [rows(1), rows(2), TOKENS, HEADS, DIM, 0, TOKENS] },
  { ...reading, kernel: "merge_heads_f32", args: () => [rows(1), rows(2), TOKENS, HEADS, DIM, 0, TOKENS] },
  {
    ...reading,
    kernel: "append_f32",
    args: () => [pages(), randomFloats(TOKENS * DIM, 1), randomFloats(TOKENS * DIM, 2), cacheShape, 0, 0, TOKENS],
  },
  {
    ...reading,
    reads: 0,
    kernel: "gather_f32",
    args: () => [randomFloats(TOKENS * DIM, 1), randomFloats(TOKENS * DIM, 2), pages(), cacheShape, 0, 0, TOKENS],
  },
  {
    kernel: "scores_f32",
    limit: "arithmetic",
    flops: 2 * DIM * PAIRS,
    reads: 1,
    args: () => [square(1), randomFloats(TOKENS * DIM, 2), pages(), attentionShape, 0, 0, 0, TOKENS],
    quick: true,
  },
  { ...reading, kernel: "masked_softmax_f32", args: () => [square(1), square(2), attentionShape, 0, 0, TOKENS] },
  {
    kernel: "weighted_sum_f32",
    limit: "arithmetic",
    flops: 2 * DIM * PAIRS,
    reads: 1,
    args: () => [randomFloats(TOKENS * DIM, 1), square(2), pages(), attentionShape, 0, 0, TOKENS],
  },
];

function prepare({ kernels, memory }: Build, { kernel, args, reads }: KernelCall): Prepared {
  const blocks: number[] = [];
  const allocate = (bytes: number) => blocks[blocks.push(memory.allocate("bench", bytes)) - 1] as number;
  const place = (value: unknown): number => {
    if (value === null) return 0;
    if (typeof value === "number") return value;
    if (value instanceof Float32Array) {
      const at = allocate(value.byteLength);
      memory.f32(at, value.length).set(value);
      return at;
    }
    if (Array.isArray(value)) {
      const at = allocate(4 * value.length);
      const addresses = value.map(place);
      memory.u32(at, value.length).set(addresses);
      return at;
    }
    const fields: unknown = Object.fromEntries(
      Object.entries(value as object).map(([name, field]) => [name, place(field)]),
    );
    if (value === cacheShape) {
      const at = allocate(CacheShape.bytes);
      CacheShape.store(memory.view(), at, fields as typeof cacheShape);
      return at;
    }
    if (value === ropeShape) {
      const at = allocate(RopeShape.bytes);
      RopeShape.store(memory.view(), at, fields as typeof ropeShape);
      return at;
    }
    const at = allocate(AttentionShape.bytes);
    AttentionShape.store(memory.view(), at, fields as Parameters<typeof AttentionShape.store>[2]);
    return at;
  };
  const given = args() as readonly unknown[];
  const addresses = given.map(place);
  const read = given[reads] as Float32Array;
  return {
    run: () => (kernels[kernel] as (...numbers: number[]) => void)(...addresses),
    reads: [{ at: addresses[reads] as number, length: read.byteLength }],
    check() {
      const twin = args() as unknown[];
      (reference[kernel] as (...values: unknown[]) => void)(...twin);
      const [first] = twin;
      const firstPage = (argument: unknown) => (Array.isArray(argument) ? argument[0] : argument) as Float32Array;
      const want = firstPage(first);
      if (firstPage(given[0]).every((value, i) => value === want[i]))
        throw new Error(`${kernel}: the call changes nothing, so its time means nothing`);
      const at = Array.isArray(first) ? memory.u32(addresses[0] as number, 1)[0] : addresses[0];
      expectNear(kernel, memory.f32(at as number, want.length), want, TOLERANCE);
    },
    release() {
      for (const at of blocks) memory.free(at);
    },
  };
}

export const otherCases: readonly Case[] = calls.map((call) => ({
  kernel: call.kernel,
  shape: `${TOKENS} tokens`,
  quick: call.quick === true,
  flops: call.flops,
  limit: call.limit,
  prepare: (build) => prepare(build, call),
}));
