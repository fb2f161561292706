// The weights of a decoder around attention in linear memory, as the pass finds them.

import type { Attention } from "../attention/attention.ts";
import type { PackedFormat } from "../linear/formats.ts";
import { joinLinears, type PackedLinear } from "../linear/linear.ts";
import type { ActivationSpec, MlpSpec, NormRole, NormSpec, RouterSpec } from "../models/decoder/spec.ts";
import { type F32Ptr, NULL, type NullPtr } from "../wasm/abi.ts";
import { pointer } from "../wasm/memory.ts";
import type { NormPlace } from "./places.ts";

/** A norm of rows. */
export interface PackedNorm {
  readonly kind: NormSpec["kind"];
  readonly eps: number;
  readonly gain: F32Ptr;
  readonly bias: F32Ptr | NullPtr;
}

/** Two or three projections and an activation. */
export interface PackedMlp {
  readonly dim: number;
  /** The first projections, of the same rows: the gate and the other factor side by side, as one product if they are alike. */
  readonly inputs: readonly PackedLinear[];
  readonly gated: boolean;
  readonly activation: ActivationSpec;
  readonly down: PackedLinear;
}

/** Experts, and what chooses among them. */
export interface PackedMoe {
  readonly topK: number;
  readonly router: RouterSpec;
  readonly gate: PackedLinear;
  readonly correction: F32Ptr | NullPtr;
  readonly experts: readonly PackedMlp[];
  readonly shared: PackedMlp | undefined;
  /** The projection whose sigmoid scales the outputs of `shared`. */
  readonly sharedGate: PackedLinear | undefined;
}

/** A table of rows, one for each token or position, in the panels of a projection. */
export interface PackedTable {
  readonly rows: number;
  readonly dim: number;
  readonly format: PackedFormat;
  readonly at: number;
  /** Minimums, if the format has them. */
  readonly mins: number;
}

/** A decoder layer. */
export interface PackedBlock {
  readonly attention: Attention;
  /** Attention to the outputs of an encoder. */
  readonly cross: Attention | undefined;
  readonly norms: Readonly<Partial<Record<NormRole, PackedNorm>>>;
  readonly mlp: PackedMlp | undefined;
  readonly moe: PackedMoe | undefined;
  readonly parallel: boolean;
  readonly addsToNormed: boolean;
  readonly scale: number;
}

/** The MLP of packed matrices. */
export function joinMlp(
  { dim, gated, activation }: MlpSpec,
  gate: PackedLinear | undefined,
  up: PackedLinear,
  down: PackedLinear,
): PackedMlp {
  const inputs = gate === undefined ? [up] : gate.format === up.format ? [joinLinears(gate, up)] : [gate, up];
  return { dim, gated, activation, inputs, down };
}

/** A norm whose gain and bias were written to their places in the block at `base`. */
export function packedNorm({ spec, gain, bias }: NormPlace, base: number, biased: boolean): PackedNorm {
  const { kind, eps } = spec;
  return { kind, eps, gain: pointer.f32(base + gain), bias: biased ? pointer.f32(base + bias) : NULL };
}
