import { expectShape } from "../../base/tensor/dtypes.ts";
import {
  blockStrides,
  checkTensor,
  eachRun,
  expectTensor,
  type HeadLayout,
  type HeadSizes,
  headSizes,
  readTensor,
  type Tensor,
} from "../../base/tensor/tensor.ts";
import {
  expectHeads,
  expectInt,
  expectOneOf,
  MOST_HEADS,
  readFields,
  readList,
  wrongValue,
} from "../../base/util/arguments.ts";
import { type F32Ptr, RopeShape } from "../../wasm/abi.ts";
import { expectKernels, type Kernels } from "../../wasm/kernels.ts";
import { Layout, pointer } from "../../wasm/memory.ts";
import { expectPositions } from "../attention/mask.ts";
import { PAIRINGS } from "../attention/rope.ts";

/**
 * Moves the heads of x to the front: [len, numHeads·headDim] -> [numHeads, len, headDim].
 * @throws TypeError or RangeError naming the argument. HeadwiseError `OUT_OF_MEMORY` or `RELEASED`.
 * @example
 * import { loadKernels } from "headwise";
 * import { splitHeads } from "headwise";
 * const kernels = await loadKernels();
 * const heads = splitHeads(kernels, { data: Float32Array.of(1, 2, 3, 4, 5, 6, 7, 8), shape: [2, 4] }, 2);
 * console.log(heads.shape, heads.data.join(" ")); // [ 2, 2, 2 ] 1 2 5 6 3 4 7 8
 * kernels.release();
 */
export function splitHeads(kernels: Kernels, x: Tensor, numHeads: number): Tensor {
  const { data: floats, shape } = expectTensor("splitHeads", "x", x, [2]);
  expectKernels("splitHeads", kernels);
  const [len, width] = shape as [number, number];
  expectInt("splitHeads", "numHeads", numHeads, 1, MOST_HEADS);
  if (width % numHeads !== 0 || width === 0)
    throw new RangeError(`splitHeads: d_model (${width}) must be divisible by n_heads (${numHeads})`);
  const headDim = width / numHeads;
  const data = inMemory("splitHeads", kernels, floats, (out, from) =>
    kernels.table.split_heads_f32(out, from, len, numHeads, headDim, 0, len),
  );
  return { data, shape: [numHeads, len, headDim] };
}

/**
 * The inverse of `splitHeads`: [numHeads, len, headDim] -> [len, numHeads·headDim].
 * @throws TypeError or RangeError naming the argument. HeadwiseError `OUT_OF_MEMORY` or `RELEASED`.
 * @example
 * import { loadKernels } from "headwise";
 * import { mergeHeads } from "headwise";
 * const kernels = await loadKernels();
 * const x = mergeHeads(kernels, { data: Float32Array.of(1, 2, 5, 6, 3, 4, 7, 8), shape: [2, 2, 2] });
 * console.log(x.shape, x.data.join(" ")); // [ 2, 4 ] 1 2 3 4 5 6 7 8
 * kernels.release();
 */
export function mergeHeads(kernels: Kernels, x: Tensor): Tensor {
  const { data: floats, shape } = expectTensor("mergeHeads", "x", x, [3]);
  expectKernels("mergeHeads", kernels);
  const [numHeads, len, headDim] = shape as [number, number, number];
  expectHeads("mergeHeads", "x", numHeads, headDim);
  const data = inMemory("mergeHeads", kernels, floats, (out, from) =>
    kernels.table.merge_heads_f32(out, from, len, numHeads, headDim, 0, len),
  );
  return { data, shape: [len, numHeads * headDim] };
}

/** Runs a kernel whose output has as many floats as its input. */
function inMemory(
  where: string,
  { memory }: Kernels,
  x: Float32Array,
  run: (out: F32Ptr, x: F32Ptr) => void,
): Float32Array {
  const layout = new Layout();
  const [from, to] = [layout.floats(x.length), layout.floats(x.length)];
  const base = memory.scratch(where, layout.bytes);
  memory.f32(base + from, x.length).set(x);
  run(pointer.f32(base + to), pointer.f32(base + from));
  return memory.f32(base + to, x.length).slice();
}

/** Options of `applyRope`: the tables, and how they apply to x. */
export interface ApplyRopeOptions {
  /** Cosines [rows, dim/2], as `ropeTables` makes them. The first `dim` components of each head rotate. */
  readonly cos: Tensor;
  /** Sines, of the same shape. */
  readonly sin: Tensor;
  /** Which components form a pair: "half" (x[i], x[i + dim/2]), "interleaved" (x[2i], x[2i + 1]). */
  readonly pairing: "half" | "interleaved";
  /** The row of cos and sin for each token, [len] or [batch, len]. Default 0 to len - 1. */
  readonly positions?: ArrayLike<number>;
  /** Order of the dimensions of x: "bhsd" [batch, heads, len, headDim] (default) or "bshd". */
  readonly layout?: HeadLayout;
}

