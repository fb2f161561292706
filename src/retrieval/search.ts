// Vectors of texts: how similar they are, kept in few bytes, and searched. The kernels are score_rows and top_k_f32.

import { SCORE_BINARY, SCORE_DOT, SCORE_EUCLIDEAN, SCORE_INT8, SCORE_MANHATTAN } from "../../assembly/layout.ts";
import { createBytes } from "../base/tensor/tensor.ts";
import {
  expectFloats,
  expectInt,
  expectOneOf,
  expectUint8Array,
  LARGEST_INT,
  readFields,
  readList,
  wrongValue,
} from "../base/util/arguments.ts";
import { describe, HeadwiseError } from "../base/util/errors.ts";
import { expectAlive, type Handle, makeHandle, type Releasable } from "../base/util/lifetime.ts";
import { chunksOf } from "../base/util/rows.ts";
import { NULL, type Pointer, ScoreShape } from "../wasm/abi.ts";
import { expectKernels, type Kernels } from "../wasm/kernels.ts";
import { Layout, pointer } from "../wasm/memory.ts";
import { inverseLength, type Ranked, SCORES, type ScoreFunction, sumOf } from "./scores.ts";

/** What a component takes: 32 bits, 8 bits with a scale for each vector, or one bit, its sign. */
export type VectorFormat = "f32" | "int8" | "binary";

/** A vector of finite numbers. */
type Vector = Float32Array | readonly number[];

/** The code of score_rows for floats; the cosine is a product with factors. */
const FLOAT_MODES: Readonly<Record<ScoreFunction, number>> = {
  cosine: SCORE_DOT,
  dot: SCORE_DOT,
  euclidean: SCORE_EUCLIDEAN,
  manhattan: SCORE_MANHATTAN,
};
const FUNCTIONS = Object.keys(FLOAT_MODES) as readonly ScoreFunction[];
const FORMATS: readonly VectorFormat[] = ["f32", "int8", "binary"];

/** The most dimensions of a vector. Sums of integers then fit an i32 with 8 bits of a query left. */
const MOST_DIMENSIONS = 2 ** 16;

// Vectors as they are given.

/** A view or a copy of a vector. Throws unless it has 1 or more finite floats, and `dimensions` of them where that is known. */
function readVector(where: string, name: string, value: unknown, dimensions?: number): Float32Array {
  const check = (element: unknown, i: number) => {
    if (typeof element === "number") return element;
    throw wrongValue(where, `${name}[${i}]`, "a number", element);
  };
  const given = ArrayBuffer.isView(value)
    ? expectFloats(where, name, value)
    : readList(where, name, value, MOST_DIMENSIONS, check);
  const rule = dimensions ?? `1 to ${MOST_DIMENSIONS}`;
  const { length } = given;
  if (dimensions === undefined ? length < 1 || length > MOST_DIMENSIONS : length !== dimensions)
    throw new RangeError(`${where}: ${name} expected ${rule} numbers, got ${length}`);
  const vector = given instanceof Float32Array ? given : Float32Array.from(given);
  expectFiniteFloats(where, (i) => `${name}[${i}]`, vector);
  return vector;
}

function expectFiniteFloats(where: string, nameOf: (i: number) => string, vector: Float32Array): void {
  for (let i = 0; i < vector.length; i++)
    if (!(Math.abs(vector[i] as number) < Infinity))
      throw new RangeError(`${where}: ${nameOf(i)} expected a finite float32 number, got ${vector[i]}`);
}

/** One or more vectors of the same dimensions. */
function readVectors(where: string, name: string, value: unknown, dimensions?: number): Float32Array[] {
  let known = dimensions;
  const list = readList(where, name, value, LARGEST_INT, (element, i) => {
    const vector = readVector(where, `${name}[${i}]`, element, known);
    known = vector.length;
    return vector;
  });
  if (list.length === 0) throw new RangeError(`${where}: ${name} expected 1 or more vectors, got none`);
  return Array.from(list);
}

/**
 * How similar each vector of a list is to each of another, as sentence-transformers' functions of these names say: "cosine" (0 where a
 * vector is all zeros), "dot", or minus the distance, "euclidean" and "manhattan". Sums are made in float64.
 * @param a Vectors of the same dimensions; `b` too.
 * @returns Scores [b.length] of each vector of `a`.
 * @throws TypeError or RangeError naming the argument, also for NaN and infinities.
 * @example
 * import { similarity } from "headwise/retrieval";
 * const [scores] = similarity([[1, 0]], [[3, 0], [0, 2]]);
 * console.log(scores?.join(" ")); // 1 0
 */
