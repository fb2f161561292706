// Calls on encoders: states of tokens, vectors of texts, logits of masked tokens.

import { shapeText } from "../../base/tensor/dtypes.ts";
import { createFloats, LARGEST_LENGTH, readTensor, type Tensor } from "../../base/tensor/tensor.ts";
import { expectFlag, expectInt, expectOneOf, readFields, readOptions } from "../../base/util/arguments.ts";
import { describe } from "../../base/util/errors.ts";
import { expectMade } from "../../base/util/lifetime.ts";
import { copyRows } from "../../base/util/rows.ts";
import { finish } from "../../base/util/steps.ts";
import { wholePanels } from "../../layers/linear/formats.ts";
import type { Rows } from "../../layers/linear/products.ts";
import { checkSlices, runSlices, SLICE_OPTIONS, type SliceOptions, stepFlopsOf } from "../../layers/pass/forward.ts";
import { NULL } from "../../wasm/abi.ts";
import { expectKernels } from "../../wasm/kernels.ts";
import { MOST_TOP } from "../blocks/block.ts";
import { type OutputRow, type OutputSink, runHead } from "../blocks/ends.ts";
import type { LoadedModel } from "../blocks/model.ts";
import { activateRows, normRows, projectRows, type RowWork } from "../blocks/rows.ts";
import { readIds, type TokenIds } from "../decoder/session.ts";
import { mostTokens } from "../spec/spec.ts";
import type { Encoder, Seq2Seq } from "./load.ts";
import { type Output, runEncoder, type Sequence, stemRows } from "./pass.ts";

// The sequences of a call on an encoder: token ids, or texts that a tokenizer turns into ids.

/** What turns a text into token ids, those at its beginning and end included. */
export interface TextTokenizer {
  /** The ids of a text. */
  encode(text: string): TokenIds;
}

/** Options that calls on encoders share. */
export interface BatchOptions {
  /** Types of tokens, such as 1 for a second sentence: a list for each sequence, of the length of its ids. Default 0 for all. */
  readonly tokenTypes?: readonly TokenIds[] | undefined;
  /** What encodes the texts of a batch. */
  readonly tokenizer?: TextTokenizer | undefined;
}

/** Token ids of texts, or the texts themselves where there is a tokenizer; features [bands, frames] for a model that hears. */
export type Batch = readonly (TokenIds | string | Tensor)[];

const BATCH_OPTIONS = ["tokenTypes", "tokenizer"] as const;

/** Reads and checks a batch. `nameOf` is what messages call the sequence of an index. */
export function readBatch(
  where: string,
  model: LoadedModel,
  batch: Batch,
  options: BatchOptions,
  nameOf: (i: number) => string = (i) => `batch[${i}]`,
): Sequence[] {
  expectEncoder(where, model);
  const { tokenTypes, tokenizer } = options;
  const texts = expectLists(where, "batch", batch);
  const { spec } = model.encoder ?? model;
  const { embed } = spec;
  if (tokenTypes !== undefined && embed.types === undefined)
    throw new RangeError(
      `${where}: tokenTypes expected none, since the model has no token types, got ${describe(tokenTypes)}`,
    );
  const types = tokenTypes && expectLists(where, "tokenTypes", tokenTypes, texts.length);
  // Encoders of models with two halves have distances instead of positions, which config.json does not limit.
  const most = model.encoder ? mostTokens(spec) : (model.maxSeqLen ?? Infinity);
  const sequences = texts.map((text, i): Sequence => {
    const name = nameOf(i);
    if (embed.channels !== undefined) return readFeatures(where, name, text, embed.channels, most);
    if (isTensor(text))
      throw new TypeError(`${where}: ${name} expected token ids, since the model reads text, got ${describe(text)}`);
    const ids = typeof text === "string" ? encodeText(where, name, text, tokenizer) : text;
    const read = readIds(where, name, ids, model.vocabSize, LARGEST_LENGTH);
    expectLength(where, name, "tokens", read.length, most);
    return { ids: Int32Array.from(read), types: types && readTypes(where, i, types[i], embed.types ?? 0, read.length) };
  });
  // Reading them may have run code of the caller's.
  expectEncoder(where, model);
  return sequences;
}

