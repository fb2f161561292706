// Texts as the rows of their tokens in a table: no model runs.

import { type StoredTensor, toFloats } from "../base/tensor/dtypes.ts";
import type { Global } from "../base/util/arguments.ts";
import { describe, HeadwiseError } from "../base/util/errors.ts";
import { folderOf, type ModelSource, openFile } from "../files/model-files.ts";
import { openSafetensors } from "../files/safetensors/safetensors.ts";
import type { ModelStore } from "../files/store.ts";
import { Pool, toUnit } from "../models/encoder/encode.ts";
import { unknownOf } from "../text/token-places.ts";
import type { Tokenizer } from "../text/tokenizer.ts";
import type { StaticRules } from "./recipe.ts";

/** A table of rows, and how tokens find theirs. */
interface Lookup {
  readonly rules: StaticRules;
  readonly rows: Float32Array;
  readonly width: number;
  /** The row of each token; undefined where that is its id. */
  readonly mapping: Float32Array | undefined;
  /** A factor for each token. */
  readonly weights: Float32Array | undefined;
}

/** Names that the table has in files, the newer ones first. */
const TABLES = ["embedding.weight", "embeddings", "weight"];

/** Reads a table. */
export async function loadLookup(
  where: string,
  source: ModelSource,
  rules: StaticRules,
  signal?: Global<"AbortSignal">,
  store?: ModelStore,
): Promise<Lookup> {
  const name = "model.safetensors";
  const opened = await openFile(where, folderOf(source, rules.folder), name, signal, store);
  if (opened === undefined)
    throw new HeadwiseError("BAD_FILE", `${where}: source expected a file ${describe(name)}, got none`);
  try {
    const { tensors, read } = await openSafetensors(opened.source);
    const found = TABLES.find((each) => tensors.has(each));
    if (found === undefined) {
      const rule = `a tensor of these names: ${TABLES.join(", ")}`;
      throw new HeadwiseError("BAD_FILE", `${where}: ${name} expected ${rule}, got ${[...tensors.keys()].join(", ")}`);
    }
    const floats = async (each: string) => (tensors.has(each) ? floatsOf(await read(each)) : undefined);
    const width = tensors.get(found)?.shape[1] ?? 1;
    return {
      ...{ rules, rows: (await floats(found)) as Float32Array, width },
      mapping: tensors.has("mapping") ? integersOf(await read("mapping")) : undefined,
      weights: await floats("weights"),
    };
  } finally {
    await opened.close();
  }
}

/** Floats, or integers of 8 bits, whose scale does not matter to vectors of length 1. */
const floatsOf = (stored: StoredTensor): Float32Array =>
  (stored.dtype as string) === "I8"
    ? Float32Array.from(new Int8Array(stored.bytes.buffer, stored.bytes.byteOffset, stored.bytes.byteLength))
    : toFloats(stored).slice();

/** Integers of 32 or 64 bits as numbers. */
function integersOf({ dtype, bytes }: StoredTensor): Float32Array {
  const view = new DataView(bytes.buffer, bytes.byteOffset, bytes.byteLength);
  const isWide = (dtype as string) === "I64";
  return Float32Array.from({ length: bytes.byteLength / (isWide ? 8 : 4) }, (_, i) =>
    isWide ? Number(view.getBigInt64(8 * i, true)) : view.getInt32(4 * i, true),
  );
}

/** Tokens of texts that model2vec reads. */
const MOST_TOKENS = 512;

/** Makes a row of each text: the mean of the rows of its tokens, or the ids of its tokens, and behind them their weights. */
export function createLookup({ rules, rows, width, mapping, weights }: Lookup, tokenizer: Tokenizer) {
  const { made } = tokenizer;
  const unknown = made && rules.kind === "model2vec" ? made.library.token_to_id(unknownOf(made) ?? "") : undefined;
  const longest = rules.kind === "model2vec" && made ? MOST_TOKENS * medianLength(made.json) : Infinity;
  const idsOf = (text: string): readonly number[] => {
    const cut = text.length > longest ? Array.from(text).slice(0, longest).join("") : text;
    const ids = tokenizer.encode(cut, { addSpecial: false });
    return rules.kind === "model2vec" ? ids.slice(0, MOST_TOKENS).filter((id) => id !== unknown) : ids;
  };
  return (text: string, isUnit: boolean): Float32Array => {
    const ids = idsOf(text);
    if (rules.kind === "sparse") {
      const own = [...new Set(ids)].sort((a, b) => a - b).filter((id) => id < rows.length && rows[id] !== 0);
      return Float32Array.from([...own, ...own.map((id) => rows[id] as number)]);
    }
    const pool = new Pool(["mean"], width, { first: 0, count: ids.length });
    for (const [i, id] of ids.entries()) {
      const at = (mapping?.[id] ?? id) * width;
      if (at + width > rows.length)
        throw new RangeError(`embed: text expected ids of the table (${rows.length / width} rows), got ${id}`);
      const row = rows.subarray(at, at + width);
      const weight = weights?.[id];
      pool.add(i, weight === undefined ? row : Array.from(row, (x) => x * weight));
    }
    const mean = pool.result();
    return isUnit ? toUnit(mean) : mean;
  };
}

/** The median of the lengths of the vocabulary's tokens, in characters. */
function medianLength(json: object): number {
  const { vocab } = (json as { model: { vocab: unknown } }).model;
  const tokens = Array.isArray(vocab) ? vocab.map(([token]) => String(token)) : Object.keys(Object(vocab));
  const lengths = tokens.map((token) => Array.from(token).length).sort((a, b) => a - b);
  const middle = lengths.length >> 1;
  const median = lengths.length % 2 ? lengths[middle] : ((lengths[middle - 1] ?? 0) + (lengths[middle] ?? 0)) / 2;
  return Math.floor(median ?? 1);
}
