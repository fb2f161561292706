// Blocks of GGUF's formats as floats, and as blocks that kernels pack.

import { CODED_BLOCKS, type CodedDtype } from "./dtypes.ts";
import {
  type GgmlFormat,
  IQ_FORMATS,
  type IqDtype,
  type Parts,
  PLAIN_FORMATS,
  type PlainGgmlDtype,
} from "./ggml-formats.ts";

/** Names of the formats. */
export type GgmlDtype = PlainGgmlDtype | IqDtype;

const GGML_FORMATS: Readonly<Record<GgmlDtype, GgmlFormat>> = /* @__PURE__ */ Object.assign(
  {},
  PLAIN_FORMATS,
  IQ_FORMATS,
);

/** The names of the formats. */
export const GGML_DTYPES: readonly GgmlDtype[] = /* @__PURE__ */ Object.keys(GGML_FORMATS) as GgmlDtype[];

/** Whether a word names one of them. */
export function isGgmlDtype(word: string): word is GgmlDtype {
  return Object.hasOwn(GGML_FORMATS, word);
}

/** The dtype that holds a format without loss. */
export function codedDtype(dtype: GgmlDtype): CodedDtype {
  return GGML_FORMATS[dtype].coded;
}

/** Elements that `bytes` of blocks hold. */
export function ggmlElements(dtype: GgmlDtype, bytes: number): number {
  return (bytes / GGML_FORMATS[dtype].bytes) * GGML_FORMATS[dtype].length;
}

/** Calls `take` with each block, as numbers that the next one overwrites, and with its first element. */
function eachBlock(
  { length, bytes, read }: GgmlFormat,
  blocks: Uint8Array,
  take: (parts: Parts, to: number) => void,
): void {
  const parts = { scales: new Float64Array(16), mins: new Float64Array(16), integers: new Int8Array(length) };
  for (let at = 0, to = 0; at < blocks.length; at += bytes, to += length) {
    read(parts, blocks, at);
    take(parts, to);
  }
}

/** Whole blocks as floats, in `out`. Products and differences are rounded once, where they are not exact. */
export function widenGgml(dtype: GgmlDtype, blocks: Uint8Array, out: Float32Array): void {
  const { length, coded } = GGML_FORMATS[dtype];
  const part = CODED_BLOCKS[coded].length;
  eachBlock(GGML_FORMATS[dtype], blocks, ({ scales, mins, integers }, to) => {
    for (let s = 0, i = 0; i < length; s++) {
      const [scale, min] = [scales[s]!, mins[s]!];
      for (const end = i + part; i < end; i++) out[to + i] = scale * integers[i]! - min;
    }
  });
}

/** Whole blocks in their coded dtype. Scales and minimums are exact: they have at most 19 significant bits. */
export function codeGgml(dtype: GgmlDtype, blocks: Uint8Array): Uint8Array {
  const { length, coded } = GGML_FORMATS[dtype];
  const { length: part, bytes } = CODED_BLOCKS[coded];
  const elements = ggmlElements(dtype, blocks.length);
  const out = new Uint8Array((elements / part) * bytes);
  const view = new DataView(out.buffer);
  const withMin = bytes - part > 4;
  let at = 0;
  eachBlock(GGML_FORMATS[dtype], blocks, ({ scales, mins, integers }) => {
    for (let s = 0; s * part < length; s++, at += bytes) {
      view.setFloat32(at, scales[s]!, true);
      if (withMin) view.setFloat32(at + 4, mins[s]!, true);
      for (let i = 0; i < part; i++) out[at + bytes - part + i] = integers[s * part + i]!;
    }
  });
  return out;
}
