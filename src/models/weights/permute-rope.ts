import { BLOCKS, bitsEach, isBlockDtype, isDtype, type StoredTensor } from "../../base/tensor/dtypes.ts";
import { elementsIn, expectTensor, readShape, type Tensor } from "../../base/tensor/tensor.ts";
import { expectInt, expectOneOf, expectUint8Array } from "../../base/util/arguments.ts";
import { describe } from "../../base/util/errors.ts";
import { PAIRINGS, type RopeConfig } from "../../layers/attention/rope.ts";

const WHERE = "permuteRope";

/**
 * Reorders the rows of a query or key projection from one RoPE pairing to the other. If both projections are reordered, the
 * scores stay the same. Biases and the gains of `qkNorm` must be reordered too.
 * @param weight A projection [numHeads·headDim, inputs], a bias [numHeads·headDim], or the gain of a "per-head" norm
 * [headDim] with numHeads 1. A stored tensor keeps its encoding. It is not changed.
 * @param from The pairing that `weight` is made for.
 * @param ropeDim How many rows of a head rotate, from the first: even. Default headDim.
 * @returns A new tensor for the other pairing.
 * @throws TypeError or RangeError naming the argument.
 * @example
 * import { permuteRope } from "headwise/weights";
 * const weight = { data: Float32Array.of(0, 1, 2, 3), shape: [4, 1] }; // one head; pairs (0, 2) and (1, 3)
 * console.log(permuteRope(weight, 1, "half").data.join(" ")); // 0 2 1 3: pairs side by side
 */
export function permuteRope<Weight extends Tensor | StoredTensor>(
  weight: Weight,
  numHeads: number,
  from: RopeConfig["pairing"],
  ropeDim?: number,
): Weight extends StoredTensor ? StoredTensor : Tensor {
  const matrix = readRows(weight);
  const { shape } = matrix;
  const rows = shape[0] as number;
  expectInt(WHERE, "numHeads", numHeads);
  expectOneOf(WHERE, "from", from, PAIRINGS);
  if (rows === 0 || rows % numHeads !== 0)
    throw new RangeError(`${WHERE}: weight expected a multiple of numHeads (${numHeads}) rows, got ${rows}`);
  const headDim = rows / numHeads;
  const dim = expectInt(WHERE, "ropeDim", ropeDim === undefined ? headDim : ropeDim, 2, headDim);
  if (dim % 2 !== 0) throw new RangeError(`${WHERE}: ropeDim expected an even integer, got ${dim}`);

  const permute = <Rows extends Float32Array | Uint8Array>(data: Rows): Rows => {
    const width = data.length / rows;
    const permuted = data.slice() as Rows;
    // Rows of no elements, of which there may be 2^31.
    if (width === 0) return permuted;
    for (let head = 0; head < rows; head += headDim)
      for (let i = 0; i < dim; i++) {
        // "interleaved": component i % 2 of pair ⌊i / 2⌋. "half": component ⌊i / half⌋ of pair i % half, where half =
        // dim / 2.
        const [apart, beside] = [head + (i >> 1) + (i % 2) * (dim / 2), head + i];
        const [source, target] = from === "half" ? [apart, beside] : [beside, apart];
        permuted.set(data.subarray(source * width, (source + 1) * width), target * width);
      }
    return permuted;
  };
  const permuted =
    "dtype" in matrix ? { ...matrix, bytes: permute(matrix.bytes) } : { data: permute(matrix.data), shape };
  return permuted as Weight extends StoredTensor ? StoredTensor : Tensor;
}

/**
 * A copy of the fields of a tensor, each read once, because reading may run code of the caller's, with a view of its data.
 * Throws unless it has rows of whole bytes and whole blocks.
 */
function readRows(weight: Tensor | StoredTensor): Tensor | StoredTensor {
  if (weight === null || typeof weight !== "object" || !("bytes" in weight))
    return expectTensor(WHERE, "weight", weight, [1, 2]);
  const { name, dtype, shape: given, bytes: held } = weight;
  if (typeof dtype !== "string" || !(isDtype(dtype) || isBlockDtype(dtype)))
    throw new TypeError(`${WHERE}: weight.dtype expected a dtype of stored tensors, got ${describe(dtype)}`);
  const shape = readShape(WHERE, "weight", given);
  if (shape.length !== 2 && (shape.length !== 1 || isBlockDtype(dtype)))
    throw new RangeError(
      `${WHERE}: weight expected rank ${isBlockDtype(dtype) ? "2" : "1 or 2"} for ${dtype}, got shape [${shape.join(", ")}]`,
    );
  const bytes = expectUint8Array(WHERE, "weight.bytes", held);
  const wanted = (elementsIn(shape) * bitsEach(dtype)) / 8;
  const row = ((shape[1] ?? 1) * bitsEach(dtype)) / 8;
  if (bytes.length !== wanted || !Number.isInteger(row) || (isBlockDtype(dtype) && row % BLOCKS[dtype].bytes !== 0))
    throw new RangeError(
      `${WHERE}: weight.bytes expected ${wanted} bytes in whole rows for ${dtype} [${shape.join(", ")}], got ${bytes.length}`,
    );
  return { name, dtype, shape, bytes };
}
