// Random attention calls, for the properties that hold for any of them: keys and values as plain arrays, pages made of them among
// any garbage, and the calls that must leave the same bits.

import {
  FORMAT_F16,
  FORMAT_F32,
  FORMAT_Q4,
  FORMAT_Q8,
  LATENT_PAGES,
  PAGE,
  PANEL,
  QUAD,
  QUERY_HEAD,
  ROW_STATE,
  SCRATCH_STRIP,
  TILE_ROWS,
} from "../../assembly/layout.ts";
import { kernelsFor } from "../../src/layers/state/pages.ts";
import { append_f32 } from "../../src/reference/attention.ts";
import { append_latents } from "../../src/reference/latent.ts";
import { pageBytes } from "../../src/reference/pages.ts";
import type { Random } from "../../src/tools/diagnostics/random.ts";
import type { AttentionShape, Page, Plain } from "../../src/wasm/abi.ts";
import type { Instance } from "../../src/wasm/modules.ts";
import { floats, runKernel } from "./harness.ts";

const UNBOUNDED = 1 << 30;
/** What many masks are made of: finite, so it excludes nothing by itself. */
const LOWEST_F32 = -(2 - 2 ** -23) * 2 ** 127;

/**
 * One attention call. k and v are [kvLen][numKvHeads][headDim or valueDim]; page p has formats[p], or all are floats. Where
 * pages are those of latent attention, v holds the first components of k.
 */
export interface Trial {
  readonly formats?: readonly number[];
  readonly shape: Plain<AttentionShape>;
  readonly q: Float32Array;
  readonly k: Float32Array;
  readonly v: Float32Array;
}

/** What a call left: floats as words, so that NaNs and zeros compare by their bits. */
export interface Left {
  readonly out: Uint32Array;
  readonly lse: Uint32Array;
}

/** The `formats` of a shape whose pages hold latents of a format. */
export const latentFormats = (format: number): number => LATENT_PAGES | (1 << format) | (16 << format);

const wholePanels = (components: number): number => PANEL * Math.ceil(components / PANEL);

/** The values of keys that are latents: the first components of each. */
export function valuesIn(k: Float32Array, headDim: number, valueDim: number): Float32Array {
  const words = new Uint32Array(k.buffer, k.byteOffset, k.length);
  const rows = k.length / headDim;
  const out = Uint32Array.from({ length: rows * valueDim }, (_, i) => {
    return words[Math.floor(i / valueDim) * headDim + (i % valueDim)] as number;
  });
  return new Float32Array(out.buffer);
}

/** A trial of attention_latents in which every rule, every size and every format has its chance. */
export function createLatentTrial(random: Random): Trial {
  const pick = (...from: readonly number[]) => from[random.int(0, from.length - 1)] as number;
  const format = pick(FORMAT_F32, FORMAT_F32, FORMAT_F16, FORMAT_Q8);
  const headDim = pick(8, 16, 24, 40, 64, 72, 136);
  const sizes = { numKvHeads: 1, headDim, valueDim: random.int(1, headDim), past: pick(0, 0, 1, 61, 126, 127, 254) };
  const { shape, k, ...trial } = createTrial(random, sizes);
  return inLatentFormat({ ...trial, k, v: valuesIn(k, headDim, sizes.valueDim), shape }, format);
}

/** The same trial with pages of latents of a format. */
export function inLatentFormat(trial: Trial, format: number): Trial {
  const formats = Array.from(
    { length: Math.ceil(Math.max(1, trial.shape.kvLen) / PAGE) },
    () => format | (format << 2),
  );
  return { ...trial, formats, shape: { ...trial.shape, formats: latentFormats(format) } };
}