/** A copy without holes of a list of lists, one for each of `count` sequences where that is known. */
function expectLists<T>(where: string, name: string, value: readonly T[], count?: number): readonly T[] {
  if (!Array.isArray(value))
    throw new TypeError(`${where}: ${name} expected an array of lists, got ${describe(value)}`);
  if (count !== undefined && value.length !== count)
    throw new RangeError(`${where}: ${name} expected a list for each of ${count} sequences, got ${value.length}`);
  return Array.from(value);
}

const isTensor = (value: Batch[number]): value is Tensor =>
  typeof value === "object" && value !== null && "data" in value;

/** Features [channels, frames], which become a row for every other frame. */
function readFeatures(where: string, name: string, given: Batch[number], channels: number, most: number): Sequence {
  const features = readTensor(where, name, given as Tensor);
  const [rows = 0, frames = 0] = features.shape;
  if (features.shape.length !== 2 || rows !== channels)
    throw new RangeError(`${where}: ${name} expected shape [${channels}, frames], got ${shapeText(features.shape)}`);
  expectLength(where, name, "frames", frames, 2 * most);
  return { ids: new Int32Array(stemRows(frames)), types: undefined, features };
}

/** Throws unless a sequence has 1 to `most` elements. */
function expectLength(where: string, name: string, what: string, length: number, most: number): void {
  if (length === 0) throw new RangeError(`${where}: ${name} expected 1 or more ${what}, got none`);
  if (length > most)
    throw new RangeError(
      `${where}: ${name} expected at most ${most} ${what}, the positions of the model, got ${length}`,
    );
}

function encodeText(where: string, name: string, text: string, tokenizer: TextTokenizer | undefined): TokenIds {
  if (typeof tokenizer?.encode === "function") return tokenizer.encode(text);
  throw new TypeError(
    `${where}: ${name} expected token ids, or a tokenizer with encode(text) in the options, got ${describe(text)}`,
  );
}

function readTypes(where: string, i: number, given: unknown, count: number, length: number): Int32Array {
  const types = readIds(where, `tokenTypes[${i}]`, given, count, length);
  if (types.length !== length)
    throw new RangeError(`${where}: tokenTypes[${i}] expected ${length} types, one for each id, got ${types.length}`);
  return Int32Array.from(types);
}

/**
 * The last hidden states of each sequence: the outputs of the last layer, after its norm. Sequences may have any lengths, and
 * none is padded. Each has the same bits alone, in any batch and on any number of threads.
 * @param model One of `loadEncoder`, or of `loadSeq2Seq`, whose encoder runs.
 * @param batch Token ids of each sequence, or texts with `options.tokenizer`.
 * @returns [tokens, vectorDim] of each sequence.
 * @throws TypeError or RangeError naming the argument. HeadwiseError `OUT_OF_MEMORY`, `RELEASED`, and with threads `WORKER_LOST`
 * or `KERNEL_FAILED`.
 * @example
 * import { loadKernels } from "headwise";
 * import { encode, loadEncoder } from "headwise/models";
 * import { models } from "headwise/models";
 * const kernels = await loadKernels({ models });
 * const model = await loadEncoder(kernels, "model"); // a folder of this repository
 * const [first, second] = encode(model, [[2, 7, 1, 3], [2, 3]]);
 * console.log(first?.length === 4 * model.dModel, second?.length === 2 * model.dModel); // true true
 * kernels.release();
 */
export function encode(model: Encoder | Seq2Seq, batch: Batch, options: BatchOptions = {}): Float32Array[] {
  const where = "encode";
  const sequences = readBatch(where, model, batch, readFields(where, "options", options, BATCH_OPTIONS));
  const { results, output } = collectRows(where, model, sequences);
  finish(runEncoder(where, model, sequences, output));
  return results;
}