export function similarity(a: readonly Vector[], b: readonly Vector[], fn: ScoreFunction = "cosine"): Float32Array[] {
  const where = "similarity";
  const rows = readVectors(where, "a", a);
  const columns = readVectors(where, "b", b, rows[0]?.length);
  const score = SCORES[expectOneOf(where, "fn", fn, FUNCTIONS)];
  return rows.map((x) => Float32Array.from(columns, (y) => score(x, y)));
}

// Vectors in few bytes.

/**
 * Vectors as bytes, to store and to search: `bytes` has a row after the other, without gaps, so that it may be cut and joined.
 * A row is, by `format`:
 * - "f32": float32, little-endian.
 * - "int8": integers from -127 to 127, then their scale, a float32, little-endian, which they are multiplied with.
 * - "binary": a bit for each dimension, 1 where it is above 0, from the most significant bit of a byte on, zeros behind; as the
 *   precision "ubinary" of sentence-transformers.
 */
export interface PackedVectors {
  /** What the bytes are. */
  readonly format: VectorFormat;
  /** How many vectors there are. */
  readonly rows: number;
  /** Numbers of a vector, 1 to 65,536. */
  readonly dimensions: number;
  /** All rows. */
  readonly bytes: Uint8Array;
}

/** Bytes of a stored row. */
function storedBytes(format: VectorFormat, dimensions: number): number {
  if (format === "f32") return 4 * dimensions;
  return format === "int8" ? dimensions + 4 : Math.ceil(dimensions / 8);
}

/** The nearest integer of those from -most to most, ties to even. */
function round(x: number, most: number): number {
  const up = Math.round(x);
  return Math.max(-most, Math.min(most, up - x === 0.5 && up % 2 !== 0 ? up - 1 : up));
}

/** Writes x / scale as integers of up to `most` into `out`, and returns scale, the largest |x| / most as a float32. */
function quantize(x: Float32Array, most: number, out: Int8Array | Int16Array): number {
  let largest = 0;
  for (let i = 0; i < x.length; i++) largest = Math.max(largest, Math.abs(x[i] as number));
  const scale = Math.fround(largest / most);
  if (scale > 0) for (let i = 0; i < x.length; i++) out[i] = round((x[i] as number) / scale, most);
  return scale;
}

/** Sets the bits of what is above 0. */
function storeSigns(x: Float32Array, out: Uint8Array): void {
  for (let i = 0; i < x.length; i++) if ((x[i] as number) > 0) out[i >> 3]! |= 128 >> (i & 7);
}

/**
 * Packs vectors into bytes. "int8" takes a quarter of the bytes of "f32" and keeps cosines within some 0.002; "binary" takes a
 * 32nd, and is for a first choice of many, which is scored again. The vectors are copied.
 * @param vectors One or more of the same dimensions, of finite numbers.
 * @throws TypeError or RangeError naming the argument. HeadwiseError `OUT_OF_MEMORY`.
 * @example
 * import { packVectors } from "headwise/retrieval";
 * const packed = packVectors([[0.5, -1, 0.25], [1, 1, 0]], { format: "binary" });
 * console.log(packed.rows, packed.dimensions, packed.bytes.join(" ")); // 2 3 160 192
 */
export function packVectors(
  vectors: readonly Vector[],
  options: { readonly format?: VectorFormat | undefined } = {},
): PackedVectors {
  const where = "packVectors";
  const { format = "f32" } = readFields(where, "options", options, ["format"]);
  expectOneOf(where, "format", format, FORMATS);
  const all = readVectors(where, "vectors", vectors);
  const dimensions = (all[0] as Float32Array).length;
  const width = storedBytes(format, dimensions);
  const bytes = createBytes(where, "bytes", all.length * width);
  const view = new DataView(bytes.buffer);
  for (const [r, vector] of all.entries()) {
    const at = r * width;
    if (format === "binary") storeSigns(vector, bytes.subarray(at, at + width));
    else if (format === "int8") {
      const scale = quantize(vector, 127, new Int8Array(bytes.buffer, at, dimensions));
      view.setFloat32(at + dimensions, scale, true);
    } else bytes.set(new Uint8Array(vector.buffer, vector.byteOffset, width), at);
  }
  return { format, rows: all.length, dimensions, bytes };
}

