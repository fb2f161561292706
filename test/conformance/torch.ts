import {
  type AttendOptions,
  type AttentionWeights,
  attend,
  attendWithMaps,
  createAttention,
  type Kernels,
  type Mask,
  scaledDotProductAttention,
  type Tensor,
} from "../../src/entries/core.ts";
import { addBroadcast, elementAt, swapAxes } from "./arrays.ts";
import type { Case, Outcome, Values } from "./case.ts";

/** `torch.nn.MultiheadAttention`: its state dict under PyTorch's names, its call with PyTorch's masks. */
export function multiheadAttention(kernels: Kernels, c: Case): Outcome {
  const unbatched = c.shape("query").length === 2;
  // Without batch_first the rows are [length, batch, width]; unbatched rows are [length, width] either way.
  const seqFirst = !unbatched && !c.flag("batch_first");
  const rows = (name: string): Tensor => {
    const tensor = c.floats(name);
    if (unbatched) return { data: tensor.data, shape: [1, ...tensor.shape] };
    return seqFirst ? swapAxes(tensor, 0) : tensor;
  };
  const query = rows("query");
  const key = c.flag("self_attention") ? query : rows("key");
  const [batch, qLen, dModel] = query.shape as [number, number, number];
  const kvLen = key.shape[1]!;
  const numHeads = c.someNumber("num_heads");
  const masks = moduleMasks(c, batch, numHeads, qLen, kvLen);
  const averages = c.flag("average_attn_weights", true);

  const attention = createAttention(
    kernels,
    {
      dModel,
      numHeads,
      kdim: c.number("kdim"),
      vdim: c.number("vdim"),
      addZeroAttn: c.flag("add_zero_attn"),
    },
    stateDict(c),
  );
  const options: AttendOptions = {
    batch,
    ...masks,
    ...(!c.flag("self_attention") && { keys: key.data, values: rows("value").data }),
  };
  try {
    const wantsMaps = c.flag("need_weights", true);
    const { y, maps } = wantsMaps
      ? attendWithMaps(attention, query.data, options)
      : { y: attend(attention, query.data, options), maps: undefined };
    const output: Tensor = { data: y, shape: [batch, qLen, dModel] };
    const extras = Number(c.has("bias_k")) + Number(c.flag("add_zero_attn"));
    const weights = maps && (averages ? meanOfHeads(maps) : maps);
    const maskedInSome = (n: number, i: number) =>
      extras === 0 && range(numHeads).some((h) => isMasked(masks, [n, h, i], kvLen));
    return {
      outputs: {
        attn_output: unbatched ? { data: y, shape: [qLen, dModel] } : seqFirst ? swapAxes(output, 0) : output,
        ...(weights && {
          attn_output_weights: unbatched ? { data: weights.data, shape: weights.shape.slice(1) } : weights,
        }),
      },
      // A row is NaN in the output and in the mean of the heads as soon as it is in one head.
      maskedRows: {
        attn_output: (row) =>
          seqFirst
            ? maskedInSome(row % batch, Math.floor(row / batch))
            : maskedInSome(Math.floor(row / qLen), row % qLen),
        attn_output_weights: (row) => {
          if (averages) return maskedInSome(Math.floor(row / qLen), row % qLen);
          const index = [Math.floor(row / qLen / numHeads), Math.floor(row / qLen) % numHeads, row % qLen];
          return extras === 0 && isMasked(masks, index, kvLen);
        },
      },
    };
  } finally {
    attention.release();
  }
}

/** `torch.nn.functional.scaled_dot_product_attention` on [..., length, size] of rank 2 to 4. */
export function functionalAttention(kernels: Kernels, c: Case): Outcome {
  // [batch, length, size] has one head; so has a mask of that rank, whose first axis would name heads otherwise.
  const rank = c.shape("query").length;
  const lift = <T extends { readonly shape: readonly number[] }>(tensor: T): T => {
    const { shape } = tensor;
    if (rank === 4) return { ...tensor, shape: [...Array<number>(4 - shape.length).fill(1), ...shape] };
    return { ...tensor, shape: shape.length === 3 ? [shape[0]!, 1, ...shape.slice(1)] : [1, 1, ...shape] };
  };
  const masks: { keep?: Mask; bias?: Tensor } = !c.has("attn_mask")
    ? {}
    : c.isBoolean("attn_mask")
      ? { keep: lift(c.booleans("attn_mask")) } // True = takes part, the opposite of the module
      : { bias: lift(c.floats("attn_mask")) };
  const { output, scores } = scaledDotProductAttention(
    kernels,
    lift(c.floats("query")),
    lift(c.floats("key")),
    lift(c.floats("value")),
    {
      causal: c.flag("is_causal"),
      align: "start", // is_causal is top-left: query i sees keys 0..i
      scale: c.number("scale"),
      ...masks,
      scores: c.entry.outputs?.attn_weights === undefined ? undefined : "weights",
    },
  );
  const lower = (values: Tensor): Values => ({
    data: values.data,
    shape: [...c.shape("query").slice(0, -1), values.shape.at(-1)!],
  });
  const [, numHeads, qLen] = output.shape as [number, number, number];
  const kvLen = c.shape("key").at(-2)!;
  const masked = (row: number) => {
    const index = [Math.floor(row / qLen / numHeads), Math.floor(row / qLen) % numHeads, row % qLen];
    return isMasked(masks, index, kvLen);
  };
  return {
    outputs: { output: lower(output), ...(scores && { attn_weights: lower(scores) }) },
    maskedRows: { output: masked, attn_weights: masked },
  };
}

