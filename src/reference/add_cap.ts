import type { Reference } from "../wasm/abi.ts";

/** out[r, i] = x[r, i] + scale · y[r, i], for rows begin..end of n. */
export const add_scaled_f32: Reference["add_scaled_f32"] = (out, x, y, n, scale, begin, end) => {
  for (let i = begin * n; i < end * n; i++) out[i] = x[i]! + scale * y[i]!;
};

/** x[r, i] = softcap · tanh(scale · x[r, i] / softcap), or scale · x[r, i] where softcap is 0, for rows begin..end. */
export const cap_logits_f32: Reference["cap_logits_f32"] = (x, n, stride, scale, softcap, begin, end) => {
  for (let r = begin; r < end; r++)
    for (let i = r * stride; i < r * stride + n; i++)
      x[i] = softcap === 0 ? scale * x[i]! : softcap * Math.tanh((scale * x[i]!) / softcap);
};
