import { PAGE } from "../../../assembly/layout.ts";
import { createBytes } from "../../base/tensor/tensor.ts";
import { expectInt, expectUint8Array, readFields } from "../../base/util/arguments.ts";
import { describe, showBytes } from "../../base/util/errors.ts";
import { expectMade } from "../../base/util/lifetime.ts";
import { expectKernels } from "../../wasm/kernels.ts";
import { Layout, pointer } from "../../wasm/memory.ts";
import { expectNoHold, type KvCache } from "./kv-cache.ts";
import { describeFormats, type PageCode, pageBytes } from "./pages.ts";
import { adoptPages, ageOf, appendRows, codeAt, firstPages, pageAddress, placeRows, storeRows } from "./table.ts";

/** 128 tokens of every sequence of a cache, as bytes that can be stored anywhere. */
export interface CachePage {
  /** The page holds tokens 128·index to 128·index + 127. */
  readonly index: number;
  /** A header of 36 bytes with the format, the shape and the tokens held, then the page in the format of the cache. */
  readonly bytes: Uint8Array;
}

// A header is nine little-endian u32: MAGIC, VERSION, formats, the sizes and rules that pages depend on, and how many tokens the
// page holds, which pages of version 1 do not say. The formats of pages of latents have one more bit, because pages of keys and
// values may have the same sizes and another layout.
const MAGIC = 0x47505748; // "HWPG"
const VERSION = 2;
const HEADER_BYTES = 36;
const TOKENS_WORD = 8;
const LATENT_BIT = 16;
/** The formats of a page that holds the state behind its last token, and no tokens. */
export const STATE_FORMATS = 32;

/** What the header of a page says of its content: the formats, and five sizes and rules by their names. */
export interface PageFacts {
  readonly formats: number;
  readonly fields: readonly (readonly [name: string, value: number])[];
}

/**
 * Copies the pages of a cache, or only those that have changed since it held `since` tokens, so that a stored copy can be
 * updated with few pages. Changed are the page of token `since` and all later ones, and pages whose tokens have aged to
 * another format. Equal caches give equal bytes; the rest of the last page is zeros. A cache that drops pages behind its window
 * exports those from the page of `cache.start` on.
 * @param since Tokens that the stored copy holds. If the cache was truncated after that copy was made, the shortest length
 * that it has had since. Default 0: all pages.
 * @throws TypeError or RangeError naming the argument. HeadwiseError `OUT_OF_MEMORY`, `RELEASED`, or `IN_USE` while an
 * `attendAsync` appends.
 * @example
 * import { attend, createAttention, createCache, loadKernels } from "headwise";
 * import { exportPages, importPages } from "headwise/models";
 * const kernels = await loadKernels();
 * const eye = { data: Float32Array.from({ length: 16 }, (_, i) => (i % 5 === 0 ? 1 : 0)), shape: [4, 4] };
 * const attention = createAttention(kernels, { dModel: 4, numHeads: 2, causal: true }, { wq: eye, wk: eye, wv: eye, wo: eye });
 * const [cache, copy] = [createCache(attention, { maxSeqLen: 300 }), createCache(attention, { maxSeqLen: 300 })];
 * attend(attention, new Float32Array(150 * 4).fill(1), { cache });
 * const kept = exportPages(cache);
 * attend(attention, new Float32Array(4).fill(2), { cache });
 * for (const page of exportPages(cache, 150)) kept[page.index] = page; // the second of two
 * importPages(copy, kept, cache.length);
 * console.log(kept.length, copy.length); // 2 151
 * kernels.release();
 */
export function exportPages(cache: KvCache, since = 0): CachePage[] {
  const where = "exportPages";
  expectUsable(where, cache);
  expectNoHold(where, cache.holds.appending);
  const { pages, length } = cache;
  expectInt(where, "since", since, 0, length);
  cache.begin();
  clearRest(where, cache);
  const exported: CachePage[] = [];
  for (let index = Math.floor(cache.start / PAGE); index * PAGE < length; index++) {
    const code = codeAt(pages, index, length);
    const same = (index + 1) * PAGE <= since && code === codeAt(pages, index, since);
    if (!same) exported.push({ index, bytes: copyOut(cache, index, code) });
  }
  return exported;
}