/** Reads and checks packed vectors, those of an index if there is one. */
function readPacked(where: string, packed: PackedVectors, like?: Pick<PackedVectors, "format" | "dimensions">) {
  const known = ["format", "rows", "dimensions", "bytes"] as const;
  const { format, rows, dimensions, bytes: given } = readFields(where, "packed", packed, known);
  expectOneOf(where, "packed.format", format, like ? [like.format] : FORMATS);
  expectInt(where, "packed.rows", rows, 0);
  if (like) expectOneOf(where, "packed.dimensions", dimensions, [like.dimensions]);
  expectInt(where, "packed.dimensions", dimensions, 1, MOST_DIMENSIONS);
  const bytes = expectUint8Array(where, "packed.bytes", given);
  const width = storedBytes(format, dimensions);
  if (bytes.length !== rows * width)
    throw new RangeError(
      `${where}: packed.bytes expected ${rows * width} bytes, ${width} for each of ${rows} rows, got ${bytes.length}`,
    );
  const behind = format === "binary" ? 0xff >> (dimensions % 8 || 8) : 0;
  for (let r = 0; r < rows; r++) {
    const row = bytes.subarray(r * width, (r + 1) * width);
    if (format === "f32") expectFiniteFloats(where, (i) => `number ${i} of row ${r} of packed.bytes`, floatsOf(row));
    const scale = format === "int8" ? scaleOf(row, dimensions) : 0;
    if (!(scale >= 0 && scale < Infinity))
      throw new RangeError(
        `${where}: the scale of row ${r} of packed.bytes expected a finite number >= 0, got ${scale}`,
      );
    if (((row[width - 1] as number) & behind) !== 0)
      throw new RangeError(
        `${where}: the bits behind dimension ${dimensions} of row ${r} of packed.bytes expected 0, got ${describe((row[width - 1] as number) & behind)}`,
      );
  }
  return { format, rows, dimensions, bytes };
}

/** A row as floats, a view if its place allows. */
const floatsOf = (row: Uint8Array) =>
  row.byteOffset % 4 === 0
    ? new Float32Array(row.buffer, row.byteOffset, row.length / 4)
    : new Float32Array(row.slice().buffer);

const scaleOf = (row: Uint8Array, dimensions: number) =>
  new DataView(row.buffer, row.byteOffset).getFloat32(dimensions, true);

// Vectors in linear memory: rows of whole v128, and for each a factor of its cosine, and one of its product (int8).

/** The block of an index. It changes as rows are added. */
interface Store {
  at: number;
  capacity: number;
  rows: number;
  released: boolean;
  readonly format: VectorFormat;
  readonly dimensions: number;
  /** Bytes of a row in linear memory. */
  readonly rowBytes: number;
}

/** Where the parts of a block of so many rows lie. */
function placeStore({ format, rowBytes }: Store, capacity: number) {
  const layout = new Layout();
  const rows = layout.take(capacity * rowBytes);
  const cosines = format === "binary" ? undefined : layout.floats(capacity);
  const scales = format === "int8" ? layout.floats(capacity) : undefined;
  return { rows, cosines, scales, bytes: layout.bytes };
}

/** Adds rows, in a new block of half as many rows more where there is no room. Nothing has changed if it throws. */
function addRows(where: string, { memory }: Kernels, store: Store, { rows, bytes }: PackedVectors): void {
  const { format, dimensions, rowBytes } = store;
  const count = store.rows + rows;
  if (count > store.capacity) {
    const capacity = Math.max(count, Math.ceil(1.5 * store.capacity), 1);
    const [from, to] = [placeStore(store, store.capacity), placeStore(store, capacity)];
    const at = memory.allocate(where, to.bytes);
    const move = (source: number | undefined, target: number | undefined, bytes: number) => {
      if (source !== undefined && target !== undefined)
        memory.u8(at + target, bytes).set(memory.u8(store.at + source, bytes));
    };
    move(from.rows, to.rows, store.rows * rowBytes);
    move(from.cosines, to.cosines, store.rows * 4);
    move(from.scales, to.scales, store.rows * 4);
    if (store.at) memory.free(store.at);
    store.at = at;
    store.capacity = capacity;
  }
  const places = placeStore(store, store.capacity);
  const width = storedBytes(format, dimensions);
  const used = format === "int8" ? dimensions : width;
  const into = memory
    .u8(store.at + places.rows, store.capacity * rowBytes)
    .fill(0, store.rows * rowBytes, count * rowBytes);
  const factorsAt = (at: number | undefined) => (at === undefined ? undefined : memory.f32(store.at + at, count));
  const [cosines, scales] = [factorsAt(places.cosines), factorsAt(places.scales)];
  for (let r = 0; r < rows; r++) {
    const row = bytes.subarray(r * width, (r + 1) * width);
    const to = store.rows + r;
    into.set(row.subarray(0, used), to * rowBytes);
    if (scales) scales[to] = scaleOf(row, dimensions);
    if (cosines)
      cosines[to] = inverseLength(scales ? new Int8Array(row.buffer, row.byteOffset, dimensions) : floatsOf(row));
  }
  store.rows = count;
}

