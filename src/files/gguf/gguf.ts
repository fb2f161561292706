import { shapeText } from "../../tensor/dtypes.ts";
import { describe, HeadwiseError } from "../../util/errors.ts";
import { type ByteSource, type BytesOrSource, readRange, toSource } from "../byte-source.ts";
import { createTensorFile, type TensorEntry, type TensorFile } from "../tensor-file.ts";
import { type GgufHeader, type GgufValue, readGgufHeader } from "./header.ts";

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

/** Bytes of the first read; longer headers are read in several steps. */
const FIRST = 2 ** 16;
const LARGEST_STEP = 2 ** 24;

/**
 * Opens a GGUF file (version 2 or 3) of any size: reads and checks its header. Tensors of F32, F16, BF16, Q8_0 and Q4_0 can
 * then be read; those of other types are only listed. In text that is not valid UTF-8, U+FFFD replaces the wrong bytes.
 * @throws TypeError for a `source` of another type. HeadwiseError `BAD_FILE` for bytes that cannot be read and for a file
 * that breaks the format, with the key or tensor, the rule and the value: a truncated file, counts and lengths beyond the
 * file, duplicates, unknown types, and tensors that overlap, are misaligned, exceed the file or have incomplete blocks.
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
  const from = toSource(WHERE, source);
  const header = await readHeader(from);
  return createTensorFile(from, header.metadata, entriesOf(header, from.size), ["F32", "F16", "BF16", "Q8_0", "Q4_0"]);
}

/** Reads until the header is complete. Reads grow with the header, so that few bytes are scanned twice. */
async function readHeader(source: ByteSource): Promise<GgufHeader> {
  let bytes = await readRange(WHERE, source, 0, Math.min(FIRST, source.size));
  for (;;) {
    const header = readGgufHeader(WHERE, bytes, source.size);
    if (typeof header !== "number") return header;
    const length = Math.min(Math.max(header, bytes.length + Math.min(bytes.length, LARGEST_STEP)), source.size);
    const grown = new Uint8Array(length);
    grown.set(bytes);
    grown.set(await readRange(WHERE, source, bytes.length, length - bytes.length), bytes.length);
    bytes = grown;
  }
}

/** The tensors and their offsets in the file, after these are compared with each other and with the file's size. */
function entriesOf({ infos, alignment, start }: GgufHeader, size: number): ReadonlyMap<string, TensorEntry> {
  const tensors = new Map<string, TensorEntry>();
  for (const { name, lengths, type, offset } of infos) {
    const fail = (rule: string, got: string | number): never => {
      throw new HeadwiseError("BAD_FILE", `${WHERE}: tensor ${describe(name)} expected ${rule}, got ${got}`);
    };
    const [dtype, length, blockBytes] = TYPES.get(type) ?? fail("a known type", `type ${type}`);
    const shape = [...lengths].reverse();
    const row = lengths[0] ?? 1;
    if (row % length !== 0) fail(`rows of whole blocks (${length}) for ${dtype}`, shapeText(shape));
    let elements = 1;
    for (const each of lengths) {
      elements *= each;
      if (elements > Number.MAX_SAFE_INTEGER) fail("fewer than 2^53 elements", shapeText(shape));
    }
    const bytes = (elements / length) * blockBytes;
    if (offset % alignment !== 0) fail(`an offset that is a multiple of ${alignment}`, offset);
    if (start + offset + bytes > size)
      fail(`to end within the file (${size} bytes)`, `${bytes} bytes at ${start + offset}`);
    tensors.set(name, { name, dtype, shape, offset: start + offset, bytes });
  }
  let covered: TensorEntry | undefined;
  const laid = [...tensors.values()].filter(({ bytes }) => bytes > 0).sort((a, b) => a.offset - b.offset);
  for (const entry of laid) {
    if (covered !== undefined && entry.offset < covered.offset + covered.bytes)
      throw new HeadwiseError(
        "BAD_FILE",
        `${WHERE}: tensor ${describe(entry.name)} expected to begin after ${describe(covered.name)}, which ends at ` +
          `${covered.offset + covered.bytes}, got ${entry.offset}`,
      );
    covered = entry;
  }
  return tensors;
}
