// The tensors of a file, and what a file looks like that is none of the expected format.

import { type BlockTensor, type Dtype, type FILE_BLOCKS, type StoredTensor, shapeText } from "../base/tensor/dtypes.ts";
import { expectInt } from "../base/util/arguments.ts";
import { joinBytes } from "../base/util/bytes.ts";
import { describe, HeadwiseError, hexOf } from "../base/util/errors.ts";
import { type ByteSource, readRanges } from "./byte-source.ts";

/** The description of a tensor in an opened file. */
export interface TensorEntry {
  /** Name in the file. */
  readonly name: string;
  /** Name of the dtype in the file's format. Q8_0 and Q4_0 also for blocks that `writeSafetensors` stored as U8. */
  readonly dtype: string;
  /** Dimensions, the outermost first. */
  readonly shape: readonly number[];
  /** Where the tensor begins, in bytes from the beginning of the file. */
  readonly offset: number;
  /** How many bytes the tensor takes. */
  readonly bytes: number;
}

/** An opened file: its header is read and checked, and tensors are read on request. */
export interface TensorFile<Value> {
  /** Metadata of the file. */
  readonly metadata: ReadonlyMap<string, Value>;
  /** All tensors by name. */
  readonly tensors: ReadonlyMap<string, TensorEntry>;
  /**
   * Reads one tensor, as it is stored, or as F32 where its dtype is one that is widened.
   * @param where Name of the function in error messages.
   * @throws RangeError for a name that the file does not have. HeadwiseError `BAD_FILE` for a dtype that cannot be read and
   * for bytes that cannot be read, `OUT_OF_MEMORY` where they do not fit into memory.
   */
  read(name: string, where?: string): Promise<StoredTensor>;
  /**
   * Reads rows begin..end of a matrix, or of a tensor of more dimensions along the first one: its part of that many rows. Throws
   * as `read` does, and a RangeError for rows that it does not have.
   */
  readRows(name: string, begin: number, end: number, where?: string): Promise<StoredTensor>;
  /** Reads several tensors; those that are close to each other in the file in one request. Throws as `read` does. */
  readAll(names: Iterable<string>, where?: string): Promise<ReadonlyMap<string, StoredTensor>>;
}

/** The names to read, each once. Throws unless they are a list of names of `tensors`. */
export function expectNames(where: string, names: unknown, tensors: ReadonlyMap<string, unknown>): ReadonlySet<string> {
  if (typeof names === "string" || typeof Object(names)[Symbol.iterator] !== "function")
    throw new TypeError(`${where}: names expected a list of names, got ${describe(names)}`);
  const unique = new Set(names as Iterable<string>);
  for (const name of unique)
    if (!tensors.has(name))
      throw new RangeError(`${where}: name expected one of the file's ${tensors.size} tensors, got ${describe(name)}`);
  return unique;
}

/** Dtypes whose tensors become those of another one as they are read, or as they are packed. */
interface Conversion {
  readonly dtypes: readonly string[];
  /** Bytes behind all rows that belong to each. */
  tailOf(dtype: string): number;
  convert(
    where: string,
    dtype: string,
    bytes: Uint8Array,
    tail: Uint8Array,
  ): Pick<BlockTensor, "dtype" | "bytes" | typeof FILE_BLOCKS>;
}

/** Reading a tensor of a dtype other than the `readable` ones and those of `conversion` throws. */
export function createTensorFile<Value>(
  source: ByteSource,
  metadata: ReadonlyMap<string, Value>,
  tensors: ReadonlyMap<string, TensorEntry>,
  readable: readonly Dtype[],
  conversion?: Conversion,
): TensorFile<Value> {
  const expectReadable = (where: string, name: string): TensorEntry => {
    const entry = tensors.get(name) as TensorEntry;
    const all = [...readable, ...(conversion?.dtypes ?? [])];
    if (all.includes(entry.dtype)) return entry;
    const known = `${all.slice(0, -1).join(", ")} or ${all.at(-1)}`;
    throw new HeadwiseError("BAD_FILE", `${where}: tensor ${describe(name)} expected ${known}, got ${entry.dtype}`);
  };
  const tailOf = (dtype: string) => conversion?.tailOf(dtype) ?? 0;
  /** A tensor, or some of its rows, by their bytes and those of the tail. */
  const asStored = (where: string, { name, dtype }: TensorEntry, shape: readonly number[], all: Uint8Array) => {
    const end = all.length - tailOf(dtype);
    const [bytes, tail] = [all.subarray(0, end), all.subarray(end)];
    return {
      ...{ name, dtype: dtype as Dtype, shape, bytes },
      ...(conversion?.dtypes.includes(dtype) && conversion.convert(where, dtype, bytes, tail)),
    };
  };
  const readAll = async (where: string, names: Iterable<string>) => {
    const entries = Array.from(expectNames(where, names, tensors), (name) => expectReadable(where, name));
    const ranges = entries.map(({ offset, bytes }) => ({ begin: offset, end: offset + bytes }));
    const read = await readRanges(where, source, ranges);
    return new Map<string, StoredTensor>(
      entries.map((entry, i) => [entry.name, asStored(where, entry, entry.shape, read[i]!)]),
    );
  };
  return {
    metadata,
    tensors,
    read: async (name, where = "read") => (await readAll(where, [name])).get(name)!,
    async readRows(name, begin, end, where = "readRows") {
      expectNames(where, [name], tensors);
      const entry = expectReadable(where, name);
      const { shape, offset, bytes } = entry;
      const [rows = 0, ...row] = shape;
      if (row.length === 0)
        throw new RangeError(`${where}: name expected a tensor of 2 or more dimensions, got shape ${shapeText(shape)}`);
      expectInt(where, "begin", begin, 0, rows);
      expectInt(where, "end", end, begin, rows);
      const tail = tailOf(entry.dtype);
      const width = (bytes - tail) / (rows || 1);
      const ranges = [{ begin: offset + begin * width, end: offset + end * width }];
      if (tail > 0) ranges.push({ begin: offset + bytes - tail, end: offset + bytes });
      const [read, behind] = await readRanges(where, source, ranges);
      return asStored(where, entry, [end - begin, ...row], behind ? joinBytes([read!, behind]) : read!);
    },
    readAll: (names, where = "readAll") => readAll(where, names),
  };
}

