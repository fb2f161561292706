import { FORMAT_F16, FORMAT_F32, PAGE, PANEL } from "../../assembly/layout.ts";
import type { AttentionShape, CacheShape, Page, Plain, Reference } from "../wasm/abi.ts";
import { append_f32, attention_f32 } from "./attention.ts";

import { narrowF16, quantized, widenF16 } from "./numbers.ts";

// The kernels of latent attention. A page holds pairs of tokens: by turns 4 components of the one and of the other, as
// floats or halves; or integers, by turns one of each, and behind them the scales of all latents and of all rotated keys.

const wholePanels = (components: number): number => PANEL * Math.ceil(components / PANEL);
const dimOf = ({ headDim, valueDim }: Plain<CacheShape>): number => wholePanels(headDim) + wholePanels(valueDim);

/** The numbers of a page, and its scales. */
interface Numbers {
  get(slot: number, d: number): number;
  set(slot: number, d: number, x: number): void;
  /** Part 0 is latents, part 1 rotated keys. */
  scale(slot: number, part: number): number;
  setScale(slot: number, part: number, scale: number): void;
  readonly isInteger: boolean;
}

function numbersOf(pages: readonly Page[], position: number, dim: number): Numbers {
  const page = pages[Math.floor(position / PAGE)] as Page;
  const pairAt = (slot: number): number => 2 * dim * Math.floor(slot / 2);
  const floatAt = (slot: number, d: number): number => pairAt(slot) + 8 * Math.floor(d / 4) + 4 * (slot % 2) + (d % 4);
  const none = { scale: () => 1, setScale: () => {}, isInteger: false };
  if (!("bytes" in page))
    return {
      ...none,
      get: (slot, d) => page[floatAt(slot, d)]!,
      set(slot, d, x) {
        page[floatAt(slot, d)] = x;
      },
    };
  const format = page.formats & 3;
  const view = new DataView(page.bytes.buffer, page.bytes.byteOffset, page.bytes.byteLength);
  if (format === FORMAT_F32)
    return {
      ...none,
      get: (slot, d) => view.getFloat32(4 * floatAt(slot, d), true),
      set: (slot, d, x) => view.setFloat32(4 * floatAt(slot, d), x, true),
    };
  if (format === FORMAT_F16)
    return {
      ...none,
      get: (slot, d) => widenF16(view.getUint16(2 * floatAt(slot, d), true)),
      set: (slot, d, x) => view.setUint16(2 * floatAt(slot, d), narrowF16(x), true),
    };
  const codeAt = (slot: number, d: number): number => pairAt(slot) + 2 * d + (slot % 2);
  const scaleAt = (slot: number, part: number): number => PAGE * dim + 4 * (PAGE * part + slot);
  return {
    get: (slot, d) => view.getInt8(codeAt(slot, d)),
    set: (slot, d, x) => view.setInt8(codeAt(slot, d), x),
    scale: (slot, part) => view.getFloat32(scaleAt(slot, part), true),
    setScale: (slot, part, scale) => view.setFloat32(scaleAt(slot, part), scale, true),
    isInteger: true,
  };
}

/** pages[past + t] = the latent k[t] [headDim] and the rotated key v[t] [valueDim], each with zeros up to whole panels. */
export const append_latents: Reference["append_latents"] = (pages, k, v, shape, past, begin, end) => {
  const { headDim, valueDim, kStride, vStride } = shape;
  const dim = dimOf(shape);
  const rank = wholePanels(headDim);
  for (let t = begin; t < end; t++) {
    const numbers = numbersOf(pages, past + t, dim);
    const slot = (past + t) % PAGE;
    const store = (row: Float32Array, part: number, first: number, behind: number) => {
      const codes = numbers.isInteger ? quantized(row, 127) : undefined;
      if (codes) numbers.setScale(slot, part, codes.scale);
      for (let d = first; d < behind; d++) numbers.set(slot, d, (codes?.integers ?? row)[d - first] ?? 0);
    };
    store(k.subarray(t * kStride, t * kStride + headDim), 0, 0, rank);
    store(v.subarray(t * vStride, t * vStride + valueDim), 1, rank, dim);
  }
};

/** k[t], v[t] = pages[past + t], as floats. */
export const gather_latents: Reference["gather_latents"] = (k, v, pages, shape, past, begin, end) => {
  const { headDim, valueDim, kStride, vStride } = shape;
  const dim = dimOf(shape);
  const rank = wholePanels(headDim);
  for (let t = begin; t < end; t++) {
    const numbers = numbersOf(pages, past + t, dim);
    const slot = (past + t) % PAGE;
    for (let d = 0; d < headDim; d++) k[t * kStride + d] = numbers.get(slot, d) * numbers.scale(slot, 0);
    for (let d = 0; d < valueDim; d++) v[t * vStride + d] = numbers.get(slot, rank + d) * numbers.scale(slot, 1);
  }
};

/**
 * attention_f32 of one kv head, whose keys are latents and rotated keys, [headDim] together, and whose values are the first
 * valueDim components of latents. If pages have integers, queries have 14 bits in each of the two parts; the kernel also
 * rounds softmax weights to 14 bits, and this twin does not.
 */
export const attention_latents: Reference["attention_latents"] = (out, q, pages, scratch, shape, begin, end) => {
  const { headDim, valueDim, kvLen, qLen, numHeads, qStride, qHeadStride } = shape;
  const rank = wholePanels(valueDim);
  const plain = pages.map(() => new Float32Array(PAGE * (headDim + rank)));
  const key = new Float32Array(headDim);
  const token = { numKvHeads: 1, headDim, valueDim, kStride: 0, kHeadStride: 0, vStride: 0, vHeadStride: 0 };
  let isInteger = false;
  for (let j = 0; j < kvLen; j++) {
    const numbers = numbersOf(pages, j, headDim);
    isInteger ||= numbers.isInteger;
    for (let d = 0; d < headDim; d++) key[d] = numbers.get(j % PAGE, d) * numbers.scale(j % PAGE, d < rank ? 0 : 1);
    append_f32(plain, key, key, token, j, 0, 1);
  }
  const rounded = isInteger ? q.slice() : q;
  // As the kernel scales queries before they become integers.
  const factor = Math.fround(shape.softcap > 0 ? shape.scale / shape.softcap : shape.scale * Math.LOG2E);
  for (let i = 0; isInteger && i < qLen * numHeads; i++) {
    const at = Math.floor(i / numHeads) * qStride + (i % numHeads) * qHeadStride;
    for (const [first, behind] of [
      [0, rank],
      [rank, headDim],
    ] as const) {
      const { integers, scale } = quantized(
        q.subarray(at + first, at + behind).map((x) => x * factor),
        8191,
      );
      rounded.set(
        integers.map((x) => (x * scale) / factor),
        at + first,
      );
    }
  }
  attention_f32(out, rounded, plain, scratch, { ...shape, formats: 0 } as Plain<AttentionShape>, begin, end);
};
