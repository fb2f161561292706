import type { Reference } from "../wasm/abi.ts";
import { widenBf16, widenF16 } from "./half.ts";

/** out[i] = x[i], begin <= i < end: f16 or bf16 as float32. */
export const widen_f16: Reference["widen_f16"] = (out, x, bf16, begin, end) => {
  const widen = bf16 ? widenBf16 : widenF16;
  for (let i = begin; i < end; i++) out[i] = widen(x[i]!);
};