/**
 * `encode` in time slices, with yields to the event loop between them.
 * @throws The same errors as `encode`, and the signal's reason.
 * @example
 * import { loadKernels } from "headwise";
 * import { encodeAsync, loadEncoder } from "headwise/models";
 * import { models } from "headwise/models";
 * const kernels = await loadKernels({ models });
 * let last = 0;
 * await encodeAsync(await loadEncoder(kernels, "model"), [[2, 7, 1, 3]], { onProgress: (done) => (last = done) });
 * console.log(last); // 1
 * kernels.release();
 */
export async function encodeAsync(
  model: Encoder | Seq2Seq,
  batch: Batch,
  options: BatchOptions & SliceOptions = {},
): Promise<Float32Array[]> {
  const where = "encodeAsync";
  const { tokenTypes, tokenizer, ...rest } = readFields(where, "options", options, [
    ...BATCH_OPTIONS,
    ...SLICE_OPTIONS,
  ]);
  const sequences = readBatch(where, model, batch, { tokenTypes, tokenizer });
  const { results, output } = collectRows(where, model, sequences);
  await runSliced(where, model, sequences, output, rest);
  return results;
}

/** Runs a pass in time slices. */
export async function runSliced(
  where: string,
  model: LoadedModel,
  sequences: readonly Sequence[],
  output: Output,
  options: SliceOptions,
): Promise<void> {
  const slices = checkSlices(where, options);
  const all = (model.encoder ?? model).places.rowFlops * sequences.reduce((sum, { ids }) => sum + ids.length, 0);
  const steps = runEncoder(where, model, sequences, output, stepFlopsOf(model.kernels), true);
  const expectActive = () => {
    slices.signal?.throwIfAborted();
    expectEncoder(where, model);
  };
  await runSlices(steps, all, slices, expectActive);
  expectActive();
}

/** Arrays for all rows, and what fills them. */
export function collectRows(
  where: string,
  model: LoadedModel,
  sequences: readonly Sequence[],
): { readonly results: Float32Array[]; readonly output: Output } {
  const { vectorDim: n } = model;
  const results = sequences.map(({ ids }) => createFloats(where, "states", ids.length * n));
  const output = statesTo(model, (sequence, begin, _count, rows, stride) =>
    copyRows(results[sequence] as Float32Array, begin * n, n, rows, stride, n),
  );
  return { results, output };
}

/** Options of `embed`. */
export interface EmbedOptions extends BatchOptions {
  /** What a model was trained for, mostly "mean"; many of BGE and E5 take "cls". Default "mean". */
  readonly pooling?: Pooling | undefined;
  /** Whether vectors are divided by their length, so that their products are cosines. Default false. */
  readonly normalize?: boolean | undefined;
}

const OPTIONS = [...BATCH_OPTIONS, "pooling", "normalize"] as const;

/**
 * A vector for each text. Texts may have any lengths, and none is padded. Each has the same bits alone, in any batch and on any
 * number of threads.
 * @param batch Token ids of each text, with those that its tokenizer puts around it; or texts with `options.tokenizer`.
 * @returns [vectorDim] of each text.
 * @throws The same errors as `encode`.
 * @example
 * import { loadKernels } from "headwise";
 * import { embed, loadEncoder } from "headwise/models";
 * import { models } from "headwise/models";
 * const kernels = await loadKernels({ models });
 * const model = await loadEncoder(kernels, "model"); // a folder of this repository
 * const [a, b] = embed(model, [[2, 7, 1, 3], [2, 7, 1, 4, 3]], { pooling: "last", normalize: true });
 * const cosine = a?.reduce((sum, x, i) => sum + x * (b?.[i] ?? 0), 0) ?? 0;
 * console.log(cosine > 0 && cosine < 1); // true
 * kernels.release();
 */
export function embed(model: Encoder | Seq2Seq, batch: Batch, options: EmbedOptions = {}): Float32Array[] {
  const where = "embed";
  const { pooling, normalize, ...rest } = readOptions(where, options, OPTIONS);
  const pool = checkPool(where, pooling, normalize);
  const sequences = readBatch(where, model, batch, rest);
  const { output, vectors } = pool(model, sequences);
  finish(runEncoder(where, model, sequences, output));
  return vectors();
}

