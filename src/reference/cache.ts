import { FORMAT_F16, FORMAT_F32, FORMAT_Q8, PAGE, PANEL, QUAD } from "../../assembly/layout.ts";
import type { Page, Reference } from "../wasm/abi.ts";
import { narrowF16, widenF16 } from "./half.ts";
import { integerOf, magnitude, scaleOf } from "./integers.ts";

interface Dims {
  readonly headDim: number;
  readonly valueDim: number;
}

const wholePanels = (valueDim: number): number => PANEL * Math.ceil(valueDim / PANEL);
const isInteger = (format: number): boolean => format !== FORMAT_F32 && format !== FORMAT_F16;

/** Bytes of one head's keys or values without their scales. */
function dataBytes(format: number, components: number): number {
  if (!isInteger(format)) return PAGE * components * (format === FORMAT_F32 ? 4 : 2);
  return (PAGE * QUAD * Math.ceil(components / QUAD)) / (format === FORMAT_Q8 ? 1 : 2);
}

const partBytes = (format: number, components: number): number =>
  dataBytes(format, components) + (isInteger(format) ? 4 * PAGE : 0);

/** Bytes of a page of `numKvHeads` heads. */
export function pageBytes(formats: number, numKvHeads: number, { headDim, valueDim }: Dims): number {
  return numKvHeads * (partBytes(formats & 3, headDim) + partBytes(formats >> 2, wholePanels(valueDim)));
}

/** Where one number of a page lies: its byte, its nibble where it is one of two, and the byte of its scale. */
interface Place {
  readonly format: number;
  readonly at: number;
  readonly upper: boolean;
  readonly scale: number;
}

function place(formats: number, dims: Dims, kvHead: number, isKey: boolean, slot: number, c: number): Place {
  const [kFormat, vFormat] = [formats & 3, formats >> 2];
  const columns = wholePanels(dims.valueDim);
  const keys = partBytes(kFormat, dims.headDim);
  const start = kvHead * (keys + partBytes(vFormat, columns)) + (isKey ? 0 : keys);
  const format = isKey ? kFormat : vFormat;
  // K: panels of 8 slots of the components, V: panels of 8 components of the slots.
  const [outer, inner, lane] = isKey
    ? [Math.floor(slot / PANEL), c, slot % PANEL]
    : [Math.floor(c / PANEL), slot, c % PANEL];
  const inners = isKey ? (isInteger(format) ? QUAD * Math.ceil(dims.headDim / QUAD) : dims.headDim) : PAGE;
  const scale = start + dataBytes(format, isKey ? dims.headDim : columns) + 4 * slot;
  if (!isInteger(format)) {
    const at = start + (format === FORMAT_F32 ? 4 : 2) * ((outer * inners + inner) * PANEL + lane);
    return { format, at, upper: false, scale };
  }
  // 16 bytes are a pair of 8 lanes, or two pairs in their nibbles.
  const pair = Math.floor(inner / (format === FORMAT_Q8 ? 2 : 4));
  const pairs = inners / (format === FORMAT_Q8 ? 2 : 4);
  const at = start + (outer * pairs + pair) * 16 + lane * 2 + (inner % 2);
  return { format, at, upper: format !== FORMAT_Q8 && inner % 4 > 1, scale };
}

const headFloats = ({ headDim, valueDim }: Dims): number => PAGE * (headDim + wholePanels(valueDim));

/** Where K[position, d] of a kv head lies among the floats of its page. */
export function keyIndex(dims: Dims, kvHead: number, position: number, d: number): number {
  const slot = position % PAGE;
  const panel = Math.floor(slot / PANEL);
  return kvHead * headFloats(dims) + (panel * dims.headDim + d) * PANEL + (slot % PANEL);
}

/** Where V[position, c] of a kv head lies among the floats of its page. */
export function valueIndex(dims: Dims, kvHead: number, position: number, c: number): number {
  const panel = Math.floor(c / PANEL);
  const start = kvHead * headFloats(dims) + PAGE * dims.headDim;
  return start + (panel * PAGE + (position % PAGE)) * PANEL + (c % PANEL);
}

const formatsOf = (page: Page): number => ("bytes" in page ? page.formats : FORMAT_F32);

/** A page that is not floats throughout. */
type CodedPage = Exclude<Page, Float32Array>;

function read({ bytes }: CodedPage, { format, at, upper, scale }: Place): number {
  const view = new DataView(bytes.buffer, bytes.byteOffset);
  if (format === FORMAT_F32) return view.getFloat32(at, true);
  if (format === FORMAT_F16) return widenF16(view.getUint16(at, true));
  if (format === FORMAT_Q8) return Math.fround(view.getInt8(at) * view.getFloat32(scale, true));
  const nibble = (view.getUint8(at) >> (upper ? 4 : 0)) & 15;
  return Math.fround((nibble - 8) * view.getFloat32(scale, true));
}