/** A trial in which every rule and every size has its chance, but for those that are given. */
export function createTrial(
  random: Random,
  given: Partial<Record<"numKvHeads" | "headDim" | "valueDim" | "past", number>> = {},
): Trial {
  const pick = <T>(...from: readonly T[]): T => from[random.int(0, from.length - 1)] as T;
  const chance = (p: number) => random.next() < p;
  const { numKvHeads = random.int(1, 2) } = given;
  const numHeads = numKvHeads * pick(1, 1, 1, 2, 3, 4, 5, 6, 7, 8);
  const { headDim = pick(1, 5, 8, 16, 20, 64, 72), valueDim = pick(1, 5, 8, 16, 20, 24, 40) } = given;
  const qLen = pick(1, 2, 3, 5, 7, 9, 13, 26, 40, 100);
  const { past = pick(0, 0, 0, 3, 61, 120, 200) } = given;
  const kvLen = chance(0.9) ? past + qLen : random.int(0, past + qLen);
  const causal = chance(0.75);
  // The largest makes weights underflow to 0, the smallest values make outputs do so.
  const amplitude = pick(1, 1, 4, 80);
  const q = floats(random, qLen * (numHeads * headDim + 3)).map((x) => x * amplitude);
  const size = pick(1, 1, 1, 0.002);
  const v = floats(random, kvLen * numKvHeads * valueDim, size < 1 || chance(0.1) ? "tiny" : "normal").map(
    (x) => x * size,
  );
  const density = pick(0.05, 0.5, 0.95);
  const mayKeep = chance(0.35);
  const mayBias = chance(0.3);
  const lowest = pick(0, 0, 0.97);
  const perHead = chance(0.5);
  const cells = (perHead ? numHeads : 1) * qLen * kvLen;
  const hasExtraKey = chance(0.15);
  return {
    q,
    k: floats(random, kvLen * numKvHeads * headDim),
    v,
    shape: {
      qLen,
      kvLen,
      qStart: chance(0.9) ? past : past - random.int(0, 50),
      left: chance(0.35) ? pick(0, 1, 7, random.int(0, 150)) : UNBOUNDED,
      right: causal ? 0 : pick(UNBOUNDED, random.int(0, 20)),
      numHeads,
      numKvHeads,
      headDim,
      valueDim,
      qStride: numHeads * headDim + 3,
      qHeadStride: headDim,
      outStride: numHeads * valueDim + 1,
      outHeadStride: valueDim,
      scale: 1 / Math.sqrt(headDim),
      softcap: chance(0.15) ? pick(5, 50) : 0,
      slopes: chance(0.15) ? Float32Array.from({ length: numHeads }, () => random.next() / 4) : null,
      sinks: chance(0.15) ? floats(random, numHeads).map((x) => (x > 1 ? Number.NEGATIVE_INFINITY : x)) : null,
      extraKey: hasExtraKey ? floats(random, numKvHeads * headDim) : null,
      extraValue: hasExtraKey ? floats(random, numKvHeads * valueDim) : null,
      zeroKey: chance(0.15) ? 1 : 0,
      keep: mayKeep ? Uint8Array.from({ length: cells }, () => (random.next() < density ? pick(1, 255) : 0)) : null,
      keepHeadStride: perHead ? qLen * kvLen : 0,
      keepRowStride: kvLen,
      bias: mayBias
        ? Float32Array.from({ length: cells }, () =>
            random.next() < 0.05 ? Number.NEGATIVE_INFINITY : random.next() < lowest ? LOWEST_F32 : random.normal(),
          )
        : null,
      biasHeadStride: perHead ? qLen * kvLen : 0,
      biasRowStride: kvLen,
      lse: new Float32Array(numHeads * qLen),
      formats: 0,
    },
  };
}

/** The same trial with pages of these formats, keys in bits 0-1 and values in bits 2-3. */
function inFormats(trial: Trial, formats: readonly number[]): Trial {
  const mask = formats.reduce((bits, one) => bits | (1 << (one & 3)) | (16 << (one >> 2)), 0);
  return { ...trial, formats, shape: { ...trial.shape, formats: mask } };
}

/** The same trial with pages of random formats: one for all, or one each. */
export function inRandomFormats(trial: Trial, random: Random): Trial {
  const one = random.int(1, 15);
  const pages = Math.ceil(Math.max(1, trial.shape.kvLen) / PAGE);
  const mixed = random.next() < 0.4;
  return inFormats(
    trial,
    Array.from({ length: pages }, () => (mixed ? random.int(0, 15) : one)),
  );
}

/** Whether head h of query token t attends key j. */
export function attends({ shape }: Trial, t: number, h: number, j: number): boolean {
  const position = shape.qStart + t;
  if (j >= shape.kvLen || j < position - shape.left || j > position + shape.right) return false;
  if (shape.keep?.[h * shape.keepHeadStride + t * shape.keepRowStride + j] === 0) return false;
  return shape.bias?.[h * shape.biasHeadStride + t * shape.biasRowStride + j] !== Number.NEGATIVE_INFINITY;
}

/** Pages of the first `kvLen` keys; every slot that holds none of them is the word `fill`, except padded columns. */
export function createPages({ shape, k, v, formats = [] }: Trial, kvLen: number, fill: number): Page[] {
  const { numKvHeads, headDim, valueDim } = shape;
  if (shape.formats & LATENT_PAGES) return createLatentPages({ shape, k, v, formats }, kvLen, fill);
  const columns = PANEL * Math.ceil(valueDim / PANEL);
  const headFloats = PAGE * (headDim + columns);
  const k32 = new Uint32Array(k.buffer);
  const v32 = new Uint32Array(v.buffer);
  return Array.from({ length: Math.ceil(kvLen / PAGE) }, (_, page) => {
    if (formats[page]) return codedPage({ shape, k, v }, formats[page], page, kvLen, fill);
    const words = new Uint32Array(numKvHeads * headFloats).fill(fill);
    for (let j = page * PAGE; j < Math.min(kvLen, (page + 1) * PAGE); j++)
      for (let h = 0; h < numKvHeads; h++) {
        const slot = j % PAGE;
        const keys = h * headFloats + Math.floor(slot / PANEL) * headDim * PANEL + (slot % PANEL);
        for (let d = 0; d < headDim; d++) words[keys + d * PANEL] = k32[(j * numKvHeads + h) * headDim + d]!;
        const values = h * headFloats + PAGE * headDim + slot * PANEL;
        for (let d = 0; d < columns; d++)
          words[values + Math.floor(d / PANEL) * PAGE * PANEL + (d % PANEL)] =
            d < valueDim ? v32[(j * numKvHeads + h) * valueDim + d]! : 0;
      }
    return new Float32Array(words.buffer);
  });
}