/** Frees the block of an index. The function refers to nothing else. */
function freeingStore(kernels: Kernels, store: Store): () => void {
  return () => {
    store.released = true;
    if (store.at && !kernels.released) kernels.memory.free(store.at);
  };
}

// Searching.

/** Options of `search` of an index. */
export interface SearchOptions {
  /** How many rows to find, fewer where there are fewer. Default 10. */
  readonly topK?: number | undefined;
  /** What a score is. Default "cosine". "euclidean" and "manhattan" are for "f32" alone. */
  readonly fn?: ScoreFunction | undefined;
  /** For "binary": so many times `topK` rows are chosen by their bits, and scored again by the floats of the query. Default none. */
  readonly rescore?: number | undefined;
}

/** Rows that are scored at a time, whose scores stay in a CPU cache, and queries that share a pass over the rows. */
const BLOCK_ROWS = 16_384;
const PASS_QUERIES = 16;

/** A query as score_rows takes it, and what its values are multiplied with. */
interface Query {
  readonly bytes: Uint8Array;
  readonly factor: number;
}

function encodeQuery({ format, dimensions, rowBytes }: Store, query: Float32Array, fn: ScoreFunction): Query {
  if (format === "binary") {
    const bytes = new Uint8Array(rowBytes);
    storeSigns(query, bytes);
    return { bytes, factor: fn === "cosine" ? 1 / dimensions : 1 };
  }
  if (format === "f32") {
    const floats = new Float32Array(rowBytes / 4);
    floats.set(query);
    return { bytes: new Uint8Array(floats.buffer), factor: fn === "cosine" ? inverseLength(query) : 1 };
  }
  // As many bits as leave room for the sum: 15 up to 512 dimensions.
  const integers = new Int16Array(rowBytes);
  const scale = quantize(query, Math.min(32_767, Math.floor(LARGEST_INT / (128 * dimensions))), integers);
  return { bytes: new Uint8Array(integers.buffer), factor: fn === "cosine" ? inverseLength(integers) : scale };
}

/** The best `most` rows of each of up to PASS_QUERIES queries, with their scores. */
function findBest(
  where: string,
  { memory, table }: Kernels,
  store: Store,
  queries: readonly Query[],
  fn: ScoreFunction,
  most: number,
): Ranked[][] {
  const { format, rows, rowBytes, dimensions } = store;
  const parts = placeStore(store, store.capacity);
  const factors = { cosine: parts.cosines, dot: parts.scales, euclidean: undefined, manhattan: undefined }[fn];
  const mode = { f32: FLOAT_MODES[fn], int8: SCORE_INT8, binary: SCORE_BINARY }[format];
  const width = (queries[0] as Query).bytes.length;
  const count = queries.length;
  // A row of scores begins with the best of the blocks before, which precede in order what is equal to them.
  const stride = most + Math.min(BLOCK_ROWS, rows);
  const layout = new Layout();
  const places = {
    shape: layout.take(ScoreShape.bytes),
    queries: layout.take(width * count),
    scores: layout.floats(stride * count),
    values: layout.floats(most * count),
    ids: layout.floats(most * count),
  };
  const base = memory.scratch(where, layout.bytes);
  const shape = (base + places.shape) as Pointer<ScoreShape>;
  const [asked, to, values] = [pointer.u8(base + places.queries), base + places.scores, base + places.values];
  const ids = (base + places.ids) as Pointer<Int32Array>;
  ScoreShape.store(memory.view(), shape, { mode, queries: count, rowBytes, dimensions, stride });
  for (const [q, { bytes }] of queries.entries()) memory.u8(asked + q * width, width).set(bytes);
  let best: Ranked[][] = [];
  let held = 0;
  for (const [begin, end] of chunksOf(rows, BLOCK_ROWS)) {
    const from = pointer.u8(store.at + begin * rowBytes);
    const factor = factors === undefined ? NULL : pointer.f32(store.at + factors + 4 * begin);
    table.score_rows(pointer.f32(to + 4 * held), asked, from, factor, shape, 0, end - begin);
    const n = held + end - begin;
    const kept = Math.min(most, n);
    table.top_k_f32(pointer.f32(values), ids, pointer.f32(to), n, stride, kept, 0, count);
    const before = best;
    best = queries.map((_, q) => {
      const scores = memory.f32(values + 4 * kept * q, kept);
      memory.f32(to + 4 * stride * q, kept).set(scores);
      const hitOf = (at: number) => (at < held ? (before[q] as Ranked[])[at]!.index : begin + at - held);
      const found = memory.u32(ids + 4 * kept * q, kept);
      return Array.from(scores, (score, i) => ({ index: hitOf(found[i] as number), score }));
    });
    held = kept;
  }
  // In float64, where scores that differ stay so: the order remains theirs.
  return best.map((hits, q) =>
    hits.map(({ index, score }) => ({ index, score: score * (queries[q] as Query).factor })),
  );
}

