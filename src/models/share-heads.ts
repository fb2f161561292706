// Groups of key-value heads that become one head each, for `convertToGqa`.

import type { RopeWithDim } from "../attention/rope.ts";
import { decompose } from "../util/svd.ts";
import { squaredNorm } from "./matrix-rows.ts";

/** The projection of heads [heads][width] over inputs, to which biases may be added as further inputs. */
export interface HeadRows {
  /** Rows of all heads, one after the other. */
  readonly rows: readonly Float64Array[];
  /** How many of a row's numbers are of the matrix; the others are biases. */
  readonly inputs: number;
  readonly heads: number;
  readonly width: number;
}

/** Fewer heads, and how far those that they stand for are from them. */
export interface SharedHeads {
  /** Rows of the remaining heads. */
  readonly rows: readonly Float64Array[];
  /** |stand-in - head| / |head| for each of the given heads: 0 without a difference, Infinity for a head of zeros. */
  readonly relativeError: Float32Array;
}

/** Replaces each group of consecutive heads by their mean, or by the first of them. Sums are in float64. */
export function poolHeads(all: HeadRows, after: number, method: "mean" | "first"): SharedHeads {
  const { rows, width, heads } = all;
  const group = heads / after;
  const kept = Array.from({ length: after * width }, (_, output) => {
    const first = Math.floor(output / width) * group * width + (output % width);
    const row = (rows[first] as Float64Array).slice();
    if (method === "first") return row;
    for (let member = 1; member < group; member++)
      for (const [i, number] of (rows[first + member * width] as Float64Array).entries())
        row[i] = (row[i] as number) + number;
    return row.map((sum) => sum / group);
  });
  const standIn = (head: number, c: number) => kept[Math.floor(head / group) * width + c] as Float64Array;
  return { rows: kept, relativeError: errorsOf(all, standIn) };
}

/** Components of a head: those that may be transformed together, and the pairs that RoPE rotates. */
export interface HeadParts {
  readonly plain: readonly number[];
  readonly pairs: readonly (readonly [number, number])[];
}

/** The components of a head of this width. */
export function headParts(width: number, rope: RopeWithDim | undefined): HeadParts {
  const { start = 0, dim = 0, pairing } = rope ?? {};
  const pairs = Array.from({ length: dim / 2 }, (_, i) =>
    pairing === "half" ? ([start + i, start + i + dim / 2] as const) : ([start + 2 * i, start + 2 * i + 1] as const),
  );
  const components = Array.from({ length: width }, (_, c) => c);
  return { plain: components.filter((c) => c < start || c >= start + dim), pairs };
}

/** Heads that are linear functions of those of a group. */
interface SharedBasis extends SharedHeads {
  /** T [width, width] for each of the given heads: the head is about T times its stand-in. */
  readonly transforms: readonly Float64Array[];
}

/**
 * Replaces each group of heads A_i [width, inputs] by one head B, for which A_i is about T_i·B. Components without position take
 * the best B and T_i in the Frobenius norm, by a singular value decomposition of the group's stacked rows. A pair that RoPE
 * rotates counts as one complex component, since T_i must commute with its rotations, which complex numbers do; its B and
 * T_i are the best ones of this kind. T_i are as large as rotations.
 */