/**
 * `embed` in time slices, with yields to the event loop between them.
 * @throws The same errors as `embed`, and the signal's reason.
 * @example
 * import { loadKernels } from "headwise";
 * import { embedAsync, loadEncoder } from "headwise/models";
 * import { models } from "headwise/models";
 * const kernels = await loadKernels({ models });
 * const [vector] = await embedAsync(await loadEncoder(kernels, "model"), [[2, 7, 1, 3]], { sliceMs: 4, pooling: "last" });
 * console.log((vector?.length ?? 0) > 0); // true
 * kernels.release();
 */
export async function embedAsync(
  model: Encoder | Seq2Seq,
  batch: Batch,
  options: EmbedOptions & SliceOptions = {},
): Promise<Float32Array[]> {
  const where = "embedAsync";
  const { pooling, normalize, tokenTypes, tokenizer, ...slices } = readOptions(where, options, [
    ...OPTIONS,
    ...SLICE_OPTIONS,
  ]);
  const pool = checkPool(where, pooling, normalize);
  const sequences = readBatch(where, model, batch, { tokenTypes, tokenizer });
  const { output, vectors } = pool(model, sequences);
  await runSliced(where, model, sequences, output, slices);
  return vectors();
}

/** Checks how rows become vectors. */
function checkPool(where: string, pooling: Pooling = "mean", normalize = false) {
  expectOneOf(where, "pooling", pooling, POOLINGS);
  expectFlag(where, "normalize", normalize);
  return (model: LoadedModel, sequences: readonly Sequence[]): { output: Output; vectors: () => Float32Array[] } => {
    const pools = sequences.map(({ ids }) => new Pool([pooling], model.vectorDim, { first: 0, count: ids.length }));
    return { output: poolStates(model, pools), vectors: () => pools.map((pool) => pool.result(normalize)) };
  };
}

/** Gives the states of all rows to the pools of their sequences. */
export const poolStates = (model: LoadedModel, pools: readonly Pool[]): Output =>
  statesTo(model, (sequence, begin, count, rows, stride) => {
    for (let row = 0; row < count; row++) pools[sequence]?.add(begin + row, rows, row * stride);
  });

/** Options of `maskedLogits`. */
export interface MaskedLogitsOptions extends BatchOptions {
  /** Whose logits: a list of places in each sequence, such as those of its masks. Default all of its tokens. */
  readonly positions?: readonly TokenIds[] | undefined;
  /** Only the largest logits of each row, 1 to 1024, and their ids. Default all logits. */
  readonly top?: number | undefined;
}

/** What `maskedLogits` gives for a sequence. */
export interface MaskedLogits {
  /** [positions, vocabSize]; with `top`, that many instead of vocabSize, descending. */
  readonly logits: Float32Array;
  /** With `top`: the ids of these logits, of equal ones the lower first. */
  readonly ids: Int32Array | undefined;
}

/**
 * The logits of a head for masked tokens: what each token could be, given all others. Each row has the same bits in any batch.
 * @param batch Token ids of each sequence, masks among them, or texts with `options.tokenizer`.
 * @throws The same errors as `encode`, and a RangeError for a model whose file has no such head.
 * @example
 * import { loadKernels } from "headwise";
 * import { loadEncoder, maskedLogits } from "headwise/models";
 * import { models } from "headwise/models";
 * const kernels = await loadKernels({ models });
 * const model = await loadEncoder(kernels, "model"); // a decoder, which has no such head
 * try {
 *   maskedLogits(model, [[2, 7, 1, 3]], { positions: [[1]], top: 5 });
 * } catch (error) {
 *   console.log((error as Error).message); // maskedLogits: model expected one whose file has a head for masked tokens, got one without
 * }
 * kernels.release();
 */
