// The weights of a decoder around attention, in linear memory: what is placed, and what the pass finds there.

import type { Attention } from "../attention/attention.ts";
import type { WeightFormat } from "../linear/formats.ts";
import { joinLinears, type LinearPlace, type PackedLinear, placeLinears } from "../linear/linear.ts";
import type {
  ActivationSpec,
  BlockSpec,
  MlpSpec,
  MoeSpec,
  NormRole,
  NormSpec,
  RouterSpec,
} from "../models/decoder/spec.ts";
import { type F32Ptr, NULL, type NullPtr } from "../wasm/abi.ts";
import { type Layout, pointer } from "../wasm/memory.ts";

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
  readonly format: WeightFormat;
  readonly at: number;
}

/** A decoder layer. */
export interface PackedBlock {
  readonly attention: Attention;
  readonly norms: Readonly<Partial<Record<NormRole, PackedNorm>>>;
  readonly mlp: PackedMlp | undefined;
  readonly moe: PackedMoe | undefined;
  readonly parallel: boolean;
  readonly addsToNormed: boolean;
  readonly scale: number;
}

/** Offsets of an MLP in its block of memory. */
export interface MlpPlace {
  readonly spec: MlpSpec;
  readonly gate: LinearPlace | undefined;
  readonly up: LinearPlace;
  readonly down: LinearPlace;
}

/** The formats of an MLP's matrices; `gate` of those without one is not used. */
export interface MlpFormats {
  readonly gate: WeightFormat;
  readonly up: WeightFormat;
  readonly down: WeightFormat;
}

export function placeMlp(layout: Layout, dModel: number, spec: MlpSpec, formats: MlpFormats): MlpPlace {
  const first = { n: spec.dim, k: dModel };
  const up = { ...first, format: formats.up };
  const inputs = placeLinears(layout, spec.gated ? [{ ...first, format: formats.gate }, up] : [up]);
  const [down] = placeLinears(layout, [{ n: dModel, k: spec.dim, format: formats.down }]) as [LinearPlace];
  return { spec, gate: spec.gated ? inputs[0] : undefined, up: inputs.at(-1) as LinearPlace, down };
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

/** Offsets of what a mixture of experts consists of. */
export interface MoePlace {
  readonly spec: MoeSpec;
  readonly gate: LinearPlace;
  readonly correction: number;
  readonly experts: readonly MlpPlace[];
  readonly shared: MlpPlace | undefined;
  readonly sharedGate: LinearPlace | undefined;
}

/** Routers are float32: rounding could choose other experts. */
const ROUTER_FORMAT: WeightFormat = "f32";

export function placeMoe(
  layout: Layout,
  dModel: number,
  spec: MoeSpec,
  formatsOf: (expert: number | "shared") => MlpFormats,
): MoePlace {
  const small = (n: number) => placeLinears(layout, [{ n, k: dModel, format: ROUTER_FORMAT }])[0] as LinearPlace;
  const { experts, expert, shared } = spec;
  return {
    spec,
    gate: small(experts),
    correction: layout.floats(experts),
    experts: Array.from({ length: experts }, (_, e) => placeMlp(layout, dModel, expert, formatsOf(e))),
    shared: shared && placeMlp(layout, dModel, shared.mlp, formatsOf("shared")),
    sharedGate: shared?.gated ? small(1) : undefined,
  };
}

/** Offsets of the gain and the bias of a norm. */
export interface NormPlace {
  readonly spec: NormSpec;
  readonly gain: number;
  readonly bias: number;
}

export function placeNorm(layout: Layout, dModel: number, spec: NormSpec): NormPlace {
  return { spec, gain: layout.floats(dModel), bias: spec.kind === "layer" ? layout.floats(dModel) : 0 };
}

/** A norm whose gain and bias were written to their places in the block at `base`. */
export function packedNorm({ spec, gain, bias }: NormPlace, base: number, biased: boolean): PackedNorm {
  const { kind, eps } = spec;
  return { kind, eps, gain: pointer.f32(base + gain), bias: biased ? pointer.f32(base + bias) : NULL };
}

/** Offsets of what a layer consists of besides its attention. */
export interface BlockPlace {
  readonly norms: Readonly<Partial<Record<NormRole, NormPlace>>>;
  readonly mlp: MlpPlace | undefined;
  readonly moe: MoePlace | undefined;
}

export function placeBlock(
  layout: Layout,
  dModel: number,
  { norms, mlp }: BlockSpec,
  formatsOf: (expert: number | "shared" | "mlp") => MlpFormats,
): BlockPlace {
  const places = Object.entries(norms).map(([role, spec]) => [role, placeNorm(layout, dModel, spec)]);
  return {
    norms: Object.fromEntries(places),
    mlp: mlp.kind === "mlp" ? placeMlp(layout, dModel, mlp, formatsOf("mlp")) : undefined,
    moe: mlp.kind === "moe" ? placeMoe(layout, dModel, mlp, formatsOf) : undefined,
  };
}