export function shareBasis(all: HeadRows, after: number, { plain, pairs }: HeadParts): SharedBasis {
  const { rows, heads, width } = all;
  const group = heads / after;
  const columns = (rows[0] as Float64Array).length;
  const kept = Array.from({ length: after * width }, () => new Float64Array(columns));
  const transforms = Array.from({ length: heads }, () => new Float64Array(width * width));
  const size = Math.sqrt(group);
  for (let shared = 0; shared < after; shared++) {
    const first = shared * group;
    const rowOf = (member: number, c: number) => rows[(first + member) * width + c] as Float64Array;
    const members = Array.from({ length: group }, (_, member) => member);
    const scaled = (right: Float64Array, value: number, begin: number) =>
      right.slice(begin, begin + columns).map((number) => (number * value) / size);
    const set = (member: number, c: number, j: number, number: number) => {
      (transforms[first + member] as Float64Array)[c * width + j] = number * size;
    };

    const stacked = members.flatMap((member) => plain.map((c) => rowOf(member, c)));
    const { rank, values, left, right } = decompose(join(stacked, columns), stacked.length, columns);
    for (const [j, target] of plain.slice(0, rank).entries()) {
      kept[shared * width + target] = scaled(right, values[j] as number, j * columns);
      for (const member of members)
        for (const [i, c] of plain.entries())
          set(member, c, target, left[(member * plain.length + i) * rank + j] as number);
    }
    for (const [a, b] of pairs) {
      // Row a + i·b of complex numbers, and i times it, as real rows of twice the length.
      const turned = members.flatMap((member) => [
        join([rowOf(member, a), rowOf(member, b)], columns),
        join([rowOf(member, b).map((number) => -number), rowOf(member, a)], columns),
      ]);
      const { rank, values, left, right } = decompose(join(turned, 2 * columns), turned.length, 2 * columns);
      if (rank === 0) continue;
      kept[shared * width + a] = scaled(right, values[0] as number, 0);
      kept[shared * width + b] = scaled(right, values[0] as number, columns);
      for (const member of members) {
        const [real, imaginary] = [left[2 * member * rank] as number, -(left[(2 * member + 1) * rank] as number)];
        set(member, a, a, real);
        set(member, a, b, -imaginary);
        set(member, b, a, imaginary);
        set(member, b, b, real);
      }
    }
  }
  const standIn = (head: number, c: number) => {
    const row = new Float64Array(columns);
    const from = Math.floor(head / group) * width;
    for (let j = 0; j < width; j++) {
      const factor = (transforms[head] as Float64Array)[c * width + j] as number;
      if (factor !== 0) addRow(row, kept[from + j] as Float64Array, factor);
    }
    return row;
  };
  return { rows: kept, transforms, relativeError: errorsOf(all, standIn) };
}

/** For each head h, TᵀA of its rows A [width] where T is `transformOf(h)`, so that (TᵀA)ᵀ·B = Aᵀ·(T·B). */
export function transformRows(
  rows: readonly Float64Array[],
  width: number,
  transformOf: (head: number) => Float64Array,
): Float64Array[] {
  return rows.map((row, output) => {
    const [head, j] = [Math.floor(output / width), output % width];
    const sum = new Float64Array(row.length);
    for (let c = 0; c < width; c++)
      addRow(sum, rows[head * width + c] as Float64Array, transformOf(head)[c * width + j] as number);
    return sum;
  });
}

function addRow(to: Float64Array, row: Float64Array, factor: number): void {
  for (let i = 0; i < to.length; i++) to[i] = (to[i] as number) + factor * (row[i] as number);
}

function join(rows: readonly Float64Array[], columns: number): Float64Array {
  const all = new Float64Array(rows.length * columns);
  for (const [r, row] of rows.entries()) all.set(row, r * columns);
  return all;
}

/** The relative error of each head, in the Frobenius norm of its matrix, biases not counted. */
function errorsOf(
  { rows, inputs, heads, width }: HeadRows,
  standIn: (head: number, c: number) => Float64Array,
): Float32Array {
  return Float32Array.from({ length: heads }, (_, head) => {
    let [lost, norm] = [0, 0];
    for (let c = 0; c < width; c++) {
      const own = (rows[head * width + c] as Float64Array).subarray(0, inputs);
      const other = standIn(head, c);
      lost += squaredNorm(own.map((number, i) => (other[i] as number) - number));
      norm += squaredNorm(own);
    }
    return lost === 0 ? 0 : Math.sqrt(lost / norm);
  });
}