// What a file looks like that is not of the expected format, by its first bytes.

/** How many bytes of the beginning show the kind: of a zip file, which needs the most, the name of the first entry. */
export const KIND_BYTES = 128;

/** The formats that are read, in the words of messages. */
const GGUF = "a GGUF file";
const SAFETENSORS = "a safetensors file";

const save = (what: string, from: string) => `in Python, save its ${what} with safetensors.${from}.save_file`;
const TORCH = save("tensors", "torch");
const NUMPY = save("arrays", "numpy");

/** Kinds of binary files: the first bytes in hex, the kind, and how to get a file that can be read. */
const BINARY: readonly (readonly [begins: RegExp, kind: string, remedy: string])[] = [
  [/^47475546/, GGUF, "openGguf reads it"],
  // A length below 2^32, and the brace of the header.
  [
    /^.{8}000000007b/,
    SAFETENSORS,
    "openSafetensors reads it, and loadModel its folder, or a list with its config.json",
  ],
  [/^504b0304.{52}(..)*?2e6e7079/, "a NumPy .npz file", NUMPY],
  // The first entry is NAME/data.pkl, or NAME/version in what torch.jit.save writes.
  [/^504b0304.{52}(..)*?2f(646174612e706b6c|76657273696f6e)/, "a PyTorch file", TORCH],
  [/^504b(0304|0506|0708)/, "a zip file", "unpack it"],
  [/^80(02|03|04|05)(?!00)/, "a Python pickle, such as a PyTorch file", TORCH],
  [/^934e554d5059/, "a NumPy .npy file", NUMPY],
  [/^894844460d0a1a0a/, "an HDF5 file", NUMPY],
  [/^1f8b08/, "a gzip file", "decompress it"],
  // Protobuf has no magic: the version of the format, up to 31, and then the name of the producer, a text or the graph.
  [/^08[01].(12|1a|22|28|32|3a|42)/, "what looks like an ONNX model", save("initializers", "numpy")],
];

/** Kinds of text. */
const TEXTS: readonly (readonly [begins: RegExp, kind: string, remedy: string])[] = [
  [/^version https:\/\/git-lfs/, "a Git LFS pointer, which stands for the file", "fetch the file with git lfs pull"],
  [/^\s*<(!doctype\s+html|html|head|body)/i, "a web page", "check the address that it was downloaded from"],
  [/^\s*<[?!a-z]/i, "an XML document", "check the address that it was downloaded from"],
  [/^\s*\{[\s\S]*"(weight_map|total_size)"/, "the index of a model in several files", "openSafetensorsIndex reads it"],
  [/^\s*[{[]\s*(["{}[\]\d]|$)/, "JSON text", "give the file with the weights"],
];

/**
 * The error for a file that is of another known kind than the expected one; undefined if nothing is known of it. `head` is
 * its beginning, as far as KIND_BYTES.
 */
export function otherKind(
  where: string,
  argument: string,
  expected: "a GGUF file" | "a safetensors file",
  head: Uint8Array,
): HeadwiseError | undefined {
  const begin = head.subarray(0, KIND_BYTES);
  const hex = hexOf(begin).replaceAll(" ", "");
  const text = String.fromCharCode(...begin);
  const found = BINARY.find(([begins]) => begins.test(hex)) ?? TEXTS.find(([begins]) => begins.test(text));
  if (found === undefined || found[1] === expected) return undefined;
  const [, kind, remedy] = found;
  return new HeadwiseError("BAD_FILE", `${where}: ${argument} expected ${expected}, got ${kind}: ${remedy}`);
}

/** Reads tensors of several files as those of one. */
export function joinFiles<Value>(
  owners: ReadonlyMap<string, string>,
  files: ReadonlyMap<string, TensorFile<Value>>,
): Pick<TensorFile<Value>, "readAll" | "readRows"> {
  // What reads alone: vocabularies in the metadata may be larger than the files that stay open.
  const readers = new Map(Array.from(files, ([name, { readAll, readRows }]) => [name, { readAll, readRows }]));
  const readerOf = (name: string) => readers.get(owners.get(name) as string) as Pick<TensorFile<Value>, "readRows">;
  return {
    readRows: (name, ...rows) => readerOf(name).readRows(name, ...rows),
    async readAll(names, where) {
      const wanted = new Map<string, string[]>();
      for (const name of names) {
        const owner = owners.get(name) as string;
        const own = wanted.get(owner);
        if (own) own.push(name);
        else wanted.set(owner, [name]);
      }
      const read = Array.from(wanted, ([owner, own]) => readers.get(owner)?.readAll(own, where));
      return new Map((await Promise.all(read)).flatMap((tensors) => [...(tensors ?? [])]));
    },
  };
}