/** Hits of bits, as -1 and 1, with the floats of a query, the best first. */
function rescore(
  { memory }: Kernels,
  { at, rowBytes, dimensions }: Store,
  query: Float32Array,
  hits: readonly Ranked[],
  fn: ScoreFunction,
): Ranked[] {
  const factor = fn === "cosine" ? inverseLength(query) / Math.sqrt(dimensions) : 1;
  const scored = hits.map(({ index }) => {
    const bits = memory.u8(at + index * rowBytes, rowBytes);
    return { index, score: factor * sumOf(query, (x, i) => ((bits[i >> 3] as number) & (128 >> (i & 7)) ? x : -x)) };
  });
  return scored.sort((a, b) => b.score - a.score || a.index - b.index);
}

/** `search` of an index. */
function searchStore(kernels: Kernels, store: Store, given: Vector | readonly Vector[], options: SearchOptions) {
  const where = "search";
  const { format, dimensions } = store;
  const { topK = 10, fn = "cosine", ...more } = readFields(where, "options", options, ["topK", "fn", "rescore"]);
  expectInt(where, "topK", topK);
  expectOneOf(where, "fn", fn, FUNCTIONS);
  if (format !== "f32" && fn !== "cosine" && fn !== "dot")
    throw new RangeError(`${where}: fn expected "cosine" or "dot" for ${format} vectors, got ${describe(fn)}`);
  if (more.rescore !== undefined && format !== "binary")
    throw new RangeError(`${where}: rescore expected none for ${format} vectors, got ${describe(more.rescore)}`);
  const times = more.rescore === undefined ? 1 : expectInt(where, "rescore", more.rescore);
  const isOne = ArrayBuffer.isView(given) || typeof (given as ArrayLike<unknown> | null)?.[0] === "number";
  const vectors = isOne
    ? [readVector(where, "query", given, dimensions)]
    : readVectors(where, "queries", given, dimensions);
  // Again, because reading arguments may have run code of the caller's.
  expectStore(where, kernels, store);
  const most = Math.min(store.rows, topK * times);
  if (most === 0) return isOne ? [] : vectors.map(() => []);
  // Fewer of them share a pass where many rows are kept, so that scratch stays small.
  const shared = Math.max(1, Math.min(PASS_QUERIES, Math.floor(2 ** 20 / (most + BLOCK_ROWS))));
  const hits: Ranked[][] = [];
  for (const [begin, end] of chunksOf(vectors.length, shared)) {
    const queries = vectors.slice(begin, end).map((vector) => encodeQuery(store, vector, fn));
    hits.push(...findBest(where, kernels, store, queries, fn, most));
  }
  const rescored =
    more.rescore === undefined
      ? hits
      : hits.map((found, q) => rescore(kernels, store, vectors[q] as Float32Array, found, fn).slice(0, topK));
  return isOne ? rescored[0] : rescored;
}

function expectStore(where: string, kernels: Kernels, store: Store): void {
  expectAlive(where, "index", store);
  expectKernels(where, kernels, "index.kernels");
}

/**
 * Vectors in linear memory, as bytes, until `release()`. Rows keep their places; there is no removal.
 * @example
 * import { loadKernels } from "headwise";
 * import { models } from "headwise/models";
 * import { createIndex, packVectors } from "headwise/retrieval";
 * const kernels = await loadKernels({ models });
 * const index = createIndex(kernels, packVectors([[1, 0], [0, 1]], { format: "int8" }));
 * index.add(packVectors([[1, 1]], { format: "int8" }));
 * console.log(index.rows, index.search([2, 1], { topK: 2 }).map((hit) => hit.index).join(" ")); // 3 2 0
 * index.release();
 */
