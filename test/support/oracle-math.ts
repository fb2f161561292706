// The arithmetic of transformers in float64, one vector at a time. It shares no code with the package.

import type { Tensor } from "../../src/base/tensor/tensor.ts";

export type Vector = readonly number[];
export type Rows = readonly Vector[];
export type Tensors = ReadonlyMap<string, Tensor>;

export const sum = (x: Vector): number => x.reduce((all, each) => all + each, 0);
export const add = (a: Vector, b: Vector): Vector => a.map((each, i) => each + (b[i] as number));

export function dot(a: Vector, b: Vector): number {
  let all = 0;
  for (let i = 0; i < a.length; i++) all += (a[i] as number) * (b[i] as number);
  return all;
}

/** A vector of a file; undefined if it has none of this name. */
export const vectorOf = (tensors: Tensors, name: string): Vector | undefined =>
  tensors.has(name) ? [...(tensors.get(name) as Tensor).data] : undefined;

/** Row `index` of NAME.weight. */
export function rowOf(tensors: Tensors, name: string, index: number): Vector {
  const { data, shape } = tensors.get(`${name}.weight`) as Tensor;
  const width = data.length / (shape[0] as number);
  return [...data.subarray(index * width, (index + 1) * width)];
}

/** NAME.weight · x + NAME.bias. */
export function linearOf(tensors: Tensors, x: Vector, name: string): Vector {
  const bias = vectorOf(tensors, `${name}.bias`);
  const outputs = tensors.get(`${name}.weight`)?.shape[0] as number;
  return Array.from({ length: outputs }, (_, i) => dot(x, rowOf(tensors, name, i)) + (bias?.[i] ?? 0));
}

/** The layer norm NAME, or with `centred` false the RMS norm. */
export function normOf(tensors: Tensors, x: Vector, name: string, eps: number, centred = true): Vector {
  const [gain, bias] = [vectorOf(tensors, `${name}.weight`) as Vector, vectorOf(tensors, `${name}.bias`)];
  const mean = centred ? sum(x) / x.length : 0;
  const deviation = Math.sqrt(sum(x.map((each) => (each - mean) ** 2)) / x.length + eps);
  return x.map((each, i) => ((each - mean) / deviation) * (gain[i] as number) + (bias?.[i] ?? 0));
}

/** What each query gets of the values, head after head: `score` gives the score of a head, query and key, -Infinity for none. */
export function attendTo(
  queries: Rows,
  keys: Rows,
  values: Rows,
  heads: number,
  score: (head: number, t: number, j: number, query: Vector, key: Vector) => number,
): Rows {
  const width = (queries[0] as Vector).length / heads;
  return queries.map((query, t) =>
    Array.from({ length: heads }, (_, h) => {
      const cut = (x: Vector) => x.slice(h * width, (h + 1) * width);
      const scores = keys.map((key, j) => score(h, t, j, cut(query), cut(key)));
      const most = Math.max(...scores);
      const weights = scores.map((each) => Math.exp(each - most));
      const all = sum(weights);
      const value = (i: number) =>
        sum(weights.map((w, j) => (w / all) * ((values[j] as Vector)[h * width + i] as number)));
      return Array.from({ length: width }, (_, i) => value(i));
    }).flat(),
  );
}

export const geluTanh = (x: number): number =>
  0.5 * x * (1 + Math.tanh(Math.sqrt(2 / Math.PI) * (x + 0.044715 * x ** 3)));

/** x·Φ(x), by the series of the error function, which is exact to 1e-8 up to 6; beyond, it is x or 0 to that. */
export function gelu(x: number): number {
  if (Math.abs(x) > 6) return Math.max(0, x);
  const z = x / Math.SQRT2;
  let [term, all] = [z, z];
  for (let n = 1; n < 200; n++) {
    term *= (-z * z) / n;
    all += term / (2 * n + 1);
  }
  return 0.5 * x * (1 + (2 / Math.sqrt(Math.PI)) * all);
}

/** The bucket of a key at this distance from its query, by a loop over the bounds of buckets. */
export function bucketAt(distance: number, buckets: number, furthest: number, bothWays: boolean): number {
  const count = bothWays ? buckets / 2 : buckets;
  const away = bothWays ? Math.abs(distance) : Math.max(0, -distance);
  const exact = Math.floor(count / 2);
  let bucket = Math.min(away, exact);
  const bound = (i: number) => exact * (furthest / exact) ** ((i - exact) / (count - exact)) * (1 - 1e-12);
  while (away >= exact && bucket < count - 1 && away >= bound(bucket + 1)) bucket++;
  return bucket + (bothWays && distance > 0 ? count : 0);
}
