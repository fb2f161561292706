// Operations on rows in linear memory, between the products and the attention of a decoder.

import {
  ACT_GELU,
  ACT_GELU_TANH,
  ACT_RELU,
  ACT_RELU_SQUARED,
  ACT_SIGMOID,
  ACT_SWISH,
  PANEL,
} from "../../../assembly/layout.ts";
import { ln } from "../../base/util/math.ts";
import type { Steps } from "../../base/util/steps.ts";
import type { Measure } from "../../layers/attention/segment.ts";
import { FORMATS, type PackedLinear } from "../../layers/linear/formats.ts";

import { type LinearScratch, prepareInput, project, type Rows } from "../../layers/linear/products.ts";
import type { HeadSite, Tap, WarmQueries } from "../../layers/mixer/mixer.ts";
import { ActivationShape, EmbedShape, type F32Ptr, NormShape, NULL, type NullPtr } from "../../wasm/abi.ts";
import type { Kernels } from "../../wasm/kernels.ts";
import { pointer } from "../../wasm/memory.ts";
import type { ActivationSpec, Temperature } from "../spec/spec.ts";
import { modelPointer, type PackedMlp, type PackedNorm, type PackedTable } from "./model.ts";

/** The kernels of a pass, and the scratch that its products share. */
export interface RowWork {
  readonly kernels: Kernels;
  /** The address of the scratch. */
  readonly base: number;
  /** Offset of a shape of a norm, an activation or a table. */
  readonly shape: number;
  readonly linear: LinearScratch;
  /** `mode` of linear_q8. */
  readonly mode: number;
  readonly stepFlops: number;
  /** Sees the rows of a layer, and of its heads. */
  readonly tap?: Tap<LayerSite> | undefined;
  /** Gets the layer's softmax weights. */
  readonly maps?: Float32Array | undefined;
  /** Runs the rows of its attention. */
  readonly measure?: Measure | undefined;
}

/**
 * Where the rows of a layer can be read and changed, by the names of TransformerLens: the residual before, between and after
 * its branches, what attention and MLP read, after their norms, and what they add to the residual.
 */
export type LayerSite = HeadSite | "residPre" | "attnIn" | "attnOut" | "residMid" | "mlpIn" | "mlpOut" | "residPost";

/** What sums of two equally large rows are multiplied by. */
export const ROOT_HALF: number = /* @__PURE__ */ Math.sqrt(0.5);

/** Bytes that the largest of these shapes needs. */
export const ROW_SHAPE_BYTES: number = /* @__PURE__ */ (() =>
  Math.max(NormShape.bytes, ActivationShape.bytes, EmbedShape.bytes))();

/** to = norm(from), for rows of n floats; `to` may be `from`. */
export function normRows(
  { kernels, base, shape }: Pick<RowWork, "kernels" | "base" | "shape">,
  norm: PackedNorm,
  to: Rows,
  from: Rows,
  n: number,
  rows: number,
): void {
  const { table, memory } = kernels;
  const { kind, eps, gain, bias } = norm;
  if (kind === "rms") table.rms_norm_f32(to.at, from.at, gain, n, from.stride, eps, 0, rows);
  else {
    const at = modelPointer.normShape(base + shape);
    NormShape.store(memory.view(), at, { n, stride: from.stride, eps });
    table.layer_norm_f32(to.at, from.at, gain, bias, at, 0, rows);
  }
}

/** to = from · wᵀ + b for each of `linears`, whose outputs lie side by side. */
export function* projectRows(
  work: RowWork,
  linears: readonly PackedLinear[],
  to: Rows,
  from: Rows,
  rows: number,
): Steps {
  const { kernels, linear, mode, base, stepFlops } = work;
  const input = prepareInput(kernels, linears, from, rows, mode, linear, base);
  let { at } = to;
  for (const each of linears) {
    yield* project(kernels, each, { at, stride: to.stride }, input, rows, stepFlops);
    at = pointer.f32(at + 4 * PANEL * each.panels);
  }
}

/** x = xielu(x), for rows of n floats. */
export function xieluRows(
  { kernels }: Pick<RowWork, "kernels">,
  { positive, negative, beta }: NonNullable<PackedMlp["xielu"]>,
  { at, stride }: Rows,
  n: number,
  rows: number,
): void {
  kernels.table.xielu_f32(at, n, stride, positive, negative, beta, 0, rows);
}

/** Leaves of each row of n floats what exceeds their mean by so many standard deviations, less that, and zeros. */
export function sparsifyRows(
  { kernels: { memory } }: Pick<RowWork, "kernels">,
  { deviations, sample }: NonNullable<ActivationSpec["sparse"]>,
  { at, stride }: Rows,
  n: number,
  rows: number,
): void {
  for (let r = 0; r < rows; r++) {
    const row = memory.f32(at + 4 * r * stride, n);
    let sum = 0;
    for (const x of row) sum += x;
    const mean = sum / n;
    let squares = 0;
    for (const x of row) squares += (x - mean) * (x - mean);
    const least = mean + deviations * Math.sqrt(squares / (sample ? n - 1 : n));
    for (let i = 0; i < n; i++) row[i] = Math.max(0, (row[i] as number) - least);
  }
}

