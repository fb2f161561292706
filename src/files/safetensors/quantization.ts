// Quantised blocks in safetensors files: the file holds them as bytes (U8), and its metadata states their format.

import {
  BLOCKS,
  type BlockDtype,
  type Dtype,
  isBlockDtype,
  type PlainDtype,
  type StoredTensor,
  shapeText,
} from "../../base/tensor/dtypes.ts";
import { describe, HeadwiseError } from "../../base/util/errors.ts";

/** The key of the metadata entry: JSON { "<tensor>": { "format": "Q8_0" or "Q4_0", "shape": [n, k] } }. */
export const QUANTIZED = "headwise.quantized";

/** A tensor of a dtype that safetensors defines. */
interface PlainTensor extends StoredTensor {
  readonly dtype: PlainDtype;
}

/** The entry for one tensor. */
interface Note {
  readonly format: BlockDtype;
  readonly shape: readonly [n: number, k: number];
}

/** A tensor without its bytes. */
type Description = Pick<StoredTensor, "name" | "dtype" | "shape">;

/**
 * Reads the entry and returns a function that, given a tensor and its number of bytes, describes it: as blocks if the
 * entry contains it, else unchanged. Throws BAD_FILE for an entry that breaks its form, and for a tensor that does not
 * fit its entry.
 */
export function quantizedIn(
  where: string,
  metadata: ReadonlyMap<string, string>,
): (tensor: Description, bytes: number) => Description {
  const notes = readNotes(where, metadata.get(QUANTIZED));
  return ({ name, dtype, shape }, bytes) => {
    const note = notes.get(name);
    if (note === undefined || isBlockDtype(dtype)) return { name, dtype, shape };
    const [n, width] = asPlain(note.format, note.shape).shape as [number, number];
    const size = n * width;
    if (dtype !== "U8" || bytes !== size)
      refuse(
        where,
        `tensor ${describe(name)} expected ${size} bytes of U8 for ${note.format} ${shapeText(note.shape)}`,
        `${bytes} of ${dtype}`,
      );
    return { name, dtype: note.format, shape: note.shape };
  };
}

/** The dtype and shape that a file states: bytes for a matrix of blocks, anything else unchanged. */
export function asPlain(dtype: Dtype, shape: readonly number[]): Pick<PlainTensor, "dtype" | "shape"> {
  if (!isBlockDtype(dtype)) return { dtype: dtype as PlainDtype, shape };
  const [n, k] = shape as [number, number];
  const { length, bytes } = BLOCKS[dtype];
  return { dtype: "U8", shape: [n, (k / length) * bytes] };
}

/** A tensor of blocks as the U8 that a file stores; any other tensor unchanged. */
export function asBytes({ name, dtype, shape, bytes }: StoredTensor): PlainTensor {
  return { name, ...asPlain(dtype, shape), bytes };
}

/** The entry for the blocks among `tensors`; undefined if there are none. */
export function noteQuantized(tensors: readonly Description[]): string | undefined {
  const notes = tensors
    .filter(({ dtype }) => isBlockDtype(dtype))
    .map(({ name, dtype, shape }) => [name, { format: dtype, shape }] as const);
  // Sorted, so that the bytes do not depend on the order of the tensors.
  notes.sort(([a], [b]) => (a < b ? -1 : 1));
  return notes.length === 0 ? undefined : JSON.stringify(Object.fromEntries(notes));
}

function refuse(where: string, rule: string, got: string, cause?: unknown): never {
  throw new HeadwiseError("BAD_FILE", `${where}: ${rule}, got ${got}`, { cause });
}

/** The entry by names of tensors; empty if it is absent. Throws BAD_FILE if it has another form. */
function readNotes(where: string, text: string | undefined): ReadonlyMap<string, Note> {
  if (text === undefined) return new Map();
  const what = `metadata ${describe(QUANTIZED)}`;
  let entry: unknown;
  try {
    entry = JSON.parse(text);
  } catch (cause) {
    return refuse(where, `${what} expected valid JSON`, describe(text), cause);
  }
  if (!isObject(entry)) return refuse(where, `${what} expected an object`, describe(entry));
  return new Map(Object.entries(entry).map(([name, note]) => [name, readNote(where, name, note)]));
}

function readNote(where: string, name: string, note: unknown): Note {
  const fail = (rule: string, got: string) =>
    refuse(where, `metadata ${describe(QUANTIZED)} of ${describe(name)} expected ${rule}`, got);
  if (!isObject(note)) return fail("{ format, shape }", describe(note));
  const { format, shape } = note;
  if (!isBlockDtype(format)) return fail("format Q8_0 or Q4_0", describe(format));
  const { length } = BLOCKS[format];
  const isLength = (value: unknown) => Number.isSafeInteger(value) && (value as number) >= 0;
  if (!Array.isArray(shape) || shape.length !== 2 || !shape.every(isLength) || shape[1] % length !== 0)
    return fail(`shape [n, k], k a multiple of ${length}`, JSON.stringify(shape));
  return { format, shape: shape as [number, number] };
}

function isObject(value: unknown): value is Record<string, unknown> {
  return value !== null && typeof value === "object" && !Array.isArray(value);
}
