import { decodeFloats, type StoredTensor } from "./dtypes.ts";

/**
 * Decodes a stored tensor to float32: F32, F16, BF16, Q8_0 and Q4_0 exactly, F64 to nearest. F32 at a multiple of four bytes
 * is not copied: the result is a view of `tensor.bytes`. A tensor with a dimension of 0 gives an empty array, however large
 * its other dimensions are.
 * @param where Name of the function in error messages.
 * @throws HeadwiseError `BAD_FILE` for any other dtype. TypeError or RangeError for bytes that do not fit dtype and shape.
 * @example
 * import { toFloats } from "headwise/weights";
 * const stored = { name: "w", dtype: "BF16", shape: [2], bytes: new Uint8Array([0x80, 0x3f, 0x00, 0xc0]) } as const;
 * console.log(toFloats(stored)); // Float32Array(2) [ 1, -2 ]
 */
export function toFloats(tensor: StoredTensor, where = "toFloats"): Float32Array {
  return decodeFloats(tensor, where);
}