/**
 * Rotates pairs of components in every head of x: (a, b) -> (a·cos - b·sin, b·cos + a·sin).
 * @param x [batch, heads, len, headDim], or in the order of `options.layout`. It is not changed.
 * @returns A new tensor of the shape of x.
 * @throws TypeError or RangeError naming the argument. HeadwiseError `OUT_OF_MEMORY` or `RELEASED`.
 * @example
 * import { loadKernels } from "headwise";
 * import { applyRope } from "headwise";
 * const kernels = await loadKernels();
 * const x = { data: Float32Array.of(1, 0), shape: [1, 1, 1, 2] };
 * const quarter = { cos: { data: Float32Array.of(0), shape: [1, 1] }, sin: { data: Float32Array.of(1), shape: [1, 1] } };
 * console.log(applyRope(kernels, x, { ...quarter, pairing: "half" }).data.join(" ")); // 0 1
 * kernels.release();
 */
export function applyRope(kernels: Kernels, x: Tensor, options: ApplyRopeOptions): Tensor {
  const where = "applyRope";
  // All is read before anything is checked, because reading may run code of the caller's.
  const given = readFields(where, "options", options, ["cos", "sin", "positions", "pairing", "layout"]);
  const givenX = readTensor(where, "x", x);
  const [givenCos, givenSin] = [readTensor(where, "cos", given.cos), readTensor(where, "sin", given.sin)];
  const list = given.positions && readList(where, "positions", given.positions, givenX.data.length);
  expectKernels(where, kernels);
  const { layout: name = "bhsd" } = given;
  const order = expectOneOf(where, "layout", name, ["bhsd", "bshd"]);
  const rotated = checkTensor(where, "x", givenX, [4]);
  const sizes = headSizes(rotated, order);
  const { batch, heads, len, dim } = sizes;
  expectHeads(where, "x", heads, dim);
  const pairing = expectOneOf(where, "pairing", given.pairing, PAIRINGS);
  const cos = checkTensor(where, "cos", givenCos, [2]);
  const sin = checkTensor(where, "sin", givenSin, [2]);
  const [rows, half] = cos.shape as [number, number];
  expectShape(where, "sin", sin.shape, cos.shape);
  if (half === 0 || 2 * half > dim)
    throw wrongValue(where, "cos", `1 to ${Math.floor(dim / 2)} columns for heads of ${dim}`, half);
  const positions = expectPositions(where, list as ArrayLike<number> | undefined, batch, len, 0);
  const beyond = positions.find((position) => position >= rows);
  if (beyond !== undefined) throw wrongValue(where, "positions", `rows of cos below ${rows}`, beyond);

  const data = rotated.data.slice();
  if (data.length > 0) rotate(where, kernels, data, sizes, order, pairing === "interleaved", { cos, sin, positions });
  return { data, shape: rotated.shape };
}

/** Rotates heads in place, those of a sequence at a time. */
function rotate(
  where: string,
  { memory, table }: Kernels,
  data: Float32Array,
  sizes: HeadSizes,
  order: HeadLayout,
  interleaved: boolean,
  { cos, sin, positions }: { readonly cos: Tensor; readonly sin: Tensor; readonly positions: Int32Array },
): void {
  const { batch, heads, len, dim } = sizes;
  const half = cos.shape[1] as number;
  const layout = new Layout();
  const at = {
    x: layout.floats(heads * len * dim),
    cos: layout.floats(len * half),
    sin: layout.floats(len * half),
    shape: layout.take(RopeShape.bytes),
  };
  const base = memory.scratch(where, layout.bytes);
  const { stride, headStride } = blockStrides(sizes, order, len);
  // A head-major block is heads x len tokens of one head each.
  const perCall = order === "bhsd" ? heads : 1;
  const shape = pointer.ropeShape(base + at.shape);
  RopeShape.store(memory.view(), shape, {
    numHeads: heads / perCall,
    headDim: dim,
    ropeDim: 2 * half,
    interleaved: interleaved ? 1 : 0,
    stride,
  });
  for (let b = 0; b < batch; b++) {
    const [cosInto, sinInto] = [memory.f32(base + at.cos, len * half), memory.f32(base + at.sin, len * half)];
    for (let t = 0; t < len; t++) {
      const row = positions[b * len + t]! * half;
      cosInto.set(cos.data.subarray(row, row + half), t * half);
      sinInto.set(sin.data.subarray(row, row + half), t * half);
    }
    eachRun(sizes, order, b, 0, len, (from, to, floats) =>
      memory.f32(base + at.x + to * 4, floats).set(data.subarray(from, from + floats)),
    );
    const [cosAt, sinAt] = [pointer.f32(base + at.cos), pointer.f32(base + at.sin)];
    for (let h = 0; h < perCall; h++)
      table.rope_f32(pointer.f32(base + at.x + h * headStride * 4), cosAt, sinAt, shape, 0, len);
    eachRun(sizes, order, b, 0, len, (to, from, floats) => data.set(memory.f32(base + at.x + from * 4, floats), to));
  }
}
