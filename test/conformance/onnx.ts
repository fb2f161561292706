import { type Kernels, type Mask, scaledDotProductAttention, type Tensor } from "../../src/entries/core.ts";
import { applyRope } from "../../src/entries/index.ts";
import { joinLast, splitLast, swapAxes } from "./arrays.ts";
import type { Case, Outcome } from "./case.ts";

const STAGES = ["raw", "softcapped", "masked", "weights"] as const;

/**
 * ONNX `Attention`, opset 23 to 25. `softmax_precision` names the type of the softmax; it is float32 here, which is no
 * coarser than the expected values are given.
 */
export function attention(kernels: Kernels, c: Case): Outcome {
  // Rank 3 is [batch, length, heads·size], which is the layout bshd without a copy; past and present stay rank 4, bhsd.
  const packed = c.shape("Q").length === 3;
  const withHeads = (name: string, attribute: string): Tensor =>
    packed ? splitLast(c.floats(name), c.someNumber(attribute)) : c.floats(name);
  const turned = (tensor: Tensor): Tensor => (packed ? swapAxes(tensor, 1) : tensor);
  const past = c.has("past_key")
    ? { key: turned(c.floats("past_key")), value: turned(c.floats("past_value")) }
    : undefined;
  const kvLen = c.shape("K").at(-2)! + (c.has("past_key") ? c.shape("past_key").at(-2)! : 0);
  const kvLengths = c.has("nonpad_kv_seqlen") ? c.integers("nonpad_kv_seqlen") : undefined;
  const wants = (name: string): boolean => c.entry.outputs?.[name] !== undefined;
  const softcap = c.number("softcap") ?? 0;

  const { output, present, scores } = scaledDotProductAttention(
    kernels,
    withHeads("Q", "q_num_heads"),
    withHeads("K", "kv_num_heads"),
    withHeads("V", "kv_num_heads"),
    {
      layout: packed ? "bshd" : "bhsd",
      causal: c.flag("is_causal"),
      // Query 0 stands at the past length; at nonpad_kv_seqlen - q_len; or, without any cache, at 0 (top-left).
      align: past ? undefined : kvLengths ? "end" : "start",
      window: { left: bound(c, "left_window_size"), right: bound(c, "right_window_size") },
      scale: c.number("scale"),
      softcap: softcap > 0 ? softcap : undefined,
      ...mask(c, kvLen),
      past,
      kvLengths,
      present: wants("present_key") || wants("present_value"),
      scores: wants("qk_matmul_output") ? STAGES[c.number("qk_matmul_output_mode") ?? 0] : undefined,
    },
  );
  return {
    outputs: {
      Y: packed ? joinLast(output) : output,
      ...(present && { present_key: turned(present.key), present_value: turned(present.value) }),
      ...(scores && { qk_matmul_output: scores }),
    },
  };
}

/** ONNX `RotaryEmbedding`, opset 23. The rotary dimension is what the tables are for. */
export function rotaryEmbedding(kernels: Kernels, c: Case): Outcome {
  const packed = c.shape("input").length === 3;
  const input = c.floats("input");
  const [cos, sin] = [c.floats("cos_cache"), c.floats("sin_cache")];
  // Without position_ids the tables are [batch, length, dim/2]: row b·length + i belongs to token i of batch row b.
  const width = cos.shape.at(-1)!;
  const rows = cos.data.length / width;
  const positions = c.has("position_ids") ? c.integers("position_ids") : Array.from({ length: rows }, (_, row) => row);
  const output = applyRope(kernels, packed ? splitLast(input, c.someNumber("num_heads")) : input, {
    cos: { data: cos.data, shape: [rows, width] },
    sin: { data: sin.data, shape: [rows, width] },
    positions,
    pairing: c.flag("interleaved") ? "interleaved" : "half",
    layout: packed ? "bshd" : "bhsd",
  });
  return { outputs: { output: { data: output.data, shape: input.shape } } };
}

/** -1 (the default) is unbounded. */
function bound(c: Case, attribute: string): number | undefined {
  const size = c.number(attribute) ?? -1;
  return size < 0 ? undefined : size;
}

/** Boolean: true takes part. Float: added. Both broadcast from the right and may be shorter than the keys; the rest is excluded. */
function mask(c: Case, kvLen: number): { keep?: Mask; bias?: Tensor } {
  if (!c.has("attn_mask")) return {};
  const { data, shape } = c.values("attn_mask");
  const boolean = c.isBoolean("attn_mask");
  // The package broadcasts a last dimension of 1, the operator pads it: a second, excluded column says that.
  const pads = shape.at(-1) === 1 && kvLen > 1;
  const excluded = boolean ? 0 : Number.NEGATIVE_INFINITY;
  const columns = pads ? Array.from(data).flatMap((value) => [value, excluded]) : data;
  const padded = [
    ...Array<number>(4 - shape.length).fill(1),
    ...shape.slice(0, -1),
    pads ? 2 : (shape.at(-1) as number),
  ];
  if (boolean) return { keep: { data: Uint8Array.from(columns), shape: padded } };
  return { bias: { data: Float32Array.from(columns), shape: padded } };
}
