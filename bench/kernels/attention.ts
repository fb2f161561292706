import { PAGE } from "../../assembly/layout.ts";
import { workFloats } from "../../src/layers/attention/segment.ts";
import { LATENT_KIND } from "../../src/layers/latent/latents.ts";
import {
  type CacheFormat,
  checkCacheFormat,
  createPageLayout,
  entryOf,
  pageBytes,
  type Stage,
} from "../../src/layers/state/pages.ts";
import { attention_f32 } from "../../src/reference/attention.ts";
import { attention_latents } from "../../src/reference/latent.ts";
import { AttentionShape, CacheShape, NULL, type Page, type Plain } from "../../src/wasm/abi.ts";
import { pointer } from "../../src/wasm/memory.ts";
import type { Build } from "../lib/builds.ts";
import { type Case, expectNear, type Prepared } from "../lib/case.ts";
import { causalPairs } from "../lib/flops.ts";
import { fill } from "../lib/random.ts";
import { type AttentionSizes, attentionShapes, decodePasts, latentShapes, llamaLayer } from "../lib/shapes.ts";

/** Relative error: far above that of a correct kernel, far below that of a wrong one. */
const TOLERANCE = 2e-5;
/** The same for PV products with softmax weights of 14 bits. */
const INTEGER_TOLERANCE = 2e-4;
/** A window that includes every key. */
const FAR = 2 ** 30;

function prepare(
  { kernels, memory }: Build,
  { qLen, kvLen, group, headDim, numKvHeads = 1, ropeDim, ...sizes }: AttentionSizes,
  format: CacheFormat,
): Prepared {
  const pages = Math.ceil(kvLen / PAGE);
  const latent = ropeDim !== undefined;
  const valueDim = latent ? headDim - ropeDim : (sizes.valueDim ?? headDim);
  const dims = latent
    ? { numKvHeads, headDim: valueDim, valueDim: ropeDim, kind: LATENT_KIND }
    : { numKvHeads, headDim, valueDim };
  const layout = createPageLayout(dims, checkCacheFormat("bench", "format", format, dims));
  const { code } = layout.stages[0] as Stage;
  const pageFloats = pageBytes(layout, code) / 4;
  const [keyRow, valueRow] = [numKvHeads * dims.headDim, numKvHeads * dims.valueDim];
  const row = keyRow + valueRow;
  const numHeads = numKvHeads * group;
  const rows = qLen * numHeads;
  const floats = {
    out: rows * valueDim,
    q: rows * headDim,
    pages: pages * pageFloats,
    table: pages,
    scratch: workFloats({ headDim, valueDim, formats: layout.formats }),
    shape: AttentionShape.bytes / 4,
    cacheShape: CacheShape.bytes / 4,
    tokens: PAGE * row,
  };
  const at = Object.fromEntries(
    Object.entries(floats).map(([name, length]) => [name, memory.allocate("bench", 4 * length)]),
  ) as Record<keyof typeof floats, number>;
  const view = (name: keyof typeof floats) => memory.f32(at[name], floats[name]);

  const append = kernels[layout.kernels.append];
  const attend = kernels[layout.kernels.attention];

  fill(view("q"), 1);
  memory
    .u32(at.table, pages)
    .set(Array.from({ length: pages }, (_, p) => entryOf(at.pages + 4 * p * pageFloats, code)));
  const strides = { kStride: row, kHeadStride: dims.headDim, vStride: row, vHeadStride: dims.valueDim };
  CacheShape.store(memory.view(), at.cacheShape, { ...dims, ...strides });
  const [table, cacheShape] = [pointer.pages(at.table), pointer.cacheShape(at.cacheShape)];
  const [keys, values] = [pointer.f32(at.tokens), pointer.f32(at.tokens + 4 * keyRow)];
  for (let past = 0; past < kvLen; past += PAGE) {
    fill(view("tokens"), 2 + past);
    append(table, keys, values, cacheShape, past, 0, Math.min(PAGE, kvLen - past));
  }
  const shape = {
    qLen,
    kvLen,
    qStart: kvLen - qLen,
    left: FAR,
    right: 0,
    numHeads,
    numKvHeads,
    headDim,
    valueDim,
    qStride: numHeads * headDim,
    qHeadStride: headDim,
    outStride: numHeads * valueDim,
    outHeadStride: valueDim,
    scale: 1 / Math.sqrt(headDim),
    softcap: 0,
    zeroKey: 0,
    keepHeadStride: 0,
    keepRowStride: 0,
    biasHeadStride: 0,
    biasRowStride: 0,
    formats: layout.formats,
  };
  const absent = ["slopes", "sinks", "extraKey", "extraValue", "keep", "bias", "lse"] as const;
  const pointers = Object.fromEntries(absent.map((name) => [name, NULL])) as Record<
    (typeof absent)[number],
    typeof NULL
  >;
  AttentionShape.store(memory.view(), at.shape, { ...shape, ...pointers });
  const address = at.shape as Parameters<typeof kernels.attention_f32>[4];

  return {
    run: () =>
      attend(
        pointer.f32(at.out),
        pointer.f32(at.q),
        pointer.pages(at.table),
        pointer.f32(at.scratch),
        address,
        0,
        rows,
      ),
    reads: [{ at: at.pages, length: 4 * floats.pages }],
    check() {
      const arrays = Object.fromEntries(absent.map((name) => [name, null]));
      const plain = { ...shape, ...arrays } as unknown as Plain<AttentionShape>;
      const parts = Array.from({ length: pages }, (_, p): Page => {
        const start = at.pages + 4 * p * pageFloats;
        if (code === 0) return memory.f32(start, pageFloats);
        return { formats: code, bytes: memory.u8(start, 4 * pageFloats) };
      });
      const want = new Float32Array(floats.out);
      const tolerance = format === "f32" || format === "f16" ? TOLERANCE : INTEGER_TOLERANCE;
      for (const row of new Set([0, rows >> 1, rows - 1])) {
        const twin = latent ? attention_latents : attention_f32;
        twin(want, view("q"), parts, new Float32Array(0), plain, row, row + 1);
        // Rows are numbered [kv head][token][head of the group]; the output is stored [token][head].
        const [kvHead, t, g] = [Math.floor(row / (qLen * group)), Math.floor(row / group) % qLen, row % group];
        const begin = (t * numHeads + kvHead * group + g) * valueDim;
        const got = view("out").subarray(begin, begin + valueDim);
        expectNear(layout.kernels.attention, got, want.subarray(begin, begin + valueDim), tolerance);
      }
    },
    release() {
      for (const block of Object.values(at)) memory.free(block);
    },
  };
}

