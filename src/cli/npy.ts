import { describe, HeadwiseError } from "../util/errors.ts";

const MAGIC = "\u0093NUMPY";
/** Magic, version and the length of the header. */
const [HEAD_1, HEAD_2] = [10, 12];
const TYPES: Readonly<Record<string, (bytes: ArrayBuffer) => ArrayLike<number>>> = {
  "<f4": (bytes) => new Float32Array(bytes),
  "<f8": (bytes) => new Float64Array(bytes),
};

const ascii = (bytes: Uint8Array) => String.fromCharCode(...bytes);

/** Whether bytes are those of a .npy file. */
export function isNpy(bytes: Uint8Array): boolean {
  return ascii(bytes.subarray(0, MAGIC.length)) === MAGIC;
}

/** The array of a .npy file as floats: <f4 or <f8, in C order. Throws BAD_FILE for others. */
export function readNpy(where: string, bytes: Uint8Array): { readonly data: Float32Array; readonly shape: number[] } {
  const fail = (rule: string, got: string): never => {
    throw new HeadwiseError("BAD_FILE", `${where}: ${rule}, got ${got}`);
  };
  const view = new DataView(bytes.buffer, bytes.byteOffset, bytes.byteLength);
  if (bytes.length < HEAD_2) fail("a .npy file expected a header", `${bytes.length} bytes`);
  const begin = bytes[MAGIC.length] === 1 ? HEAD_1 : HEAD_2;
  const end = begin + (begin === HEAD_1 ? view.getUint16(8, true) : view.getUint32(8, true));
  if (end > bytes.length) fail(`a .npy header expected to end within ${bytes.length} bytes`, `${end}`);
  const header = ascii(bytes.subarray(begin, Math.min(end, begin + 4096)));
  const [, dtype = ""] = /'descr': *'([^']*)'/.exec(header) ?? [];
  const [, sides] = /'shape': *\(([\d, ]*)\)/.exec(header) ?? [];
  const type = Object.hasOwn(TYPES, dtype) ? TYPES[dtype] : undefined;
  if (type === undefined || sides === undefined || !/'fortran_order': *False/.test(header))
    return fail("a .npy file expected dtype <f4 or <f8 in C order", describe(header.trim()));
  const shape = sides.split(",").flatMap((side) => (side.trim() === "" ? [] : [Number(side)]));
  const length = shape.reduce((a, b) => a * b, 1) * Number(dtype.slice(2));
  if (bytes.length - end !== length)
    fail(`shape [${shape.join(", ")}] of ${dtype} expected ${length} bytes`, `${bytes.length - end}`);
  return { data: Float32Array.from(type(new Uint8Array(bytes.subarray(end)).buffer)), shape };
}
