// Rows as sums of parts by what wrote them, and the linear operations of a decoder on them, in float64, by its weights as floats.

import type { MatrixLayout } from "../../base/tensor/matrix.ts";
import { createFloats } from "../../base/tensor/tensor.ts";
import { chunksOf } from "../../base/util/rows.ts";
import { createLinear, linear } from "../../layers/api/linear.ts";
import type { CheckedConfig } from "../../layers/attention/config.ts";
import type { PackedLinear } from "../../layers/linear/formats.ts";
import type { BlockLayer } from "../../layers/mixer/mixer.ts";
import type { PackedNorm } from "../../models/blocks/model.ts";
import { embedRows } from "../../models/blocks/rows.ts";
import { EmbedShape, NULL } from "../../wasm/abi.ts";
import type { Kernels } from "../../wasm/kernels.ts";
import { Layout, pointer } from "../../wasm/memory.ts";

// The weights of a layer: where they are packed, and as floats: the numbers that a projection multiplies by, in every format.

/** The output projection of a layer, which is the last of its products. */
export const outputsOf = (attention: BlockLayer): PackedLinear =>
  attention.mixer.linears(attention).at(-1) as PackedLinear;

/** The head of keys and values that a query head attends. */
export const kvHeadOf = (
  { numHeads, numKvHeads }: Pick<CheckedConfig, "numHeads" | "numKvHeads">,
  head: number,
): number => Math.floor(head / (numHeads / numKvHeads));

/** The fields of a projection, or of a table, that its rows are read by. */
export type PackedRows = Pick<PackedLinear, "k" | "format" | "w" | "mins">;

/** About how many floats are read at a time. */
const READ_FLOATS = 2 ** 20;

/** Rows begin..end of a matrix [outputs, k], some at a time: copies of [rows, k], and the first row of each. */
export function* weightRows(
  where: string,
  kernels: Kernels,
  { k, format, w, mins }: PackedRows,
  begin: number,
  end: number,
): Generator<{ readonly first: number; readonly rows: Float32Array }, void, void> {
  const { memory } = kernels;
  const most = Math.min(end - begin, Math.max(1, Math.floor(READ_FLOATS / k)));
  const layout = new Layout();
  const places = { shape: layout.take(EmbedShape.bytes), ids: layout.floats(most), rows: layout.floats(most * k) };
  for (const [from, to] of chunksOf(end - begin, most)) {
    const count = to - from;
    const first = begin + from;
    const base = memory.scratch(where, layout.bytes);
    memory.u32(base + places.ids, count).set(Array.from({ length: count }, (_, i) => first + i));
    const table = { rows: end, dim: k, format, at: w, mins };
    const out = { at: pointer.f32(base + places.rows), stride: k };
    embedRows({ kernels, base, shape: places.shape }, table, base + places.ids, out, 1, count);
    yield { first, rows: memory.f32(out.at, count * k).slice() };
  }
}

/** Rows begin..end of a matrix [outputs, k], all at once. */
export function readMatrix(
  where: string,
  kernels: Kernels,
  linear: PackedRows,
  begin: number,
  end: number,
): Float32Array {
  const { k } = linear;
  const all = createFloats(where, "weights", (end - begin) * k);
  for (const { first, rows } of weightRows(where, kernels, linear, begin, end)) all.set(rows, (first - begin) * k);
  return all;
}

/** y = x·wᵀ for outputs begin..end of a projection without its bias, in float64, for each of `xs`. */
export function multiplyRows(
  where: string,
  kernels: Kernels,
  linear: PackedRows,
  xs: readonly Float64Array[],
  begin: number,
  end: number,
): Float64Array[] {
  const { k } = linear;
  const ys = xs.map(() => new Float64Array(end - begin));
  for (const { first, rows } of weightRows(where, kernels, linear, begin, end))
    for (let r = 0; r * k < rows.length; r++) {
      const row = rows.subarray(r * k, (r + 1) * k);
      for (const [i, x] of xs.entries()) (ys[i] as Float64Array)[first - begin + r] = dot(row, x);
    }
  return ys;
}

/** Σ a[i]·b[i], in float64. */
export function dot(a: ArrayLike<number>, b: ArrayLike<number>): number {
  let sum = 0;
  for (let i = 0; i < a.length; i++) sum += (a[i] as number) * (b[i] as number);
  return sum;
}

/** Multiplies the columns of rows by a vector. */
export function scaleRows(rows: Float32Array, by: Float32Array): void {
  for (let i = 0; i < rows.length; i++) rows[i] = (rows[i] as number) * (by[i % by.length] as number);
}

/** x·w for w [inputs, width] ("in-out"), or x·wᵀ for w [outputs, width] ("out-in"). */
export function multiply(
  kernels: Kernels,
  x: Float32Array,
  w: Float32Array,
  width: number,
  layout: MatrixLayout,
): Float32Array {
  const layer = createLinear(kernels, { weight: { data: w, shape: [w.length / width, width] }, layout });
  try {
    return linear(layer, x);
  } finally {
    layer.release();
  }
}

