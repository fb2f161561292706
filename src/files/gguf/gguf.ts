// A model in GGUF: one file, or several that are numbered.

import { type StoredTensor, shapeText } from "../../base/tensor/dtypes.ts";
import {
  codedDtype,
  codeGgml,
  GGML_DTYPES,
  type GgmlDtype,
  ggmlElements,
  isGgmlDtype,
  widenGgml,
} from "../../base/tensor/ggml-blocks.ts";
import { describe, HeadwiseError } from "../../base/util/errors.ts";
import {
  type ByteSource,
  type BytesOrSource,
  createArray,
  type OpenSource,
  readRange,
  toSource,
} from "../byte-source.ts";
import { joinFiles } from "../model-folder.ts";
import { createTensorFile, type TensorEntry, type TensorFile } from "../tensor-file.ts";
import { type GgufValue, readGgufHeader } from "./header.ts";

/** An opened GGUF file. Shapes have the outermost dimension first, so a matrix is [outputs, inputs]. */
export type GgufFile = TensorFile<GgufValue>;

/**
 * The types of tensors by number: name, elements of a block and bytes of a block. Missing numbers are retired types.
 */
const TYPES: ReadonlyMap<number, readonly [name: string, length: number, bytes: number]> = new Map([
  [0, ["F32", 1, 4]],
  [1, ["F16", 1, 2]],
  [2, ["Q4_0", 32, 18]],
  [3, ["Q4_1", 32, 20]],
  [6, ["Q5_0", 32, 22]],
  [7, ["Q5_1", 32, 24]],
  [8, ["Q8_0", 32, 34]],
  [9, ["Q8_1", 32, 36]],
  [10, ["Q2_K", 256, 84]],
  [11, ["Q3_K", 256, 110]],
  [12, ["Q4_K", 256, 144]],
  [13, ["Q5_K", 256, 176]],
  [14, ["Q6_K", 256, 210]],
  [15, ["Q8_K", 256, 292]],
  [16, ["IQ2_XXS", 256, 66]],
  [17, ["IQ2_XS", 256, 74]],
  [18, ["IQ3_XXS", 256, 98]],
  [19, ["IQ1_S", 256, 50]],
  [20, ["IQ4_NL", 32, 18]],
  [21, ["IQ3_S", 256, 110]],
  [22, ["IQ2_S", 256, 82]],
  [23, ["IQ4_XS", 256, 136]],
  [24, ["I8", 1, 1]],
  [25, ["I16", 1, 2]],
  [26, ["I32", 1, 4]],
  [27, ["I64", 1, 8]],
  [28, ["F64", 1, 8]],
  [29, ["IQ1_M", 256, 56]],
  [30, ["BF16", 1, 2]],
  [34, ["TQ1_0", 256, 54]],
  [35, ["TQ2_0", 256, 66]],
  [39, ["MXFP4", 32, 17]],
  [40, ["NVFP4", 64, 36]],
  [41, ["Q1_0", 128, 18]],
]);

const WHERE = "openGguf";

/** Bytes of the first read; longer headers are read in several steps, each as long as what was read before. */
const FIRST = 2 ** 16;

/**
 * Opens a GGUF file (version 2 or 3) of any size: reads and checks its header. Tensors of F32, F16, BF16, Q8_0 and Q4_0 can
 * then be read as they are stored. Those of Q4_1, Q5_0, Q5_1, Q2_K to Q6_K, IQ1_S to IQ4_XS, TQ1_0, TQ2_0, MXFP4 and NVFP4 are
 * widened to F32 as they are read, to the values that ggml gives them; those of other types are only listed. In text that is not
 * valid UTF-8, U+FFFD replaces the wrong bytes.
 * @throws TypeError for a `source` of another type. HeadwiseError `BAD_FILE` for bytes that cannot be read and for a file
 * that breaks the format, with the key or tensor, the rule and the value: a truncated file, counts and lengths beyond the
 * file, duplicates, unknown types, and tensors that overlap, are misaligned, exceed the file or have incomplete blocks. For
 * a file of another format, it says what the file looks like and what to do.
 * @example
 * import { openGguf, toFloats } from "headwise/weights";
 * // A header of no keys and one tensor "w" of two F32, then its bytes at a multiple of 32.
 * const bytes = new Uint8Array(96);
 * bytes.set(new TextEncoder().encode("GGUF"));
 * const view = new DataView(bytes.buffer);
 * const longs = [[8, 1], [16, 0], [24, 1], [37, 2], [49, 0]] as const; // tensors, keys, a name's length, 2 elements, offset
 * for (const [at, value] of longs) view.setBigUint64(at, BigInt(value), true);
 * for (const [at, value] of [[4, 3], [33, 1], [45, 0]] as const) view.setUint32(at, value, true); // version, rank, F32
 * bytes[32] = "w".charCodeAt(0);
 * view.setFloat32(64, 1.5, true);
 * const file = await openGguf(bytes.subarray(0, 72));
 * console.log(file.tensors.get("w")?.shape, toFloats(await file.read("w")).join(" ")); // [ 2 ] 1.5 0
 */
