import { PAGE, PANEL } from "../../assembly/layout.ts";
import type { Reference } from "../abi.ts";

interface Dims {
  readonly headDim: number;
  readonly valueDim: number;
}

const panels = (valueDim: number): number => Math.ceil(valueDim / PANEL);
const headFloats = ({ headDim, valueDim }: Dims): number => PAGE * (headDim + panels(valueDim) * PANEL);

/** Where K[position, d] of a kv head lies in its page: K is [PAGE/8][headDim][8]. */
export function keyIndex(dims: Dims, kvHead: number, position: number, d: number): number {
  const slot = position % PAGE;
  const panel = Math.floor(slot / PANEL);
  return kvHead * headFloats(dims) + (panel * dims.headDim + d) * PANEL + (slot % PANEL);
}

/** Where V[position, c] of a kv head lies in its page: V is [ceil(valueDim/8)][PAGE][8], behind K. */
export function valueIndex(dims: Dims, kvHead: number, position: number, c: number): number {
  const slot = position % PAGE;
  const panel = Math.floor(c / PANEL);
  return kvHead * headFloats(dims) + PAGE * dims.headDim + (panel * PAGE + slot) * PANEL + (c % PANEL);
}

/** The page of a position. */
export function pageOf(pages: readonly Float32Array[], position: number): Float32Array {
  return pages[Math.floor(position / PAGE)]!;
}

/** pages[past + t] = k[t], v[t] */
export const append_f32: Reference["append_f32"] = (pages, k, v, shape, past, begin, end) => {
  for (let t = begin; t < end; t++)
    for (let h = 0; h < shape.numKvHeads; h++) {
      const page = pageOf(pages, past + t);
      for (let d = 0; d < shape.headDim; d++)
        page[keyIndex(shape, h, past + t, d)] = k[t * shape.kStride + h * shape.kHeadStride + d]!;
      for (let c = 0; c < panels(shape.valueDim) * PANEL; c++)
        page[valueIndex(shape, h, past + t, c)] =
          c < shape.valueDim ? v[t * shape.vStride + h * shape.vHeadStride + c]! : 0;
    }
};

/** k[t], v[t] = pages[past + t] */
export const gather_f32: Reference["gather_f32"] = (k, v, pages, shape, past, begin, end) => {
  for (let t = begin; t < end; t++)
    for (let h = 0; h < shape.numKvHeads; h++) {
      const page = pageOf(pages, past + t);
      for (let d = 0; d < shape.headDim; d++)
        k[t * shape.kStride + h * shape.kHeadStride + d] = page[keyIndex(shape, h, past + t, d)]!;
      for (let c = 0; c < shape.valueDim; c++)
        v[t * shape.vStride + h * shape.vHeadStride + c] = page[valueIndex(shape, h, past + t, c)]!;
    }
};
