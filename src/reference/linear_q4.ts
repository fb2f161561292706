import type { Reference } from "../wasm/abi.ts";
import { linearIntegers, packedQ4 } from "./integers.ts";

/** out = x · wᵀ + bias for rows begin..end; x from quantize_rows in the same mode, w from pack_q4 or repack_q4. */
export const linear_q4: Reference["linear_q4"] = (out, x, w, _scratch, bias, shape, begin, end) =>
  linearIntegers(out, x, packedQ4(w, shape.k, shape.zero), bias, shape, begin, end);
