import { join } from "node:path";
import { pathToFileURL } from "node:url";
import { ROW_STATE, SCRATCH_STRIP, TILE_ROWS } from "../../../assembly/layout.ts";
import type * as Headwise from "../../../src/entries/index.ts";
import type { Attention, Kernels, LoadOptions } from "../../../src/entries/index.ts";
import type * as Quantized from "../../../src/entries/quantized.ts";
import { FORMATS, linearShape, packedFloats, panelsOf } from "../../../src/layers/linear/formats.ts";

import { createPageLayout } from "../../../src/layers/state/pages.ts";
import { allocatePages, pageTable } from "../../../src/layers/state/table.ts";
import { pack_rows_f32 } from "../../../src/reference/linear.ts";
import { AttentionShape, CacheShape, type F32Ptr, LinearShape, NULL } from "../../../src/wasm/abi.ts";
import { pointer } from "../../../src/wasm/memory.ts";
import { prepareIntegerProduct } from "../headwise-int.ts";
import { root, versionIn } from "../packages.ts";
import type { Peer, Prepared } from "../peer.ts";
import type { Block, Core, Layer, Product, Step } from "../works.ts";

/** The packed entry point and not the sources, because users run the former. */
const bundle = join(root, "dist/index.js");
const quantizedBundle = join(root, "dist/quantized.js");

type Four = [number, number, number, number];

/** A window that includes every key. */
const FAR = 2 ** 30;

let headwise: typeof Headwise;
let quantized: typeof Quantized.quantized;

/** Linear memory never shrinks, so each work gets its own. */
function starting<W>(prepare: (kernels: Kernels, work: W) => Prepared, options?: LoadOptions) {
  return async (work: W) => prepare(await headwise.loadKernels(options), work);
}

/** The kernel, called as the projections of a layer call it. */
function prepareProduct(kernels: Kernels, { m, n, k, x, w }: Product): Prepared {
  const { memory, table } = kernels;
  const panels = panelsOf(n);
  const sizes = [packedFloats(n, k), n, m * k, m * n];
  const [wAt, biasAt, xAt, outAt] = sizes.map((length) => memory.allocate("bench", 4 * length)) as Four;
  pack_rows_f32(memory.f32(wAt, packedFloats(n, k)), w, n, k, 0, panels);
  memory.f32(biasAt, n).fill(0);
  const [out, from, weights, bias] = [outAt, xAt, wAt, biasAt].map(pointer.f32) as [F32Ptr, F32Ptr, F32Ptr, F32Ptr];
  const shape = pointer.linearShape(memory.allocate("bench", LinearShape.bytes));
  LinearShape.store(memory.view(), shape, linearShape(FORMATS.f32, { panels, k, outStride: n, xStride: k }));
  let y = new Float32Array();
  return {
    run() {
      memory.f32(xAt, m * k).set(x);
      table.linear_f32(out, from, weights, bias, shape, 0, m);
      y = memory.f32(outAt, m * n).slice();
    },
    output: () => y,
    release: () => kernels.release(),
  };
}

function createLayer(kernels: Kernels, layer: Layer): Attention {
  const { dModel, numHeads, numKvHeads, headDim, ropeTheta, wq, wk, wv, wo, bq, bk, bv, bo } = layer;
  const width = numHeads * headDim;
  const kvWidth = numKvHeads * headDim;
  const matrix = (data: Float32Array, rows: number, columns: number) => ({ data, shape: [rows, columns] });
  const rope = ropeTheta === undefined ? undefined : ({ theta: ropeTheta, pairing: "half" } as const);
  return headwise.createAttention(
    kernels,
    { dModel, numHeads, numKvHeads, causal: true, ...(rope && { rope }) },
    {
      wq: matrix(wq, width, dModel),
      wk: matrix(wk, kvWidth, dModel),
      wv: matrix(wv, kvWidth, dModel),
      wo: matrix(wo, dModel, width),
      ...{ bq, bk, bv, bo },
    },
  );
}