/** to = to · sigmoid(gates), for rows of n floats. */
export function gateRows(
  { kernels, base, shape }: Pick<RowWork, "kernels" | "base" | "shape">,
  to: Rows,
  gates: Rows,
  n: number,
  rows: number,
): void {
  const at = modelPointer.activationShape(base + shape);
  const strides = { outStride: to.stride, gateStride: gates.stride, upStride: to.stride };
  ActivationShape.store(kernels.memory.view(), at, { kind: ACT_SIGMOID, n, ...strides, alpha: 1, limit: 0 });
  kernels.table.activate_f32(to.at, gates.at, to.at, at, 0, rows);
}

/** Multiplies each head's outputs by the sigmoid of its gate, which are floats of a row of `gates`. */
export function gateHeads(
  { kernels, base, shape }: Pick<RowWork, "kernels" | "base" | "shape">,
  heads: Rows,
  gates: Rows,
  { numHeads, valueDim }: { readonly numHeads: number; readonly valueDim: number },
  rows: number,
): void {
  const { memory, table } = kernels;
  const at = modelPointer.activationShape(base + shape);
  const strides = { outStride: gates.stride, gateStride: gates.stride, upStride: gates.stride };
  ActivationShape.store(memory.view(), at, { kind: ACT_SIGMOID, n: numHeads, ...strides, alpha: 1, limit: 0 });
  table.activate_f32(gates.at, gates.at, NULL, at, 0, rows);
  for (let r = 0; r < rows; r++)
    for (const [head, gate] of memory.f32(gates.at + 4 * r * gates.stride, numHeads).entries()) {
      const to = pointer.f32(heads.at + 4 * (r * heads.stride + head * valueDim));
      table.cap_logits_f32(to, valueDim, valueDim, gate, 0, 0, 1);
    }
}

/** What multiplies queries of `width` floats by factors that grow with their positions. */
export function warmQueries(
  { kernels: { table } }: Pick<RowWork, "kernels">,
  { beta, length, ahead = 0 }: Temperature,
  width: number,
): WarmQueries {
  return ({ at, stride }, { of, begin, end }) => {
    for (let token = begin; token < end; token++) {
      const times = Math.floor(((of.tokens.positions[token] as number) + ahead) / length);
      const q = pointer.f32(at + 4 * (token - begin) * stride);
      if (times > 0) table.add_scaled_f32(q, q, q, width, beta * ln(1 + times), 0, 1);
    }
  };
}

const KINDS: Readonly<Record<Exclude<ActivationSpec["kind"], "xielu">, number>> = {
  swish: ACT_SWISH,
  gelu: ACT_GELU,
  "gelu-tanh": ACT_GELU_TANH,
  relu: ACT_RELU,
  "relu-squared": ACT_RELU_SQUARED,
};

/** gate = act(gate) · up, or act(gate) without `up`, for rows of n floats; those of `up` lie `upStride` apart. */
export function activateRows(
  { kernels, base, shape }: Pick<RowWork, "kernels" | "base" | "shape">,
  { kind, alpha, limit = 0 }: ActivationSpec,
  gate: Rows,
  up: F32Ptr | NullPtr,
  n: number,
  rows: number,
  upStride: number = gate.stride,
): void {
  const { stride } = gate;
  const at = modelPointer.activationShape(base + shape);
  const strides = { outStride: stride, gateStride: stride, upStride };
  const own = { kind: KINDS[kind as keyof typeof KINDS], n, ...strides, alpha, limit };
  ActivationShape.store(kernels.memory.view(), at, own);
  kernels.table.activate_f32(gate.at, gate.at, up, at, 0, rows);
}

/** to = first + scale · second, for rows of one stride. */
export function addRows(
  { kernels }: Pick<RowWork, "kernels">,
  to: Rows,
  first: Rows,
  second: Rows,
  scale: number,
  rows: number,
): void {
  kernels.table.add_scaled_f32(to.at, first.at, second.at, to.stride, scale, 0, rows);
}

/** to = scale · table[ids], for rows of `to.stride` floats. `ids` is the address of one id for each. */
export function embedRows(
  { kernels, base, shape }: Pick<RowWork, "kernels" | "base" | "shape">,
  { rows: n, dim: k, format, at: w, mins }: PackedTable,
  ids: number,
  to: Rows,
  scale: number,
  rows: number,
): void {
  const { table, memory } = kernels;
  const at = modelPointer.embedShape(base + shape);
  const { rows: code, block, mins: hasMins } = FORMATS[format];
  EmbedShape.store(memory.view(), at, { n, k, format: code, block: block(k), scale });
  const minsAt = hasMins ? pointer.f32(mins) : NULL;
  if (to.stride === k) table.embed_rows(to.at, modelPointer.i32(ids), pointer.u8(w), minsAt, at, 0, rows);
  else
    for (let r = 0; r < rows; r++)
      table.embed_rows(
        pointer.f32(to.at + 4 * r * to.stride),
        modelPointer.i32(ids + 4 * r),
        pointer.u8(w),
        minsAt,
        at,
        0,
        1,
      );
}