export async function openGguf(source: BytesOrSource): Promise<GgufFile> {
  return openConverted(source, (where, dtype, bytes) => {
    const widened = createArray(where, 4 * ggmlElements(dtype, bytes.length), "readRows");
    widenGgml(dtype, bytes, new Float32Array(widened.buffer));
    return { dtype: "F32", bytes: widened };
  });
}

/** Opens a file whose tensors are read as they are stored, those of blocks that kernels do not read in their coded dtypes. */
export function openCodedGguf(source: BytesOrSource): Promise<GgufFile> {
  return openConverted(source, (_where, dtype, bytes) => ({ dtype: codedDtype(dtype), bytes: codeGgml(dtype, bytes) }));
}

async function openConverted(
  source: BytesOrSource,
  convert: (where: string, dtype: GgmlDtype, bytes: Uint8Array) => Pick<StoredTensor, "dtype" | "bytes">,
): Promise<GgufFile> {
  const from = toSource(WHERE, source);
  const { metadata, tensors, alignment, start } = await readHeader(from);
  placeTensors(tensors, alignment, start, from);
  return createTensorFile(from, metadata, tensors, ["F32", "F16", "BF16", "Q8_0", "Q4_0"], {
    dtypes: GGML_DTYPES,
    convert: (where, dtype, bytes) => convert(where, dtype as GgmlDtype, bytes),
  });
}

/** Reads the metadata of a file alone. */
export async function readGgufMetadata(source: BytesOrSource): Promise<Pick<GgufFile, "metadata">> {
  const { metadata } = await readHeader(toSource(WHERE, source));
  return { metadata };
}

/** Reads until the header is complete. What was read doubles, so that a byte is scanned twice on average. */
async function readHeader(source: ByteSource) {
  let bytes = await readRange(WHERE, source, 0, Math.min(FIRST, source.size));
  for (;;) {
    const header = readGgufHeader(WHERE, bytes, source.size, createEntry);
    if (typeof header !== "number") return header;
    const length = Math.min(Math.max(header, 2 * bytes.length), source.size);
    const grown = new Uint8Array(length);
    grown.set(bytes);
    grown.set(await readRange(WHERE, source, bytes.length, length - bytes.length), bytes.length);
    bytes = grown;
  }
}

/** An entry whose offset is one in the data until it is placed in the file. */
type Entry = Omit<TensorEntry, "offset"> & { offset: number };

function createEntry(name: string, shape: readonly number[], type: number, offset: number): Entry {
  const [dtype, length, blockBytes] = TYPES.get(type) ?? fail(name, "a known type", `type ${type}`);
  if ((shape.at(-1) ?? 1) % length !== 0) fail(name, `rows of whole blocks (${length}) for ${dtype}`, shapeText(shape));
  let elements = 1;
  for (let axis = shape.length - 1; axis >= 0; axis--) {
    elements *= shape[axis] as number;
    if (elements > Number.MAX_SAFE_INTEGER) fail(name, "fewer than 2^53 elements", shapeText(shape));
  }
  return { name, dtype, shape, offset, bytes: (elements / length) * blockBytes };
}

