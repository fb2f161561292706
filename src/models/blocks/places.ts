// Where the weights of a decoder lie in their blocks of memory. It follows from the specification and the formats alone, so that
// the number of bytes is known before a weight is read.

import type { Attention } from "../../layers/attention/attention.ts";
import { type PackedFormat, type PackedLinear, wholePanels } from "../../layers/linear/formats/format.ts";
import { joinLinears, type LinearPlace, placeLinears } from "../../layers/linear/products.ts";
import { type F32Ptr, NULL, type NullPtr } from "../../wasm/abi.ts";
import { Layout, pointer } from "../../wasm/memory.ts";
import {
  type ActivationSpec,
  type BlockSpec,
  type MlpSpec,
  type ModelSpec,
  type MoeSpec,
  type NormRole,
  type NormSpec,
  type RouterSpec,
  widthOfRows,
} from "../spec/spec.ts";
import { relativeFloats } from "./relative.ts";

/** Offsets of an MLP in its block of memory. */
export interface MlpPlace {
  readonly spec: MlpSpec;
  readonly gate: LinearPlace | undefined;
  readonly up: LinearPlace;
  readonly down: LinearPlace;
}

/** The formats of an MLP's matrices; `gate` of those without one is not used. */
export interface MlpFormats {
  readonly gate: PackedFormat;
  readonly up: PackedFormat;
  readonly down: PackedFormat;
}

function placeMlp(layout: Layout, dModel: number, spec: MlpSpec, formats: MlpFormats): MlpPlace {
  const first = { n: spec.dim, k: dModel };
  const up = { ...first, format: formats.up };
  const inputs = placeLinears(layout, spec.gated ? [{ ...first, format: formats.gate }, up] : [up]);
  const [down] = placeLinears(layout, [{ n: dModel, k: spec.dim, format: formats.down }]) as [LinearPlace];
  return { spec, gate: spec.gated ? inputs[0] : undefined, up: inputs.at(-1) as LinearPlace, down };
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
const ROUTER_FORMAT: PackedFormat = "f32";

function placeMoe(
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

function placeNorm(layout: Layout, dModel: number, spec: NormSpec): NormPlace {
  return { spec, gain: layout.floats(dModel), bias: spec.kind === "layer" ? layout.floats(dModel) : 0 };
}

/** Offsets of what a layer consists of besides its attention. */
interface BlockPlace {
  readonly norms: Readonly<Partial<Record<NormRole, NormPlace>>>;
  readonly mlp: MlpPlace | undefined;
  readonly moe: MoePlace | undefined;
}

function placeBlock(
  layout: Layout,
  dModel: number,
  { norms, mlp }: BlockSpec,
  formatsOf: (expert: number | "shared" | "mlp") => MlpFormats,
): BlockPlace {
  const places = Object.entries(norms).map(([role, spec]) => [role, placeNorm(layout, dModel, spec)]);
  return {
    norms: Object.fromEntries(places),
    mlp: mlp?.kind === "mlp" ? placeMlp(layout, dModel, mlp, formatsOf("mlp")) : undefined,
    moe: mlp?.kind === "moe" ? placeMoe(layout, dModel, mlp, formatsOf) : undefined,
  };
}

/** Offsets of what is before the first layer and behind the last one. */
export interface EndPlaces {
  readonly embed: LinearPlace;
  readonly embedNorm: NormPlace | undefined;
  readonly positions: LinearPlace | undefined;
  readonly types: LinearPlace | undefined;
  readonly projectIn: LinearPlace | undefined;
  readonly projectOut: LinearPlace | undefined;
  /** Undefined if the table of tokens is the head. */
  readonly head: LinearPlace | undefined;
  readonly transform: { readonly dense: LinearPlace; readonly norm: NormPlace } | undefined;
  readonly finalNorm: NormPlace | undefined;
  readonly stem: { readonly first: LinearPlace; readonly second: LinearPlace } | undefined;
  /** The packed bias by relative position. */
  readonly relativeBias: number;
}

/** The formats of the matrices before the first layer and behind the last one. */
export interface EndFormats {
  readonly embed: PackedFormat;
  readonly projectIn: PackedFormat;
  readonly projectOut: PackedFormat;
  /** Undefined if the table of tokens is the head. */
  readonly head: PackedFormat | undefined;
}

function placeEnds(layout: Layout, spec: ModelSpec, formats: EndFormats): EndPlaces {
  const { dModel, vocabSize, embed, finalNorm } = spec;
  const { positions, types, norm } = embed;
  const { transform } = spec.head;
  const width = widthOfRows(spec);
  const place = (n: number, k: number, format: PackedFormat) =>
    placeLinears(layout, [{ n, k, format }])[0] as LinearPlace;
  const projected = embed.dim !== dModel;
  return {
    embed: place(vocabSize, embed.dim, formats.embed),
    positions: positions && place(positions.rows, width, "f32"),
    types: types === undefined ? undefined : place(types, width, "f32"),
    projectIn: projected ? place(dModel, embed.dim, formats.projectIn) : undefined,
    projectOut: projected && !embed.projectLast ? place(embed.dim, dModel, formats.projectOut) : undefined,
    head: formats.head && place(vocabSize, embed.dim, formats.head),
    transform: transform && {
      dense: place(embed.dim, dModel, formats.projectOut),
      norm: placeNorm(layout, embed.dim, transform.norm),
    },
    embedNorm: norm && placeNorm(layout, width, norm),
    finalNorm: finalNorm && placeNorm(layout, dModel, finalNorm),
    stem:
      embed.channels === undefined
        ? undefined
        : {
            first: place(dModel, 3 * embed.channels, "f32"),
            second: place(dModel, 3 * dModel, "f32"),
          },
    relativeBias: layout.floats(relativeFloats(spec)),
  };
}

/** Where a model's weights lie besides those of attention: a block for the ends, and one for each layer. */
export interface ModelPlaces {
  readonly ends: EndPlaces;
  readonly endsBytes: number;
  readonly blocks: readonly { readonly place: BlockPlace; readonly bytes: number }[];
}

export function placeModel(
  spec: ModelSpec,
  ends: EndFormats,
  mlpFormats: (layer: number, which: number | "shared" | "mlp") => MlpFormats,
): ModelPlaces {
  const layout = new Layout();
  const places = placeEnds(layout, spec, ends);
  const blocks = spec.blocks.map((block, i) => {
    const own = new Layout();
    const place = placeBlock(own, spec.dModel, block, (which) => mlpFormats(i, which));
    return { place, bytes: own.bytes };
  });
  return { ends: places, endsBytes: layout.bytes, blocks };
}

/** Floats of a row of what the first projections of an MLP compute, in whole panels. */
export function innerStride({ gate, up }: MlpPlace): number {
  return wholePanels(up.n) + (gate ? wholePanels(gate.n) : 0);
}

/** The MLPs of a layer, its experts among them. */
export function mlpsIn({ mlp, moe }: BlockPlace): readonly MlpPlace[] {
  return [mlp, moe?.shared, ...(moe?.experts ?? [])].filter((each) => each !== undefined);
}

/** The matrices of a layer besides those of attention. */
export function linearsOf(block: BlockPlace): readonly LinearPlace[] {
  const { gate, sharedGate } = block.moe ?? {};
  return [...mlpsIn(block).flatMap(({ gate, up, down }) => [gate, up, down]), gate, sharedGate].filter(
    (each) => each !== undefined,
  );
}

// The weights of a decoder around attention in linear memory, as the pass finds them.

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