/** Writes a float, or the integer of one. */
function write(page: Page, { format, at, upper }: Place, x: number): void {
  if (!("bytes" in page)) {
    page[at / 4] = x;
    return;
  }
  const view = new DataView(page.bytes.buffer, page.bytes.byteOffset);
  if (format === FORMAT_F32) view.setFloat32(at, x, true);
  else if (format === FORMAT_F16) view.setUint16(at, narrowF16(x), true);
  else if (format === FORMAT_Q8) view.setInt8(at, x);
  else view.setUint8(at, (view.getUint8(at) & (upper ? 15 : 240)) | ((x + 8) << (upper ? 4 : 0)));
}

/** A row as integers up to `most` times one scale: NaN and zeros for a row that is not finite. */
export function quantized(row: ArrayLike<number>, most: number): { integers: number[]; scale: number } {
  const { scale, factor } = scaleOf(magnitude(row), most);
  return { integers: Array.from(row, (x) => integerOf(x, factor)), scale };
}

/** K[position, d] of a kv head. */
export function keyAt(pages: readonly Page[], dims: Dims, kvHead: number, position: number, d: number): number {
  const page = pages[Math.floor(position / PAGE)]!;
  if (!("bytes" in page)) return page[keyIndex(dims, kvHead, position, d)]!;
  return read(page, place(page.formats, dims, kvHead, true, position % PAGE, d));
}

/** V[position, c] of a kv head. */
export function valueAt(pages: readonly Page[], dims: Dims, kvHead: number, position: number, c: number): number {
  const page = pages[Math.floor(position / PAGE)]!;
  if (!("bytes" in page)) return page[valueIndex(dims, kvHead, position, c)]!;
  return read(page, place(page.formats, dims, kvHead, false, position % PAGE, c));
}

/** Writes one head's key or value, and zeros up to `length`, in the page's format. */
function store(
  page: Page,
  dims: Dims,
  kvHead: number,
  isKey: boolean,
  slot: number,
  row: Float32Array,
  length: number,
): void {
  const at = (c: number) => place(formatsOf(page), dims, kvHead, isKey, slot, c);
  const { format, scale } = at(0);
  let numbers: ArrayLike<number> = row;
  if (isInteger(format) && "bytes" in page) {
    const codes = quantized(row, format === FORMAT_Q8 ? 127 : 7);
    new DataView(page.bytes.buffer, page.bytes.byteOffset).setFloat32(scale, codes.scale, true);
    numbers = codes.integers;
  }
  for (let c = 0; c < length; c++) write(page, at(c), c < row.length ? numbers[c]! : 0);
}

/** Appends tokens begin..end to cache pages, in their format: pages[past + t] = k[t], v[t]. */
export const append_pages: Reference["append_pages"] = (pages, k, v, shape, past, begin, end) => {
  const { headDim, valueDim } = shape;
  for (let t = begin; t < end; t++)
    for (let h = 0; h < shape.numKvHeads; h++) {
      const page = pages[Math.floor((past + t) / PAGE)]!;
      const slot = (past + t) % PAGE;
      const [kAt, vAt] = [t * shape.kStride + h * shape.kHeadStride, t * shape.vStride + h * shape.vHeadStride];
      const keyLength = isInteger(formatsOf(page) & 3) ? QUAD * Math.ceil(headDim / QUAD) : headDim;
      store(page, shape, h, true, slot, k.subarray(kAt, kAt + headDim), keyLength);
      store(page, shape, h, false, slot, v.subarray(vAt, vAt + valueDim), wholePanels(valueDim));
    }
};

/** Reads tokens begin..end from cache pages of any format: k[t], v[t] = pages[past + t]. */
export const gather_pages: Reference["gather_pages"] = (k, v, pages, shape, past, begin, end) => {
  for (let t = begin; t < end; t++)
    for (let h = 0; h < shape.numKvHeads; h++) {
      for (let d = 0; d < shape.headDim; d++)
        k[t * shape.kStride + h * shape.kHeadStride + d] = keyAt(pages, shape, h, past + t, d);
      for (let c = 0; c < shape.valueDim; c++)
        v[t * shape.vStride + h * shape.vHeadStride + c] = valueAt(pages, shape, h, past + t, c);
    }
};

/** Appends tokens to cache pages of float32: `append_pages` for this one format. */
export const append_f32: Reference["append_f32"] = append_pages;

/** Reads tokens from cache pages of float32: `gather_pages` for this one format. */
export const gather_f32: Reference["gather_f32"] = gather_pages;