/**
 * Fills an empty cache from pages that `exportPages` made, in this process or another, of a cache with the same layer, batch
 * and format. Later calls give the same bits as with the exported cache.
 *
 * The header of each page is checked, also for the tokens that the page holds, but not the numbers after it: store pages where
 * no write is left half done, together with the layer that they belong to and their length.
 * @param pages All pages that hold the first `length` tokens, in ascending order. An iterable is read one page at a time. A
 * cache that drops pages behind its window skips those that it would not keep at this length, and holes in their place; it
 * needs at least the pages from token `length - window.left` on, and can be truncated only as far as the pages reach.
 * @param length Tokens to import: those that were exported, or fewer, the first of them. If tokens age, every page must be in the
 * stage that it is in at this length.
 * @throws TypeError or RangeError naming the argument, whatever `pages` throws, HeadwiseError `RELEASED`, or `IN_USE` while an
 * `attendAsync` uses the cache. A cache that was empty is then empty again.
 * @example
 * import { attend, createAttention, createCache, loadKernels } from "headwise";
 * import { exportPages, importPages } from "headwise/models";
 * const kernels = await loadKernels();
 * const eye = { data: Float32Array.from({ length: 16 }, (_, i) => (i % 5 === 0 ? 1 : 0)), shape: [4, 4] };
 * const attention = createAttention(kernels, { dModel: 4, numHeads: 2, causal: true }, { wq: eye, wk: eye, wv: eye, wo: eye });
 * const [cache, fork] = [createCache(attention, { maxSeqLen: 100 }), createCache(attention, { maxSeqLen: 200 })];
 * attend(attention, new Float32Array(3 * 4).fill(1), { cache });
 * importPages(fork, exportPages(cache), 2); // the first two of three tokens
 * console.log(fork.length, fork.read().key.shape); // 2 [ 1, 2, 2, 2 ]
 * kernels.release();
 */
export function importPages(cache: KvCache, pages: Iterable<CachePage>, length: number): void {
  fillCache("importPages", cache, pages, length);
}

/** `importPages`; errors name `where`. With the `ids` of a session as its length, pages behind those of `length` are not read. */
export function fillCache(
  where: string,
  cache: KvCache,
  pages: Iterable<CachePage>,
  length: number,
  name: "length" | "ids.length" = "length",
): void {
  // Read once and before the checks, because reading may run code of the caller's.
  const listed = listOf(pages);
  expectUsable(where, cache);
  expectNoHold(where, cache.holds.appending + cache.holds.reading);
  if (cache.length > 0) throw new RangeError(`${where}: cache expected one without tokens, got ${cache.length}`);
  if (!listed) refusePages(where, pages);
  expectInt(where, "length", length, 0, cache.maxSeqLen);
  const { kernels } = cache;
  const count = Math.ceil(length / PAGE);
  const [kept, needed] = firstPages(cache.pages, length);
  cache.begin();
  let [first, index] = [kept, kept];
  const refuseCount = (got: number | "more") => {
    throw new RangeError(`${where}: pages expected ${count - first} for length ${length}, got ${got}`);
  };
  // Iterating over `pages` runs code of the caller, which must not use this cache meanwhile.
  cache.holds.appending++;
  try {
    for (const page of listed) {
      if (index === count && name === "ids.length") break;
      if (index === count) refuseCount("more");
      const atFirst = index === first;
      if (atFirst && kept > 0 && page === undefined) continue;
      const given = readFields(where, `pages[${index}]`, page, ["index", "bytes"]);
      // Reading a page may have run code of the caller's, too.
      expectUsable(where, cache);
      if (atFirst && Number.isInteger(given.index)) {
        if (given.index < kept) continue;
        if (given.index > first && given.index <= Math.min(needed, count - 1)) first = index = given.index;
      }
      const code = codeAt(cache.pages, index, length);
      const [bytes, held] = checkPage(where, cache, index, code, given);
      if (index * PAGE + held < length && held < PAGE) {
        const rule = `at most ${index * PAGE + held}, the tokens that the pages hold`;
        throw new RangeError(`${where}: ${name} expected ${rule}, got ${length}`);
      }
      adoptPages(kernels, cache.pages, index, code);
      copyIn(cache, index, bytes);
      index++;
    }
    expectUsable(where, cache);
    if (index < count) refuseCount(index - first);
    cache.pages.age.fill(ageOf(length));
    cache.commit(length, first * PAGE);
  } finally {
    cache.holds.appending--;
  }
}

/** An iterable whose iterator was read; undefined for what is none. */
export function listOf(pages: Iterable<CachePage>): Iterable<CachePage> | undefined {
  const iterate = typeof pages === "object" ? pages?.[Symbol.iterator] : undefined;
  return typeof iterate === "function" ? { [Symbol.iterator]: () => iterate.call(pages) } : undefined;
}

export function refusePages(where: string, pages: unknown): never {
  throw new TypeError(`${where}: pages expected an iterable of { index, bytes }, got ${describe(pages)}`);
}

function expectUsable(where: string, cache: KvCache): void {
  expectMade(where, "cache", cache, "createCache", "createKvCache");
  expectKernels(where, cache.kernels, "cache.kernels");
}

/** What the header of a page of this cache says that has `code`. */
function factsOf({ batch, pages: { layout } }: KvCache, code: PageCode): PageFacts {
  const { numKvHeads, headDim, valueDim, kind } = layout;
  return {
    formats: kind ? code | LATENT_BIT : code,
    fields: Object.entries({ PAGE, batch, numKvHeads, headDim, valueDim }),
  };
}

/** How many of `length` tokens page `index` holds. */
const tokensIn = (index: number, length: number) => Math.min(PAGE, length - index * PAGE);

function describeFormatsWord(word: number): string {
  if (word === STATE_FORMATS) return "a recurrent state";
  return `${word & LATENT_BIT ? "latents, " : ""}${describeFormats(word & ~LATENT_BIT)}`;
}

