// What the files of several families with recurrent layers have in common: which tensors hold the matrices and vectors of a layer.

import {
  type RecurrentConfig,
  type RecurrentMatrix,
  type RecurrentVector,
  recurrentSizes,
  recurrentVectors,
  scanSizes,
} from "../../layers/recurrent/config.ts";

import type { Facts } from "./facts.ts";

/** A convolution or a scan, with a state in place of keys and values. */
export interface RecurrentSpec {
  readonly kind: "recurrent";
  readonly config: RecurrentConfig;
  /** What the names of its tensors begin with below a layer. */
  readonly at: string;
  readonly tensors: readonly RecurrentTensor[];
  /** Vectors that follow from the configuration. */
  readonly constants?: Readonly<Partial<Record<RecurrentVector, readonly number[]>>>;
}

/** A tensor of a recurrent layer: which rows of its matrices and vectors it holds, one part after the other. */
export interface RecurrentTensor {
  readonly name: string;
  readonly shape: readonly number[];
  readonly parts: readonly RecurrentPart[];
  /** The name of its bias, which files may lack unless it is `biased`. */
  readonly bias?: string;
  readonly biased?: true;
  readonly optional?: true;
  /**
   * Rates are stored as their logarithm, negative, or as what softplus makes an eighth of them; or a matrix is that of "blocks" along
   * its diagonal, [blocks, inputs, outputs], with a bias [blocks, outputs].
   */
  readonly form?: "log" | "negative" | "softplus" | "blocks";
}

/** `rows` rows of a tensor, which are those of a matrix or a vector from row `to` on. */
export interface RecurrentPart {
  readonly of: RecurrentMatrix | RecurrentVector;
  readonly rows: number;
  readonly to: number;
  /** What the numbers of a vector are multiplied by. Default 1. */
  readonly scale?: number;
}

type Name = RecurrentMatrix | RecurrentVector;

/** Names of tensors by what they hold alone, with ".weight" where the files have it. */
export type OwnNames = Readonly<Partial<Record<Name, string>>>;

/**
 * Tensors of which each holds one matrix or vector; matrices may have a bias. Taps lie in [channels, 1, taps], in GGUF files without
 * the 1, and rates are logarithms, in GGUF files negative.
 */
export function ownTensors(
  config: RecurrentConfig,
  names: OwnNames,
  convBias?: string,
  isGguf = false,
): RecurrentTensor[] {
  const [sizes, vectors] = [recurrentSizes(config), recurrentVectors(config)];
  const tensors = (Object.entries(names) as [Name, string][]).map(([of, name]): RecurrentTensor => {
    const size = sizes[of as RecurrentMatrix];
    const [n = 0, width] = size ? [size.n] : (vectors[of as RecurrentVector] ?? []);
    const row = width === undefined ? [] : of === "conv" && !isGguf ? [1, width] : [width];
    const shape = size ? [size.n, size.k] : [n, ...row];
    return {
      ...{ name, shape, parts: [{ of, rows: n, to: 0 }] },
      ...(size && { bias: name.replace(/\.weight$/, ".bias") }),
      ...(of === "rate" && { form: isGguf ? ("negative" as const) : ("log" as const) }),
    };
  });
  if (convBias === undefined) return tensors;
  const [rows = 0] = vectors.convBias ?? [];
  // GGUF files do not say whether they have it.
  const bias = { name: convBias, shape: [rows], parts: [{ of: "convBias", rows, to: 0 }] } as const;
  return [...tensors, isGguf ? { ...bias, optional: true } : bias];
}

/** Queries, keys and values of a scan that have a projection and a convolution of their own each. */
export function projectionsApart(config: RecurrentConfig): RecurrentTensor[] {
  const { dModel, taps, scan } = config;
  if (!scan) return [];
  const { keys, values, q, k, v } = scanSizes(scan);
  const parts = Object.entries({ q: [keys, q], k: [keys, k], v: [values, v] }) as [string, [number, number]][];
  return parts.flatMap(([name, [rows, to]]): RecurrentTensor[] => [
    { name: `${name}_proj.weight`, shape: [rows, dModel], parts: [{ of: "in", rows, to }] },
    { name: `${name}_conv1d.weight`, shape: [rows, 1, taps], parts: [{ of: "conv", rows, to }] },
  ]);
}

/** Throws unless `field` names the activation that is computed behind convolutions; many families take that of the MLP. */
export function expectSilu(facts: Facts, field: string): void {
  const word = facts.raw(field) ?? "silu";
  if (word !== "silu" && word !== "swish") throw facts.refusal(field, '"silu", since layers are recurrent', word);
}

/** Parts that follow each other in a tensor, each behind what the same matrix has so far. */
export function partsInOrder(parts: readonly (readonly [of: Name, rows: number])[]): RecurrentPart[] {
  const to = new Map<Name, number>();
  return parts.map(([of, rows]) => {
    const at = to.get(of) ?? 0;
    to.set(of, at + rows);
    return { of, rows, to: at };
  });
}