/** Pages of latents: of floats, pairs of tokens with 4 components of each by turns; of others, what the twin makes of them. */
function createLatentPages({ shape, k, formats = [] }: Omit<Trial, "q">, kvLen: number, fill: number): Page[] {
  const { headDim: dim, valueDim } = shape;
  const k32 = new Uint32Array(k.buffer);
  const rank = wholePanels(valueDim);
  const token = { numKvHeads: 1, headDim: rank, valueDim: dim - rank, kHeadStride: 0, vHeadStride: 0 };
  return Array.from({ length: Math.ceil(kvLen / PAGE) }, (_, page) => {
    const [first, end] = [page * PAGE, Math.min(kvLen, (page + 1) * PAGE)];
    const code = formats[page] ?? FORMAT_F32;
    if (code !== FORMAT_F32) {
      const words = PAGE * dim * (code === (FORMAT_F16 | (FORMAT_F16 << 2)) ? 2 : 1);
      const scales = code === (FORMAT_Q8 | (FORMAT_Q8 << 2)) ? 8 * PAGE : 0;
      const bytes = new Uint8Array(new Uint32Array((words + scales) / 4).fill(fill).buffer);
      const coded = { formats: code, bytes };
      const at = first * dim;
      append_latents(
        [coded],
        k.subarray(at),
        k.subarray(at + rank),
        { ...token, kStride: dim, vStride: dim },
        0,
        0,
        end - first,
      );
      return coded;
    }
    const words = new Uint32Array(PAGE * dim).fill(fill);
    for (let j = first; j < end; j++) {
      const slot = j % PAGE;
      const pair = 2 * dim * (slot >> 1) + 4 * (slot & 1);
      for (let d = 0; d < dim; d++) words[pair + 8 * (d >> 2) + (d & 3)] = k32[j * dim + d]!;
    }
    return new Float32Array(words.buffer);
  });
}

/** A page that is not float32: what the twin of append_f32 makes of the keys, between the words. */
function codedPage(
  { shape, k, v }: Pick<Trial, "shape" | "k" | "v">,
  formats: number,
  page: number,
  kvLen: number,
  fill: number,
): Page {
  const { numKvHeads, headDim, valueDim } = shape;
  const bytes = new Uint8Array(new Uint32Array(pageBytes(formats, numKvHeads, shape) / 4).fill(fill).buffer);
  const [first, end] = [page * PAGE, Math.min(kvLen, (page + 1) * PAGE)];
  const cacheShape = {
    ...{ numKvHeads, headDim, valueDim },
    ...{ kStride: numKvHeads * headDim, kHeadStride: headDim },
    ...{ vStride: numKvHeads * valueDim, vHeadStride: valueDim },
  };
  const pages: Page[] = [{ formats, bytes }];
  append_f32(
    pages,
    k.subarray(first * cacheShape.kStride),
    v.subarray(first * cacheShape.vStride),
    cacheShape,
    0,
    0,
    end - first,
  );
  return pages[0]!;
}

/** Floats of scratch that a kernel wants for these head sizes and formats. */
export function scratchFloats(headDim: number, valueDim: number, formats = 0): number {
  const columns = PANEL * Math.ceil(valueDim / PANEL);
  const whole = QUAD * Math.ceil(headDim / QUAD);
  const has = (format: number) => (formats >> format) & 1;
  const integerKeys = has(FORMAT_Q8) || has(FORMAT_Q4);
  const queries = integerKeys ? (TILE_ROWS * (QUERY_HEAD + 2 * whole)) / 4 : 0;
  const keys = has(FORMAT_F16) ? PAGE * headDim : has(FORMAT_Q4) ? (PAGE * whole) / 4 : 0;
  const wide = has(4 + FORMAT_F16) ? PAGE * columns : has(4 + FORMAT_Q4) ? (PAGE * columns) / 4 : 0;
  const values = formats & LATENT_PAGES ? PAGE * PANEL : wide;
  return TILE_ROWS * (ROW_STATE + headDim + columns) + SCRATCH_STRIP + queries + keys + values;
}