function copyOut(cache: KvCache, index: number, code: PageCode): Uint8Array {
  const { kernels, pages, batch } = cache;
  const size = pageBytes(pages.layout, code);
  const content = Array.from({ length: batch }, (_, b) =>
    kernels.memory.u8(pageAddress(kernels, pages, b, index), size),
  );
  return writePage("exportPages", index, factsOf(cache, code), tokensIn(index, cache.length), content);
}

/** A header and the content behind it. */
export function writePage(
  where: string,
  index: number,
  { formats, fields }: PageFacts,
  held: number,
  content: readonly Uint8Array[],
): Uint8Array {
  let end = HEADER_BYTES;
  const size = content.reduce((sum, { length }) => sum + length, 0);
  const bytes = createBytes(where, `pages[${index}].bytes`, HEADER_BYTES + size);
  const header = new DataView(bytes.buffer);
  const words = [MAGIC, VERSION, formats, ...fields.map(([, value]) => value), held];
  for (const [i, word] of words.entries()) header.setUint32(4 * i, word, true);
  for (const each of content) {
    bytes.set(each, end);
    end += each.length;
  }
  return bytes;
}

function copyIn({ kernels, pages, batch }: KvCache, index: number, bytes: Uint8Array): void {
  const size = (bytes.length - HEADER_BYTES) / batch;
  for (let b = 0; b < batch; b++) {
    const from = HEADER_BYTES + b * size;
    kernels.memory.u8(pageAddress(kernels, pages, b, index), size).set(bytes.subarray(from, from + size));
  }
}

/**
 * Throws unless `page` is page `index` of a cache like this one, with the formats that it has there. Returns its bytes, and how
 * many tokens it holds.
 */
function checkPage(
  where: string,
  cache: KvCache,
  index: number,
  code: PageCode,
  page: CachePage,
): [bytes: Uint8Array, held: number] {
  return readPage(where, index, factsOf(cache, code), () => cache.batch * pageBytes(cache.pages.layout, code), page);
}

/** Throws unless `page` has these facts, and for the tokens that it says to hold so many bytes of content. Returns all bytes. */
export function readPage(
  where: string,
  index: number,
  { formats, fields }: PageFacts,
  sizeOf: (held: number) => number,
  page: CachePage,
): [bytes: Uint8Array, held: number] {
  const name = `pages[${index}]`;
  if (page.index !== index)
    throw new RangeError(`${where}: ${name}.index expected ${index}, got ${describe(page.index)}`);
  const bytes = expectUint8Array(where, `${name}.bytes`, page.bytes);
  const header = new DataView(bytes.buffer, bytes.byteOffset, bytes.byteLength);
  const word = (i: number) => header.getUint32(4 * i, true);
  const isPage = bytes.length >= HEADER_BYTES && word(0) === MAGIC;
  if (!isPage || word(1) !== VERSION) {
    const got = isPage ? `one of version ${word(1)}` : showBytes(bytes.subarray(0, 8));
    throw new RangeError(`${where}: ${name}.bytes expected a page of version ${VERSION} of exportPages, got ${got}`);
  }
  if (word(2) !== formats) {
    const [rule, got] = [formats, word(2)].map(describeFormatsWord);
    throw new RangeError(`${where}: ${name}.bytes expected ${rule}, got ${got}`);
  }
  for (const [i, [field, expected]] of fields.entries())
    if (word(3 + i) !== expected)
      throw new RangeError(`${where}: ${name}.bytes expected ${field} ${expected}, got ${word(3 + i)}`);
  const held = word(TOKENS_WORD);
  const length = HEADER_BYTES + sizeOf(held);
  if (bytes.length !== length)
    throw new RangeError(`${where}: ${name}.bytes expected ${length} bytes, got ${bytes.length}`);
  if (held > PAGE) throw new RangeError(`${where}: ${name}.bytes expected at most ${PAGE} tokens, got ${held}`);
  return [bytes, held];
}

/** What lies behind the header of a page. */
export const contentOf = (bytes: Uint8Array): Uint8Array => bytes.subarray(HEADER_BYTES);

/** Zeroes the slots of the last page behind the last token, which hold earlier content of that memory. */
function clearRest(where: string, { kernels, pages, batch, length }: KvCache): void {
  const rest = Math.ceil(length / PAGE) * PAGE - length;
  if (rest === 0) return;
  const { memory } = kernels;
  const { headDim, valueDim } = pages.layout;
  const layout = new Layout();
  const place = { rows: placeRows(layout), zeros: layout.floats(Math.max(headDim, valueDim)) };
  const base = memory.scratch(where, layout.bytes);
  // With strides of 0, all tokens and heads are the same row of zeros.
  const strides = { kStride: 0, kHeadStride: 0, vStride: 0, vHeadStride: 0 };
  const rows = storeRows(kernels, base + place.rows, pages.layout, strides);
  const zeros = pointer.f32(base + place.zeros);
  memory.f32(zeros, Math.max(headDim, valueDim)).fill(0);
  for (let b = 0; b < batch; b++) appendRows(kernels, pages, b, rows, { k: zeros, v: zeros }, length, rest);
}
