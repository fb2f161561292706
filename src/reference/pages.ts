// Pages of keys and values: where their numbers lie, and which of the keys a query may attend; and states of linear attention.

import { FORMAT_F16, FORMAT_F32, FORMAT_Q8, PAGE, PANEL, QUAD, STATE_STRIP } from "../../assembly/layout.ts";
import type { AttentionShape, Page, Plain } from "../wasm/abi.ts";
import { narrowF16, quantized, widenF16 } from "./numbers.ts";

interface Dims {
  readonly headDim: number;
  readonly valueDim: number;
}

const wholePanels = (valueDim: number): number => PANEL * Math.ceil(valueDim / PANEL);
const isInteger = (format: number): boolean => format !== FORMAT_F32 && format !== FORMAT_F16;

/** Components of a key, up to whole quads of integers. */
const keyRows = (format: number, { headDim }: Dims): number =>
  isInteger(format) ? QUAD * Math.ceil(headDim / QUAD) : headDim;

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
  const inners = isKey ? keyRows(format, dims) : PAGE;
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

/** Writes the key or value of a kv head and zeros up to whole quads or panels, in the format of its page. */
export function store(
  pages: readonly Page[],
  dims: Dims,
  kvHead: number,
  isKey: boolean,
  position: number,
  row: Float32Array,
): void {
  const page = pages[Math.floor(position / PAGE)]!;
  const formats = "bytes" in page ? page.formats : FORMAT_F32;
  const at = (c: number) => place(formats, dims, kvHead, isKey, position % PAGE, c);
  const { format, scale } = at(0);
  let numbers: ArrayLike<number> = row;
  if (isInteger(format) && "bytes" in page) {
    const codes = quantized(row, format === FORMAT_Q8 ? 127 : 7);
    new DataView(page.bytes.buffer, page.bytes.byteOffset).setFloat32(scale, codes.scale, true);
    numbers = codes.integers;
  }
  const length = isKey ? keyRows(format, dims) : wholePanels(dims.valueDim);
  for (let c = 0; c < length; c++) write(page, at(c), c < row.length ? numbers[c]! : 0);
}

/** Whether query token t may attend key j. */
export function mayAttend(shape: Plain<AttentionShape>, head: number, t: number, j: number): boolean {
  const p = shape.qStart + t;
  if (j < p - shape.left || j > p + shape.right || j >= shape.kvLen) return false;
  if (shape.keep?.[head * shape.keepHeadStride + t * shape.keepRowStride + j] === 0) return false;
  return shape.bias?.[head * shape.biasHeadStride + t * shape.biasRowStride + j] !== -Infinity;
}

/** Columns of a row of scores or weights: the keys, the extra key, the zero key. */
export function countColumns({ kvLen, extraKey, zeroKey }: Plain<AttentionShape>): number {
  return kvLen + (extraKey ? 1 : 0) + (zeroKey ? 1 : 0);
}

/** Where element (i, column) of the state of a head lies: strips of STATE_STRIP columns, then strips of 4. */
export function stateAt(keyDim: number, valueDim: number, head: number, i: number, column: number): number {
  const wide = valueDim - (valueDim % STATE_STRIP);
  const width = column < wide ? STATE_STRIP : 4;
  const strip = column - (column % width);
  return head * keyDim * 4 * Math.ceil(valueDim / 4) + strip * keyDim + i * width + (column - strip);
}