export interface VectorIndex extends Releasable, Handle {
  /** The kernels that search it, in whose memory its rows lie. */
  readonly kernels: Kernels;
  /** How its rows are kept. */
  readonly format: VectorFormat;
  /** Numbers of a vector. */
  readonly dimensions: number;
  /** How many vectors it has. */
  readonly rows: number;
  /** Bytes of linear memory that it takes. After `add` there may be room for half as many rows again. */
  readonly bytes: number;
  /** Whether `release()` was called. */
  readonly released: boolean;
  /**
   * The rows that are most similar to a query, the best first, of equal ones that of the lower index. Queries of a list share passes
   * over the rows, and each gets what it gets alone, bit for bit, on any number of threads. Scores of "int8" and "binary" have the
   * same bits on every engine. They are those of the stored rows: "binary" compares signs unless `rescore` is given, and "int8" has
   * 15 bits of the query up to 512 dimensions. Where products of floats exceed float32, scores are infinite or NaN, which comes last.
   * @throws TypeError or RangeError naming the argument. HeadwiseError `OUT_OF_MEMORY`, `RELEASED`, and with threads
   * `WORKER_LOST` or `KERNEL_FAILED`.
   */
  search(query: Vector, options?: SearchOptions): Ranked[];
  /** The same for each query of a list. */
  search(queries: readonly Vector[], options?: SearchOptions): Ranked[][];
  /**
   * Adds rows of the same format and dimensions behind the others.
   * @throws TypeError or RangeError naming the argument. HeadwiseError `OUT_OF_MEMORY` or `RELEASED`. Nothing was added then.
   */
  add(packed: PackedVectors): void;
}

/**
 * Copies packed vectors into linear memory, to be searched. Each row is read for each pass, without a graph or a tree: results are
 * exact, and a query takes the time of reading all rows.
 * @param kernels Those of `loadKernels({ models })`.
 * @param packed What `packVectors` gave, stored and read again or not; it may have no rows.
 * @throws TypeError or RangeError naming the argument, the rule and the value, also where the bytes are not what they should be.
 * HeadwiseError `OUT_OF_MEMORY`, `RELEASED` or `NO_MODELS`. Nothing is allocated then.
 * @example
 * import { loadKernels } from "headwise";
 * import { models } from "headwise/models";
 * import { createIndex, packVectors } from "headwise/retrieval";
 * const kernels = await loadKernels({ models });
 * using index = createIndex(kernels, packVectors([[1, 0], [0.6, 0.8], [0, 1]]));
 * const [best] = index.search([0, 2], { topK: 1 });
 * console.log(best?.index, best?.score); // 2 1
 */
export function createIndex(kernels: Kernels, packed: PackedVectors): VectorIndex {
  const where = "createIndex";
  expectKernels(where, kernels);
  const given = readPacked(where, packed);
  expectKernels(where, kernels);
  if (!kernels.models)
    throw new HeadwiseError(
      "NO_MODELS",
      `${where}: kernels expected ones that were loaded with { models }, which headwise/models exports, got kernels without it`,
    );
  const { format, dimensions } = given;
  const used = format === "int8" ? dimensions : storedBytes(format, dimensions);
  const unit = format === "f32" ? 64 : 16;
  const rowBytes = unit * Math.ceil(used / unit);
  const store: Store = { at: 0, capacity: 0, rows: 0, released: false, format, dimensions, rowBytes };
  addRows(where, kernels, store, given);
  return indexOf(kernels, store);
}

/** The handle of a store. */
function indexOf(kernels: Kernels, store: Store): VectorIndex {
  const { format, dimensions } = store;
  const parts = {
    kernels,
    format,
    dimensions,
    get rows() {
      return store.rows;
    },
    get bytes() {
      return placeStore(store, store.capacity).bytes;
    },
    search: ((query: Vector | readonly Vector[], options: SearchOptions = {}) => {
      expectStore("search", kernels, store);
      return searchStore(kernels, store, query, options);
    }) as VectorIndex["search"],
    add(packed: PackedVectors): void {
      expectStore("add", kernels, store);
      const given = readPacked("add", packed, store);
      expectStore("add", kernels, store);
      addRows("add", kernels, store, given);
    },
  };
  return makeHandle<VectorIndex>("VectorIndex", "createIndex", parts, [], freeingStore(kernels, store));
}