export function maskedLogits(model: Encoder, batch: Batch, options: MaskedLogitsOptions = {}): MaskedLogits[] {
  const where = "maskedLogits";
  const { positions, top, ...rest } = readFields(where, "options", options, [...BATCH_OPTIONS, "positions", "top"]);
  const sequences = readBatch(where, model, batch, rest);
  if (!model.weights.transform)
    throw new RangeError(`${where}: model expected one whose file has a head for masked tokens, got one without`);
  const width =
    top === undefined ? model.vocabSize : expectInt(where, "top", top, 1, Math.min(MOST_TOP, model.vocabSize));
  const places = readPlaces(where, sequences, positions);
  const results = places.map(({ length }) => ({
    logits: createFloats(where, "logits", length * width),
    ids: top === undefined ? undefined : new Int32Array(length * width),
  }));
  const output = logitsTo(model, places, (row, sequence, i) => {
    const { logits, ids } = results[sequence] as (typeof results)[number];
    const at = i * width;
    if (!ids) return logits.set(row.logits(), at);
    const found = row.top(width);
    logits.set(found.values, at);
    ids.set(found.ids, at);
  });
  finish(runEncoder(where, model, sequences, output));
  return results;
}

/** Gives the logits of tokens at `places` of each sequence to `sink`, with the number of the sequence and of the place. */
export function logitsTo(
  model: Encoder,
  places: readonly (readonly number[])[],
  sink: (row: OutputRow, sequence: number, i: number) => void,
): Output {
  // Outputs are numbered in the order of the sequences.
  const outputs = places.flatMap((own, sequence) => own.map((_, i) => ({ sequence, i })));
  const firsts: number[] = [];
  let count = 0;
  for (const { length } of places) {
    firsts.push(count);
    count += length;
  }
  const given: OutputSink = (row) => {
    const { sequence, i } = outputs[row.output] as (typeof outputs)[number];
    sink(row, sequence, i);
  };
  return {
    logits: outputs.length,
    *take(work, plan, { runs, rows }) {
      const wanted = runs.flatMap(({ of: { sequence }, begin, end, at }) =>
        (places[sequence] ?? []).flatMap((token, i) =>
          token < begin || token >= end ? [] : [{ row: at + token - begin, output: (firsts[sequence] ?? 0) + i }],
        ),
      );
      const transform = (to: Rows, from: Rows, count: number) => transformRows(work, model, to, from, count);
      yield* runHead(work, model, plan, rows, wanted, given, transform);
    },
  };
}

/** What is before the head: a projection, an activation and a norm. */
function* transformRows(work: RowWork, { spec, weights }: Encoder, to: Rows, from: Rows, count: number) {
  const { transform } = weights;
  const activation = spec.head.transform?.activation;
  if (!transform || !activation) return;
  yield* projectRows(work, [transform.dense], to, from, count);
  activateRows(work, activation, to, NULL, spec.embed.dim, count);
  normRows(work, transform.norm, to, to, spec.embed.dim, count);
}

/** The tokens of each sequence whose logits are wanted. */
function readPlaces(
  where: string,
  sequences: readonly Sequence[],
  positions: readonly TokenIds[] | undefined,
): readonly (readonly number[])[] {
  if (positions === undefined) return sequences.map(({ ids }) => Array.from(ids.keys()));
  return expectLists(where, "positions", positions, sequences.length).map((given, i) => {
    const { length } = (sequences[i] as Sequence).ids;
    return Array.from(readIds(where, `positions[${i}]`, given, length, LARGEST_LENGTH));
  });
}

/** Throws unless `model` came from loadEncoder or loadSeq2Seq and neither it nor its kernels were released. */
function expectEncoder(where: string, model: LoadedModel): void {
  expectMade(where, "model", model, "loadEncoder", "loadSeq2Seq");
  expectKernels(where, model.kernels, "model.kernels");
}

/** Takes rows of states, `stride` floats apart, from row `begin` of a sequence on: a view. */
type RowSink = (sequence: number, begin: number, count: number, rows: Float32Array, stride: number) => void;

