import type { Reference } from "../wasm/abi.ts";
import { linearIntegers, packedQ8 } from "./integers.ts";

/** out = x · wᵀ + bias for rows begin..end; x from quantize_rows in the same mode, w from pack_q8 or repack_q8. */
export const linear_q8: Reference["linear_q8"] = (out, x, w, _sums, bias, shape, begin, end) =>
  linearIntegers(out, x, packedQ8(w, shape.k, shape.block), bias, shape, begin, end);