function stateDict(c: Case): AttentionWeights {
  const bias = c.floatsIfAny("in_proj_bias")?.data;
  const width = bias && bias.length / 3;
  return {
    layout: "out-in",
    // One matrix when queries, keys and values are equally wide, else three; the bias is one vector in both.
    ...(c.has("in_proj_weight")
      ? { wqkv: c.floats("in_proj_weight"), bqkv: bias }
      : {
          wq: c.floats("q_proj_weight"),
          wk: c.floats("k_proj_weight"),
          wv: c.floats("v_proj_weight"),
          bq: bias?.subarray(0, width),
          bk: bias?.subarray(width!, 2 * width!),
          bv: bias?.subarray(2 * width!),
        }),
    wo: c.floats("out_proj.weight"),
    bo: c.floatsIfAny("out_proj.bias")?.data,
    biasK: c.floatsIfAny("bias_k")?.data,
    biasV: c.floatsIfAny("bias_v")?.data,
  };
}

type Masks = Pick<AttendOptions, "keep" | "drop" | "bias">;

/**
 * The module's masks, rank 4. Boolean: True = masked out, so attn_mask is `drop`, and key_padding_mask, of which there
 * may be both, is `keep` turned round. Float: added; two of them are summed first.
 */
function moduleMasks(c: Case, batch: number, numHeads: number, qLen: number, kvLen: number): Masks {
  const rank4 = {
    attn_mask:
      c.has("attn_mask") && c.shape("attn_mask").length === 3 ? [batch, numHeads, qLen, kvLen] : [1, 1, qLen, kvLen],
    key_padding_mask: [batch, 1, 1, kvLen],
  };
  const masks: { keep?: Mask; drop?: Mask; bias?: Tensor } = {};
  for (const name of ["attn_mask", "key_padding_mask"] as const) {
    if (!c.has(name)) continue;
    const shape = rank4[name];
    if (!c.isBoolean(name)) {
      const bias = { data: c.floats(name).data, shape };
      masks.bias = masks.bias ? addBroadcast(masks.bias, bias) : bias;
    } else if (name === "attn_mask") masks.drop = { data: c.booleans(name).data, shape };
    else masks.keep = { data: c.booleans(name).data.map((masked) => 1 - masked), shape };
  }
  return masks;
}

/** Whether no key is left for one query: index [batch, head, query]. Masks have rank 4, or 2 with the query first. */
function isMasked({ keep, drop, bias }: Masks, index: readonly number[], kvLen: number): boolean {
  const at = <T>(mask: { readonly data: ArrayLike<T>; readonly shape: readonly number[] }, j: number): T =>
    elementAt(mask, [...index, j].slice(-mask.shape.length));
  return range(kvLen).every(
    (j) =>
      (keep && !at<number | boolean>(keep, j)) ||
      (drop && at<number | boolean>(drop, j)) ||
      (bias && at(bias, j) === Number.NEGATIVE_INFINITY),
  );
}

/** [batch, heads, qLen, kvLen] -> [batch, qLen, kvLen]. */
function meanOfHeads({ data, shape }: Tensor): Values {
  const [batch, heads, qLen, kvLen] = shape as [number, number, number, number];
  const plane = qLen * kvLen;
  const mean = Float64Array.from({ length: batch * plane }, (_, i) => {
    const first = Math.floor(i / plane) * heads * plane + (i % plane);
    return range(heads).reduce((sum, h) => sum + data[first + h * plane]!, 0) / heads;
  });
  return { data: mean, shape: [batch, qLen, kvLen] };
}

const range = (length: number): number[] => Array.from({ length }, (_, i) => i);