/** The kernel for a trial's pages. */
export function kernelOf({ formats }: Trial["shape"]): "attention_f32" | "attention_latents" | "attention_pages" {
  return formats & LATENT_PAGES ? "attention_latents" : kernelsFor(formats).attention;
}

/** Query tokens [from, to) of a trial against the first kvLen keys, the rest of memory filled with a word. */
export function attendTokens(
  instance: Instance,
  trial: Trial,
  from: number,
  to: number,
  kvLen: number,
  fill: number,
  cuts: readonly (readonly [number, number])[] = [[0, (to - from) * trial.shape.numHeads]],
): Left {
  const { shape } = trial;
  const qLen = to - from;
  const lse = new Float32Array(shape.numHeads * qLen);
  const out = new Float32Array(qLen * shape.outStride);
  const scratch = new Float32Array(
    new Uint32Array(scratchFloats(shape.headDim, shape.valueDim, shape.formats)).fill(fill).buffer,
  );
  const call = {
    ...shape,
    qLen,
    kvLen,
    qStart: shape.qStart + from,
    keep: shape.keep?.slice(from * shape.keepRowStride) ?? null,
    bias: shape.bias?.slice(from * shape.biasRowStride) ?? null,
    lse,
  };
  const pages = createPages(trial, kvLen, fill);
  const q = trial.q.slice(from * shape.qStride, to * shape.qStride);
  for (const [begin, end] of cuts) runKernel(instance, kernelOf(shape), [out, q, pages, scratch, call, begin, end]);
  return { out: new Uint32Array(out.buffer), lse: new Uint32Array(lse.buffer) };
}

/** A whole trial in one call. */
export function attendAll(instance: Instance, trial: Trial, fill = 0): Left {
  return attendTokens(instance, trial, 0, trial.shape.qLen, trial.shape.kvLen, fill);
}

/** A trial in several calls of consecutive tokens; causal ones see no more keys than they may attend. */
export function attendInChunks(instance: Instance, trial: Trial, sizes: () => number, fill: number): Left {
  const { shape } = trial;
  const out = new Uint32Array(shape.qLen * shape.outStride);
  const lse = new Uint32Array(shape.numHeads * shape.qLen);
  for (let from = 0; from < shape.qLen; ) {
    const to = Math.min(shape.qLen, from + sizes());
    const kvLen = shape.right === 0 ? Math.max(0, Math.min(shape.kvLen, shape.qStart + to)) : shape.kvLen;
    const part = attendTokens(instance, trial, from, to, kvLen, fill);
    out.set(part.out, from * shape.outStride);
    for (let h = 0; h < shape.numHeads; h++)
      lse.set(part.lse.subarray(h * (to - from), (h + 1) * (to - from)), h * shape.qLen + from);
    from = to;
  }
  return { out, lse };
}

/** A rounding to float32. */
const U = 2 ** -24;

const largest = (x: Float32Array | null) =>
  x?.reduce((most, y) => (Number.isFinite(y) ? Math.max(most, Math.abs(y)) : most), 0) ?? 0;

/**
 * How far f32 may be from float64. A score is a sum of headDim products, so its error is at most headDim + 8 roundings
 * of the largest sum of magnitudes S that stands before the exponential (8: scaling the query, the rules, the shift by
 * the max). Softmax turns an error e of the scores into at most 2e of the largest value; the sum over the keys and the
 * exponentials (2.5 ulp) add kvLen + 16 roundings. What pages hold as halves or integers is as exact there as floats.
 * Where values are denormal, each of kvLen + 16 operations may lose 2^-149.
 */
export function tolerance({ shape, q, k, v }: Trial): { out: number; lse: number } {
  let row = 0;
  for (let at = 0; at + shape.headDim <= q.length; at += shape.headDim)
    row = Math.max(
      row,
      q.subarray(at, at + shape.headDim).reduce((sum, x) => sum + Math.abs(x), 0),
    );
  const reach = (shape.kvLen + shape.qLen) * largest(shape.slopes);
  const key = Math.max(largest(k), largest(shape.extraKey));
  const magnitude = 2 * shape.scale * row * key + reach + largest(shape.bias) + largest(shape.sinks) + 1;
  const scores = (shape.headDim + 8) * U * magnitude;
  const roundings = (shape.kvLen + 16) * U;
  const value = Math.max(largest(v), largest(shape.extraValue));
  const lost = (shape.kvLen + 16) * 2 ** -149;
  // Integer weights are off by up to half of the 16383rd part of the largest.
  const weights = (shape.formats & ~LATENT_PAGES) >> (4 + FORMAT_Q8) > 0 ? shape.kvLen * 2 ** -14.999 : 0;
  return { out: (2 * scores + 2 * roundings + weights) * value + lost, lse: scores + roundings + 8 * U * magnitude };
}
