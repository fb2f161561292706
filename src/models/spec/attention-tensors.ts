// The tensors of a layer's attention in safetensors files: which there are, and how they become weights.

import type { SafetensorsFile } from "../../files/safetensors/safetensors.ts";
import type { AttentionWeights } from "../../layers/attention/weights.ts";
import type { LatentWeights } from "../../layers/latent/weights.ts";
import type { HfAttentionConfig } from "../families/attention-rules.ts";
import type { Names, TensorForm } from "../families/family.ts";
import { latentBiases, latentTensors, readLatentWeights } from "../weights/hf-latent.ts";
import { readAttentionWeights } from "../weights/hf-weights.ts";
import type { BlockSpec } from "./spec.ts";

/** Names of tensors below a prefix, with their shapes. */
export type NamedShapes = readonly (readonly [name: string, shape: readonly number[]])[];

/** The tensors of a layer's attention in files of one form. Names are those below its prefix. */
export interface AttentionTensors {
  required(attention: BlockSpec["attention"]): NamedShapes;
  optional(attention: BlockSpec["attention"]): NamedShapes;
  readHeads(tensors: SafetensorsFile["tensors"], prefix: string, config: HfAttentionConfig): AttentionWeights;
  readLatents(tensors: SafetensorsFile["tensors"], prefix: string): LatentWeights;
}

/** Those of safetensors files. */
export function hfAttentionTensors(names: Names, family: TensorForm): AttentionTensors {
  const file = (tensors: SafetensorsFile["tensors"]): SafetensorsFile => ({ metadata: new Map(), tensors });
  return {
    required: (attention) => requiredTensors(attention, names, family),
    optional: (attention) => biases(attention, names, family),
    readHeads: (tensors, prefix, { numHeads, numKvHeads, headDim, fused }) =>
      readAttentionWeights(file(tensors), prefix, { numHeads, numKvHeads, headDim, fused }),
    readLatents: (tensors, prefix) => readLatentWeights(file(tensors), prefix),
  };
}

function requiredTensors(
  attention: BlockSpec["attention"],
  { projections, sinks }: Names,
  { layout, headNorm }: TensorForm,
): NamedShapes {
  if (attention.kind === "latent") return latentTensors(attention.config);
  const { dModel, numHeads, numKvHeads = numHeads, headDim = dModel / numHeads, qkNorm } = attention.config;
  const [q, k] = [numHeads * headDim, numKvHeads * headDim];
  const sizes = [
    ...(projections.length === 2 ? [[q + 2 * k, dModel]] : [q, k, k].map((n) => [n, dModel])),
    [dModel, q],
  ];
  const gains = (n: number) => [qkNorm?.kind === "full" ? n : headDim];
  return [
    ...projections.map((name, i): [string, readonly number[]] => {
      const shape = sizes[i] as number[];
      return [`${name}.weight`, layout === "in-out" ? [...shape].reverse() : shape];
    }),
    ...(qkNorm
      ? ([
          ["q_norm.weight", gains(q)],
          ["k_norm.weight", gains(k)],
        ] as const)
      : []),
    ...(sinks ? [[sinks, [numHeads]] as const] : []),
    ...(headNorm && attention.headNorm
      ? [
          ...headNormShapes(headNorm.q, numHeads, headDim, headNorm.each),
          ...headNormShapes(headNorm.k, numKvHeads, headDim, headNorm.each),
        ]
      : []),
  ];
}

/** Of each projection, and of norms of heads. */
function biases(attention: BlockSpec["attention"], names: Names, family: TensorForm): NamedShapes {
  if (attention.kind === "latent") return latentBiases(attention.config);
  const outputs = (shape: readonly number[]) => (family.layout === "in-out" ? shape.slice(1) : shape.slice(0, 1));
  const isProjection = (name: string) => names.projections.some((own) => name === `${own}.weight`);
  const isNorm = (name: string) =>
    attention.headNorm !== undefined &&
    [family.headNorm?.q, family.headNorm?.k].some((own) => name.startsWith(`${own}.`));
  return requiredTensors(attention, names, family).flatMap(([name, shape]): [string, readonly number[]][] => {
    const bias = name.replace(/weight$/, "bias");
    if (isProjection(name)) return [[bias, outputs(shape)]];
    return isNorm(name) ? [[bias, shape]] : [];
  });
}

/** The gains of a layer norm of heads. */
function headNormShapes(
  name: string,
  heads: number,
  headDim: number,
  each: NonNullable<TensorForm["headNorm"]>["each"],
): NamedShapes {
  if (each === "apart") return Array.from({ length: heads }, (_, head) => [`${name}.norms.${head}.weight`, [headDim]]);
  return [[`${name}.weight`, each === "together" ? [heads, headDim] : [headDim]]];
}