// Parts.

/** Where a part of a residual, of a query or key, or of a logit comes from. */
export interface Component {
  /**
   * | | |
   * |---|---|
   * | `embed` | the token: its row of the table, with the norm of embeddings where there is one |
   * | `posEmbed` | the position: its row of the table of positions |
   * | `head` | what a head wrote: z·W_O, with the norm of attention's output where there is one |
   * | `recurrent` | what the recurrence of a layer wrote, with its biases and the norm of its output |
   * | `mlp` | what an MLP, or the experts of a layer, wrote, with their biases and the norm of their output |
   * | `bias` | constants: all biases of projections and norms that come in `at` a place |
   * | `rounding` | what the pass rounded: its row less all other parts |
   */
  readonly kind: "embed" | "posEmbed" | "head" | "recurrent" | "mlp" | "bias" | "rounding";
  /** Of biases: the site, or the logits. */
  readonly at?: "attnOut" | "residMid" | "residPost" | "q" | "k" | "logits";
  /** Of heads, recurrences, MLPs and biases, but those of logits. */
  readonly layer?: number;
  /** Of heads. */
  readonly head?: number;
}

/** A part of a row: what a component wrote. */
export interface Part {
  readonly component: Component;
  readonly row: Float64Array;
}

/** The sum of all parts. */
export function sumOf(parts: readonly Part[]): Float64Array {
  const sum = new Float64Array((parts[0] as Part).row.length);
  for (const { row } of parts) for (let i = 0; i < sum.length; i++) sum[i]! += row[i] as number;
  return sum;
}

/** Each part by a linear function of rows. */
export const mapParts = (parts: readonly Part[], by: (row: Float64Array) => Float64Array): Part[] =>
  parts.map(({ component, row }) => ({ component, row: by(row) }));

/** Parts with one more, which joins that of the same component. */
export function addPart(parts: readonly Part[], component: Component, row: Float64Array): Part[] {
  const name = JSON.stringify(component);
  const isSame = (part: Part) => JSON.stringify(part.component) === name;
  if (!parts.some(isSame)) return [...parts, { component, row }];
  return parts.map((part) => {
    return isSame(part) ? { component, row: part.row.map((value, i) => value + (row[i] as number)) } : part;
  });
}

/** Parts with what they lack of `actual` as rounding. */
export function addRounding(parts: readonly Part[], actual: ArrayLike<number>): Part[] {
  const lack = sumOf(parts).map((value, i) => (actual[i] as number) - value);
  return addPart(parts, { kind: "rounding" }, lack);
}

/** Parts with the rounding last. */
export const inOrder = (parts: readonly Part[]): Part[] => [
  ...parts.filter(({ component }) => component.kind !== "rounding"),
  ...parts.filter(({ component }) => component.kind === "rounding"),
];

/** A norm whose vectors were read. */
interface Norm {
  readonly kind: PackedNorm["kind"];
  readonly eps: number;
  readonly gain: Float32Array;
  readonly bias: Float32Array | undefined;
}

/** Reads a norm of rows of `width` floats. */
export function readNorm({ memory }: Kernels, { kind, eps, gain, bias }: PackedNorm, width: number): Norm {
  const vector = (at: number) => memory.f32(at, width).slice();
  return { kind, eps, gain: vector(gain), bias: bias === NULL ? undefined : vector(bias) };
}

/**
 * A norm with its scale frozen at the row `at`, without its bias: linear in x. RMS norm is x·gain / rms(at), layer norm
 * (x - mean(x))·gain / σ(at). The row may be longer than x where heads share a scale.
 */
export function freezeNorm(
  { kind, eps, gain }: Pick<Norm, "kind" | "eps" | "gain">,
  at: ArrayLike<number>,
): (x: Float64Array) => Float64Array {
  const mean = kind === "layer" ? meanOf : () => 0;
  const center = mean(at);
  let squares = 0;
  for (let i = 0; i < at.length; i++) {
    const away = (at[i] as number) - center;
    squares += away * away;
  }
  const inverse = 1 / Math.sqrt(squares / at.length + eps);
  return (x) => {
    const own = mean(x);
    return x.map((value, i) => (value - own) * inverse * (gain[i] as number));
  };
}

function meanOf(row: ArrayLike<number>): number {
  let sum = 0;
  for (let i = 0; i < row.length; i++) sum += row[i] as number;
  return sum / row.length;
}

/** The parts of norm(Σ parts): its scale is frozen at their sum, and its bias is a part of `component`. */
export function normParts(norm: Norm, parts: readonly Part[], component: Component): Part[] {
  const normed = mapParts(parts, freezeNorm(norm, sumOf(parts)));
  return norm.bias ? addPart(normed, component, Float64Array.from(norm.bias)) : normed;
}