/** Gives the states of all rows to `sink`, after the last norm and the last projection where there are any. */
const statesTo = (model: LoadedModel, sink: RowSink): Output => ({
  logits: 0,
  *take(work, _plan, { runs, rows: { residual, normed }, count }) {
    const { spec, weights } = model.encoder ?? model;
    if (weights.finalNorm) normRows(work, weights.finalNorm, residual, residual, spec.dModel, count);
    const vectors = { at: normed.at, stride: wholePanels(spec.vectorDim ?? 0) };
    if (weights.lastProjection) yield* projectRows(work, [weights.lastProjection], vectors, residual, count);
    const { at: from, stride } = weights.lastProjection ? vectors : residual;
    for (const { of, begin, end, at } of runs)
      sink(
        of.sequence,
        begin,
        end - begin,
        model.kernels.memory.f32(from + 4 * at * stride, (end - begin) * stride),
        stride,
      );
  },
});

// How rows become one: the states of a text's tokens, or their logits.

/**
 * How the rows of a text become one: the first of them ("cls"), the last, the largest of each column, their mean, their sum divided by
 * the root of their count ("sqrt"), or a mean that weighs the token at place i by i + 1 ("weighted").
 */
export type Pooling = "cls" | "max" | "mean" | "sqrt" | "weighted" | "last";

export const POOLINGS: readonly Pooling[] = ["cls", "max", "mean", "sqrt", "weighted", "last"];

/** The rows of a text, of which those before `first` are left out. */
interface RowRange {
  readonly first: number;
  readonly count: number;
}

/**
 * Takes rows one after the other, and gives those that they become side by side, in float64: the same sums however the rows come in
 * pieces. Without rows these are zeros.
 */
export class Pool {
  readonly #modes: readonly Pooling[];
  readonly #width: number;
  readonly #rows: RowRange;
  readonly #sums: Float64Array;
  #seen = 0;
  #weights = 0;

  constructor(modes: readonly Pooling[], width: number, rows: RowRange) {
    this.#modes = modes;
    this.#width = width;
    this.#rows = rows;
    this.#sums = new Float64Array(modes.length * width);
  }

  /** Takes row `index`, the floats of `rows` from `at` on. */
  add(index: number, rows: ArrayLike<number>, at = 0): void {
    const { first, count } = this.#rows;
    if (index < first || index >= count) return;
    const width = this.#width;
    const sums = this.#sums;
    for (const [m, mode] of this.#modes.entries()) {
      const to = m * width;
      if (mode === "max") {
        for (let i = 0; i < width; i++) {
          const x = rows[at + i] as number;
          if (this.#seen === 0 || x > (sums[to + i] as number)) sums[to + i] = x;
        }
        continue;
      }
      if ((mode === "cls" && index !== first) || (mode === "last" && index !== count - 1)) continue;
      const weight = mode === "weighted" ? index + 1 : 1;
      for (let i = 0; i < width; i++) sums[to + i]! += weight * (rows[at + i] as number);
    }
    this.#seen++;
    this.#weights += index + 1;
  }

  /** The rows that all became, [modes, width] side by side, as they are or of length 1. */
  result(isUnit = false): Float32Array {
    // The length of a single row does not matter then.
    if (isUnit && this.#modes.length === 1) return toUnit(this.#sums);
    const divisors = {
      cls: 1,
      max: 1,
      last: 1,
      mean: this.#seen,
      sqrt: Math.sqrt(this.#seen),
      weighted: this.#weights,
    };
    const row = this.#sums.map((sum, i) => sum / (divisors[this.#modes[Math.floor(i / this.#width)] as Pooling] || 1));
    return isUnit ? toUnit(row) : Float32Array.from(row);
  }
}

/** A row of length 1; zeros stay as they are. */
export function toUnit(row: Float64Array | Float32Array): Float32Array {
  let squares = 0;
  for (const x of row) squares += x * x;
  const length = Math.sqrt(squares);
  return Float32Array.from(row, (x) => x / (length || 1));
}