const kernelOf = ({ ropeDim }: AttentionSizes, format: CacheFormat) => {
  if (ropeDim !== undefined) return "attention_latents";
  return format === "f32" ? "attention_f32" : "attention_pages";
};

/** Operations of a query, a key and a head. */
const pairFlops = ({ headDim, valueDim = headDim, ropeDim }: AttentionSizes) =>
  2 * (headDim + (ropeDim === undefined ? valueDim : headDim - ropeDim));

const caseOf = (sizes: AttentionSizes, shape: string, format: CacheFormat = "f32"): Case => ({
  kernel: kernelOf(sizes, format),
  shape,
  quick: sizes.quick === true,
  flops: pairFlops(sizes) * sizes.group * (sizes.numKvHeads ?? 1) * causalPairs(sizes.qLen, sizes.kvLen - sizes.qLen),
  limit: "arithmetic",
  prepare: (build) => prepare(build, sizes, format),
});

/** One token over keys that stay in a CPU cache, one over 96 MB of keys and values, and a prompt of 512 tokens. */
const formatShapes: readonly AttentionSizes[] = [
  ...[64, 128].flatMap((headDim) =>
    [1, 4, 8].flatMap((group) => [
      { qLen: 1, kvLen: 1024, group, headDim },
      { qLen: 1, kvLen: 4096, group, headDim, numKvHeads: 3072 / headDim },
    ]),
  ),
  { qLen: 512, kvLen: 512, group: 1, headDim: 64 },
  { qLen: 512, kvLen: 512, group: 1, headDim: 128 },
];
const FORMATS = ["f32", "q8", "q4", "f16"] as const;

function nameOf({ qLen, kvLen, group, headDim, valueDim, ropeDim }: AttentionSizes): string {
  if (ropeDim !== undefined || valueDim !== undefined) {
    const what = ropeDim === undefined ? `expanded ${headDim}/${valueDim}` : `latents ${headDim - ropeDim}+${ropeDim}`;
    return qLen > 1 ? `prefill ${qLen} ${what}` : `decode ${kvLen} ${what}`;
  }
  if (qLen > 1) return `prefill ${qLen} d${headDim}`;
  return `decode ${kvLen} d${headDim} g${group}`;
}

export const attentionCases: readonly Case[] = [
  ...attentionShapes.map((sizes) => caseOf(sizes, nameOf(sizes))),
  ...formatShapes.flatMap((sizes) =>
    FORMATS.filter((format) => format !== "f32" || sizes.numKvHeads).map((format) =>
      caseOf(sizes, `${nameOf(sizes)} ${format}`, format),
    ),
  ),
  ...latentShapes.flatMap((sizes) =>
    (sizes.ropeDim === undefined ? (["f32"] as const) : (["f32", "f16", "q8"] as const)).map((format) =>
      caseOf(sizes, `${nameOf(sizes)}${format === "f32" ? "" : ` ${format}`}`, format),
    ),
  ),
];

/** A decode step without its projections, over all heads. */
export const decodeCoreCases: readonly Case[] = decodePasts.map((kvLen) => {
  const { model, dModel, numHeads, numKvHeads } = llamaLayer;
  const sizes = { qLen: 1, kvLen, group: numHeads / numKvHeads, headDim: dModel / numHeads, numKvHeads };
  return caseOf(sizes, `${model} past ${kvLen}`);
});