/** Places the tensors in the file, after they are compared with each other and with the file's size. */
function placeTensors(
  tensors: ReadonlyMap<string, Entry>,
  alignment: number,
  start: number,
  { size, note = "" }: OpenSource,
): void {
  const laid: Entry[] = [];
  for (const entry of tensors.values()) {
    const { name, offset, bytes } = entry;
    if (offset % alignment !== 0) fail(name, `an offset that is a multiple of ${alignment}`, offset);
    entry.offset = start + offset;
    if (entry.offset + bytes > size)
      fail(name, `to end within the file (${size} bytes)${note}`, `${bytes} bytes at ${entry.offset}`);
    if (bytes > 0) laid.push(entry);
  }
  let covered: Entry | undefined;
  for (const entry of laid.sort((a, b) => a.offset - b.offset)) {
    const end = covered === undefined ? 0 : covered.offset + covered.bytes;
    if (entry.offset < end)
      fail(entry.name, `to begin after ${describe(covered?.name)}, which ends at ${end}`, entry.offset);
    covered = entry;
  }
}

function fail(name: string, rule: string, got: string | number): never {
  throw new HeadwiseError("BAD_FILE", `${WHERE}: tensor ${describe(name)} expected ${rule}, got ${got}`);
}

/** The opened files of a model. */
export interface GgufParts {
  /** The first file, with the tensors of all. */
  readonly description: GgufFile;
  readonly file: Pick<GgufFile, "readAll" | "readRows">;
  /** Those whose blocks are coded as they are read have that dtype. */
  readonly tensors: ReadonlyMap<string, TensorEntry>;
}

/** Throws if what a file says of itself is not that it is part `part`, from 0, of as many parts and tensors as the first one. */
function expectPart(
  where: string,
  name: string,
  part: number,
  file: Pick<GgufFile, "metadata">,
  first: Pick<GgufFile, "metadata">,
): void {
  for (const key of ["split.no", "split.count", "split.tensors.count"]) {
    const stated = file.metadata.get(key);
    const expected = key === "split.no" ? part : first.metadata.get(key);
    if (stated === undefined || expected === undefined || Number(stated) === Number(expected)) continue;
    throw new HeadwiseError(
      "BAD_FILE",
      `${where}: key "${key}" of ${describe(name)} expected ${describe(expected)}, got ${describe(stated)}`,
    );
  }
}

/** Opens the file `name`, and the other parts of the model if it is one of several. */
export async function openGgufParts(
  where: string,
  name: string,
  open: (name: string) => Promise<ByteSource>,
): Promise<GgufParts> {
  const [, digits] = PART.exec(name) ?? [];
  const count = Number(digits ?? 1);
  const nameOf = (part: number) =>
    digits === undefined ? name : name.replace(PART, `-${`${part}`.padStart(5, "0")}-of-${digits}.gguf`);
  const files = new Map<string, TensorFile<GgufFile["metadata"] extends ReadonlyMap<string, infer V> ? V : never>>();
  for (let part = 1; part <= count; part++) files.set(nameOf(part), await openCodedGguf(await open(nameOf(part))));
  const first = files.get(nameOf(1)) as GgufFile;
  const stated = Number(first.metadata.get("split.count") ?? 1);
  if (Math.max(stated, 1) !== count)
    throw new HeadwiseError(
      "BAD_FILE",
      `${where}: source expected ${stated} files named ${describe(`NAME-00001-of-${`${stated}`.padStart(5, "0")}.gguf`)}, ` +
        `got ${describe(name)}`,
    );
  for (const [i, [own, file]] of [...files].entries()) expectPart(where, own, i, file, first);
  const owners = new Map<string, string>();
  const tensors = new Map<string, TensorEntry>();
  for (const [owner, file] of files)
    for (const [tensor, entry] of file.tensors) {
      if (owners.has(tensor))
        throw new HeadwiseError("BAD_FILE", `${where}: tensor ${describe(tensor)} expected in one file, got it in two`);
      owners.set(tensor, owner);
      tensors.set(tensor, isGgmlDtype(entry.dtype) ? { ...entry, dtype: codedDtype(entry.dtype) } : entry);
    }
  const all = joinFiles(owners, files);
  const read: GgufFile["read"] = async (tensor, from) => (await all.readAll([tensor], from)).get(tensor)!;
  return { description: { metadata: first.metadata, tensors, read, ...all }, file: all, tensors };
}

/** Names of parts: NAME-00001-of-00003.gguf. */
export const PART: RegExp = /-\d{5}-of-(?!00000)(\d{5})\.gguf$/i;
