// Rows as sums of parts by what wrote them, and the linear operations of a decoder on them, in float64.

import type { Rotary } from "../../layers/attention/rope.ts";
import type { PackedLinear } from "../../layers/linear/formats/format.ts";
import type { PackedNorm } from "../../models/blocks/model.ts";
import { NULL } from "../../wasm/abi.ts";
import type { Kernels } from "../../wasm/kernels.ts";
import { multiplyRows } from "./read-weights.ts";

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

/** Outputs begin..end of a projection of each part; its bias is a part of `component`. */
export function projectParts(
  where: string,
  kernels: Kernels,
  linear: PackedLinear,
  parts: readonly Part[],
  begin: number,
  end: number,
  component: Component,
): Part[] {
  const rows = parts.map(({ row }) => row);
  const ys = multiplyRows(where, kernels, linear, rows, begin, end);
  const projected = parts.map(({ component }, i): Part => ({ component, row: ys[i] as Float64Array }));
  const bias = Float64Array.from(kernels.memory.f32(linear.bias + 4 * begin, end - begin));
  return bias.some((value) => value !== 0) ? addPart(projected, component, bias) : projected;
}

/** Parts rotated as at a position, from component `start` on. */
export function rotateParts(
  parts: readonly Part[],
  rotary: Rotary | undefined,
  start: number,
  position: number,
): Part[] {
  if (!rotary) return [...parts];
  const { dim, pairing, fill } = rotary;
  const half = dim / 2;
  const [cos, sin] = [new Float32Array(half), new Float32Array(half)];
  fill([position], cos, sin);
  return mapParts(parts, (row) => {
    const rotated = row.slice();
    for (let i = 0; i < half; i++) {
      const [a, b] = pairing === "half" ? [start + i, start + i + half] : [start + 2 * i, start + 2 * i + 1];
      const [x, y, c, s] = [row[a] as number, row[b] as number, cos[i] as number, sin[i] as number];
      rotated[a] = x * c - y * s;
      rotated[b] = y * c + x * s;
    }
    return rotated;
  });
}
