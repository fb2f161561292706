import { PAGE, ROW_STATE, SCRATCH_STRIP, TILE_ROWS } from "../assembly/layout.ts";
import { ATTENTION_SHAPE_BYTES, type AttentionShape, NULL, type Plain, storeAttentionShape } from "../src/abi.ts";
import { pointer } from "../src/memory.ts";
import { attention_f32 } from "../src/reference/attention.ts";
import { causalPairs } from "./block.ts";
import type { Build } from "./builds.ts";
import { type Case, expectNear, fill, type Prepared } from "./case.ts";
import { type AttentionSizes, attentionShapes, decodePasts, llamaBlock } from "./shapes.ts";

/** Relative error that a correct kernel stays far below, and a wrong one does not. */
const TOLERANCE = 2e-5;
/** A window side that reaches every key. */
const FAR = 2 ** 30;

function prepare(
  { kernels, memory }: Build,
  { qLen, kvLen, group, headDim, numKvHeads = 1 }: AttentionSizes,
): Prepared {
  const pages = Math.ceil(kvLen / PAGE);
  const pageFloats = numKvHeads * 2 * PAGE * headDim;
  const numHeads = numKvHeads * group;
  const rows = qLen * numHeads;
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
  const shape = {
    qLen,
    kvLen,
    qStart: kvLen - qLen,
    left: FAR,
    right: 0,
    numHeads,
    numKvHeads,
    headDim,
    valueDim: headDim,
    qStride: numHeads * headDim,
    qHeadStride: headDim,
    outStride: numHeads * headDim,
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
    reads: [{ at: at.pages, length: 4 * sizes.pages }],
    check() {
      const arrays = Object.fromEntries(absent.map((name) => [name, null]));
      const plain = { ...shape, ...arrays } as unknown as Plain<AttentionShape>;
      const parts = Array.from({ length: pages }, (_, p) => memory.f32(at.pages + 4 * p * pageFloats, pageFloats));
      const want = new Float32Array(sizes.out);
      for (const row of new Set([0, rows >> 1, rows - 1])) {
        attention_f32(want, view("q"), parts, new Float32Array(0), plain, row, row + 1);
        // Rows are numbered [kv head][token][head of the group], outputs lie [token][head].
        const [kvHead, t, g] = [Math.floor(row / (qLen * group)), Math.floor(row / group) % qLen, row % group];
        const begin = (t * numHeads + kvHead * group + g) * headDim;
        const got = view("out").subarray(begin, begin + headDim);
        expectNear("attention_f32", got, want.subarray(begin, begin + headDim), TOLERANCE);
      }
    },
    release() {
      for (const block of Object.values(at)) memory.free(block);
    },
  };
}

const caseOf = (sizes: AttentionSizes, shape: string): Case => ({
  kernel: "attention_f32",
  shape,
  quick: sizes.quick === true,
  flops: 4 * sizes.headDim * sizes.group * (sizes.numKvHeads ?? 1) * causalPairs(sizes.qLen, sizes.kvLen - sizes.qLen),
  limit: "arithmetic",
  prepare: (build) => prepare(build, sizes),
});

export const attentionCases: readonly Case[] = attentionShapes.map((sizes) => {
  const { qLen, kvLen, group, headDim } = sizes;
  return caseOf(sizes, qLen > 1 ? `prefill ${qLen} d${headDim}` : `decode ${kvLen} d${headDim} g${group}`);
});

/** What is left of a decode step without its projections, over all heads. */
export const decodeCoreCases: readonly Case[] = decodePasts.map((kvLen) => {
  const { model, dModel, numHeads, numKvHeads } = llamaBlock;
  const sizes = { qLen: 1, kvLen, group: numHeads / numKvHeads, headDim: dModel / numHeads, numKvHeads };
  return caseOf(sizes, `${model} past ${kvLen}`);
});
