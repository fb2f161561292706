// The sequences of a call on an encoder: token ids, or texts that a tokenizer turns into ids.

import { readIds, type TokenIds } from "../decoder/forward.ts";
import type { Model } from "../decoder/model.ts";
import { mostTokens } from "../models/decoder/read-spec.ts";
import { shapeText } from "../tensor/dtypes.ts";
import { LARGEST_LENGTH, readTensor, type Tensor } from "../tensor/tensor.ts";
import { describe } from "../util/errors.ts";
import { expectEncoder } from "./load-encoder.ts";
import type { Sequence } from "./pass.ts";
import { stemRows } from "./stem.ts";

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

export const BATCH_OPTIONS: readonly (keyof BatchOptions)[] = ["tokenTypes", "tokenizer"];

/** Reads and checks a batch. `nameOf` is what messages call the sequence of an index. */
export function readBatch(
  where: string,
  model: Model,
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
  const most = model.encoder ? mostTokens(spec) : (model.maxSeqLen ?? Number.POSITIVE_INFINITY);
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
export function expectLists<T>(where: string, name: string, value: readonly T[], count?: number): readonly T[] {
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
