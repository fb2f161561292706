import { PAGE, ROW_STATE, SCRATCH_STRIP, TILE_ROWS } from "../assembly/layout.ts";
import { ATTENTION_SHAPE_BYTES, type AttentionShape, NULL, type Plain, storeAttentionShape } from "../src/abi.ts";
import { pointer } from "../src/memory.ts";
import { attention_f32 } from "../src/reference/attention.ts";
import type { Build } from "./builds.ts";
import { type Case, expectNear, fill, type Prepared } from "./case.ts";
import { type AttentionSizes, attentionShapes } from "./shapes.ts";

/** Relative error that a correct kernel stays far below, and a wrong one does not. */
const TOLERANCE = 2e-5;
/** A window side that reaches every key. */
const FAR = 2 ** 30;

function prepare({ kernels, memory }: Build, { qLen, kvLen, group, headDim }: AttentionSizes): Prepared {
  const pages = Math.ceil(kvLen / PAGE);
  const pageFloats = 2 * PAGE * headDim;
  const rows = qLen * group;
  const sizes = {
    out: rows * headDim,
    q: rows * headDim,
    pages: pages * pageFloats,
    table: pages,
    scratch: TILE_ROWS * (ROW_STATE + 2 * headDim) + SCRATCH_STRIP,
    shape: ATTENTION_SHAPE_BYTES / 4,
  };
  const at = Object.fromEntries(
    Object.entries(sizes).map(([name, length]) => [name, memory.allocate("bench", 4 * length)]),
  ) as Record<keyof typeof sizes, number>;
  const view = (name: keyof typeof sizes) => memory.f32(at[name], sizes[name]);

  fill(view("q"), 1);
  fill(view("pages"), 2);
  memory.u32(at.table, pages).set(Array.from({ length: pages }, (_, p) => at.pages + 4 * p * pageFloats));
  // One kv head and its group of query heads: what a call over more heads does, once for each.
  const shape = {
    qLen,
    kvLen,
    qStart: kvLen - qLen,
    left: FAR,
    right: 0,
    numHeads: group,
    numKvHeads: 1,
    headDim,
    valueDim: headDim,
    qStride: group * headDim,
    qHeadStride: headDim,
    outStride: group * headDim,
    outHeadStride: headDim,
    scale: 1 / Math.sqrt(headDim),
    softcap: 0,
    zeroKey: 0,
    keepHeadStride: 0,
    keepRowStride: 0,
    biasHeadStride: 0,
    biasRowStride: 0,
  };
  const absent = ["slopes", "sinks", "extraKey", "extraValue", "keep", "bias", "lse"] as const;
  const pointers = Object.fromEntries(absent.map((name) => [name, NULL])) as Record<
    (typeof absent)[number],
    typeof NULL
  >;
  storeAttentionShape(memory.view(), at.shape, { ...shape, ...pointers });
  const address = at.shape as Parameters<typeof kernels.attention_f32>[4];

  return {
    run: () =>
      kernels.attention_f32(
        pointer.f32(at.out),
        pointer.f32(at.q),
        pointer.pages(at.table),
        pointer.f32(at.scratch),
        address,
        0,
        rows,
      ),
    bytes: { at: at.pages, length: 4 * sizes.pages },
    check() {
      const arrays = Object.fromEntries(absent.map((name) => [name, null]));
      const plain = { ...shape, ...arrays } as unknown as Plain<AttentionShape>;
      const parts = Array.from({ length: pages }, (_, p) => memory.f32(at.pages + 4 * p * pageFloats, pageFloats));
      const want = new Float32Array(sizes.out);
      for (const row of new Set([0, rows >> 1, rows - 1])) {
        attention_f32(want, view("q"), parts, new Float32Array(0), plain, row, row + 1);
        const got = view("out").subarray(row * headDim, (row + 1) * headDim);
        expectNear("attention_f32", got, want.subarray(row * headDim, (row + 1) * headDim), TOLERANCE);
      }
    },
    release() {
      for (const block of Object.values(at)) memory.free(block);
    },
  };
}

/** Pairs of a query and a key that it attends. */
function visiblePairs({ qLen, kvLen, group }: AttentionSizes): number {
  return group * (qLen * (kvLen - qLen) + (qLen * (qLen + 1)) / 2);
}

export const attentionCases: readonly Case[] = attentionShapes.map((sizes) => ({
  kernel: "attention_f32",
  shape:
    sizes.qLen > 1
      ? `prefill ${sizes.qLen} d${sizes.headDim}`
      : `decode ${sizes.kvLen} d${sizes.headDim} g${sizes.group}`,
  quick: sizes.quick === true,
  flops: 4 * sizes.headDim * visiblePairs(sizes),
  limit: "arithmetic",
  prepare: (build) => prepare(build, sizes),
}));
