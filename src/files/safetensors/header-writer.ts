import { BITS, type PlainDtype, shapeText } from "../../tensor/dtypes.ts";
import { describe } from "../../util/errors.ts";
import { LARGEST_HEADER } from "./header-reader.ts";
import { LARGEST_INTEGER } from "./header-scanner.ts";

/** A tensor of a file to be written. */
export interface HeaderLine {
  readonly name: string;
  readonly dtype: PlainDtype;
  readonly shape: readonly number[];
  /** Bytes of the tensor. */
  readonly size: number;
}

/**
 * The order in which tensors are written: by decreasing size of elements, so that every tensor is aligned, then by
 * name. Not by localeCompare, because the order must not depend on the host's language.
 */
export function compareLines(a: Omit<HeaderLine, "size">, b: Omit<HeaderLine, "size">): number {
  return BITS[b.dtype] - BITS[a.dtype] || (a.name < b.name ? -1 : 1);
}

/** Everything before the data of a file whose tensors follow each other, padded to a multiple of 8 bytes. */
export function headerText(
  where: string,
  lines: readonly HeaderLine[],
  metadata: Iterable<readonly [string, string]>,
): Uint8Array {
  const notes = Array.from(metadata, ([key, value]) => {
    if (typeof value !== "string")
      throw new TypeError(`${where}: metadata ${describe(key)} expected a string, got ${describe(value)}`);
    return `${quote(where, key)}:${quote(where, value)}`;
  });
  const members = notes.length > 0 ? [`"__metadata__":{${notes.join(",")}}`] : [];
  let end = 0;
  for (const { name, dtype, shape, size } of lines) {
    const begin = end;
    end += size;
    if (shape.some((length) => length > LARGEST_INTEGER))
      throw new RangeError(
        `${where}: tensor ${describe(name)} expected dimensions <= ${LARGEST_INTEGER}, got ${shapeText(shape)}`,
      );
    members.push(
      `${quote(where, name)}:{"dtype":"${dtype}","shape":[${shape.join(",")}],"data_offsets":[${begin},${end}]}`,
    );
  }
  const text = new TextEncoder().encode(`{${members.join(",")}}`);
  const length = Math.ceil(text.length / 8) * 8;
  if (length > LARGEST_HEADER)
    throw new RangeError(`${where}: header expected <= ${LARGEST_HEADER} bytes, got ${length}`);
  const header = new Uint8Array(8 + length).fill(0x20);
  new DataView(header.buffer).setBigUint64(0, BigInt(length), true);
  header.set(text, 8);
  return header;
}

function quote(where: string, word: string): string {
  if (typeof word !== "string") throw new TypeError(`${where}: name expected a string, got ${describe(word)}`);
  if (/\p{Cs}/u.test(word)) throw new RangeError(`${where}: name expected no lone surrogate, got ${describe(word)}`);
  return JSON.stringify(word);
}