function prepareBlock(kernels: Kernels, { layer, x }: Block): Prepared {
  const attention = createLayer(kernels, layer);
  let y = new Float32Array();
  return {
    run() {
      y = headwise.attend(attention, x) as Float32Array<ArrayBuffer>;
    },
    output: () => y,
    release: () => kernels.release(),
  };
}

/** One more token, which is removed again, so that every run has the same past. */
function prepareStep(kernels: Kernels, { layer, past, x, pastX }: Step): Prepared {
  const attention = createLayer(kernels, layer);
  const cache = headwise.createCache(attention, { maxSeqLen: past + 1 });
  headwise.attend(attention, pastX, { cache });
  let y = new Float32Array();
  return {
    run() {
      y = headwise.attend(attention, x, { cache }) as Float32Array<ArrayBuffer>;
      cache.truncate(past);
    },
    output: () => y,
    release: () => kernels.release(),
  };
}

/** The kernel, called as a decode step calls it, over a cache that is already filled. */
function prepareCore(kernels: Kernels, { numHeads, numKvHeads, headDim, kvLen, q, k, v }: Core): Prepared {
  const { memory, table } = kernels;
  const dims = { numKvHeads, headDim, valueDim: headDim };
  const pages = pageTable(allocatePages("bench", kernels, createPageLayout(dims), 1, kvLen), 0);
  const place = (data: Float32Array) => {
    const at = memory.allocate("bench", data.byteLength);
    memory.f32(at, data.length).set(data);
    return at;
  };
  const [kAt, vAt, qAt, outAt] = [place(k), place(v), place(q), place(q)];
  const strides = { kStride: headDim, kHeadStride: kvLen * headDim, vStride: headDim, vHeadStride: kvLen * headDim };
  const cacheShape = pointer.cacheShape(memory.allocate("bench", CacheShape.bytes));
  CacheShape.store(memory.view(), cacheShape, { ...dims, ...strides });
  table.append_f32(pages, pointer.f32(kAt), pointer.f32(vAt), cacheShape, 0, 0, kvLen);

  const scratch = memory.allocate("bench", 4 * (TILE_ROWS * (ROW_STATE + 2 * headDim) + SCRATCH_STRIP));
  const shape = pointer.attentionShape(memory.allocate("bench", AttentionShape.bytes));
  AttentionShape.store(memory.view(), shape, {
    ...dims,
    ...{ qLen: 1, kvLen, qStart: kvLen - 1, left: FAR, right: 0, numHeads },
    ...{ qStride: q.length, qHeadStride: headDim, outStride: q.length, outHeadStride: headDim },
    ...{ scale: 1 / Math.sqrt(headDim), softcap: 0, slopes: NULL, sinks: NULL },
    ...{ extraKey: NULL, extraValue: NULL, zeroKey: 0, keep: NULL, keepHeadStride: 0, keepRowStride: 0 },
    ...{ bias: NULL, biasHeadStride: 0, biasRowStride: 0, lse: NULL, formats: 0 },
  });
  let y = new Float32Array();
  return {
    run() {
      memory.f32(qAt, q.length).set(q);
      table.attention_f32(pointer.f32(outAt), pointer.f32(qAt), pages, pointer.f32(scratch), shape, 0, numHeads);
      y = memory.f32(outAt, q.length).slice();
    },
    output: () => y,
    release: () => kernels.release(),
  };
}

export const peer: Peer = {
  name: "headwise",
  version: versionIn(join(root, "package.json")),
  column: 0,
  async load() {
    headwise = (await import(pathToFileURL(bundle).href)) as typeof Headwise;
    ({ quantized } = (await import(pathToFileURL(quantizedBundle).href)) as typeof Quantized);
  },
  ways(work) {
    const prepare = () => {
      switch (work.kind) {
        case "product":
          return starting(prepareProduct)(work);
        case "integer product":
          return starting(prepareIntegerProduct, { quantized })(work);
        case "block":
          return starting(prepareBlock)(work);
        case "core":
          return starting(prepareCore)(work);
        case "step":
          return starting(prepareStep)(work);
      }
    };
    return [{ name: "plain", prepare }];
  },
  shipped: {
    source: `export { attend, createAttention, loadKernels } from ${JSON.stringify(bundle)};`,
    assets: [],
  },
};
