// The MLP of a layer, and mixtures of experts, on rows in linear memory.

import { PANEL } from "../../../assembly/layout.ts";
import { exp } from "../../base/util/math.ts";
import type { Steps } from "../../base/util/steps.ts";
import { wholePanels } from "../../layers/linear/formats/format.ts";
import type { Rows } from "../../layers/linear/products.ts";
import { NULL, ROUTE_SHAPE_BYTES, storeRouteShape } from "../../wasm/abi.ts";
import { type Layout, pointer } from "../../wasm/memory.ts";
import type { MlpSpec, MoeSpec } from "../spec/spec.ts";
import { modelPointer } from "./model.ts";
import type { PackedMlp, PackedMoe } from "./places.ts";
import { activateRows, addRows, projectRows, type RowWork } from "./rows.ts";

// The MLP of a layer or of an expert, on rows in linear memory.

/** Places what the largest of these MLPs computes first, in whole panels, for up to `rows` rows. */
export function placeInner(layout: Layout, mlps: readonly MlpSpec[], rows: number): number {
  const strides = mlps.map(({ dim, gated }) => (gated ? 2 : 1) * wholePanels(dim));
  return layout.floats(rows * Math.max(0, ...strides));
}

/** to = down(act(gate(from)) · up(from)); `inner` is the offset of what is between. */
export function* runMlp(work: RowWork, mlp: PackedMlp, inner: number, to: Rows, from: Rows, rows: number): Steps {
  const { dim, inputs, gated, activation, down } = mlp;
  const stride = PANEL * inputs.reduce((sum, { panels }) => sum + panels, 0);
  const first = { at: pointer.f32(work.base + inner), stride };
  yield* projectRows(work, inputs, first, from, rows);
  activateRows(work, activation, first, gated ? pointer.f32(first.at + 4 * wholePanels(dim)) : NULL, dim, rows);
  yield* projectRows(work, [down], to, first, rows);
}

// A mixture of experts on rows in linear memory: a router chooses, rows are gathered by expert, so that each expert is one
// product for all of its tokens, and outputs are added up expert after expert, in the order of their numbers. So a token's sum
// has one order, whatever other tokens there are.

/** Offsets of what a mixture works in. */
export interface MoePlaces {
  /** [rows, experts], in whole panels. */
  readonly logits: number;
  /** [rows, topK] each: experts, and their weights. */
  readonly ids: number;
  readonly weights: number;
  readonly shape: number;
  readonly scratch: number;
  /** [rows · topK]: the places in `ids` of an expert's tokens. */
  readonly slots: number;
  /** [rows, dModel] each, in whole panels: an expert's tokens, and its outputs. */
  readonly gathered: number;
  readonly outputs: number;
}

/** Places what the largest of these mixtures works in, for up to `rows` rows of `stride` floats. */
export function placeMoeRows(layout: Layout, all: readonly MoeSpec[], rows: number, stride: number): MoePlaces {
  const most = (of: (moe: MoeSpec) => number) => Math.max(0, ...all.map(of));
  const topK = most((spec) => spec.topK);
  const any = all.length > 0 ? 1 : 0;
  return {
    // At least a panel, for the projection whose sigmoid scales shared outputs.
    logits: layout.floats(any * rows * wholePanels(most(({ experts }) => experts))),
    ids: layout.floats(rows * topK),
    weights: layout.floats(rows * topK),
    shape: layout.take(ROUTE_SHAPE_BYTES),
    scratch: layout.floats(most(({ experts, router }) => experts + 3 * router.groups)),
    slots: layout.floats(rows * topK),
    gathered: layout.floats(any * rows * stride),
    outputs: layout.floats(any * rows * stride),
  };
}

/** to = the weighted outputs of each row's experts, and of those that every row takes. */
export function* runMoe(
  work: RowWork,
  moe: PackedMoe,
  places: MoePlaces,
  inner: number,
  to: Rows,
  from: Rows,
  rows: number,
): Steps {
  const { kernels, base } = work;
  const { memory, table } = kernels;
  const { topK, experts } = moe;
  yield* runShared(work, moe, places, inner, to, from, rows);
  const logits = { at: pointer.f32(base + places.logits), stride: PANEL * moe.gate.panels };
  yield* projectRows(work, [moe.gate], logits, from, rows);
  chooseExperts(work, moe, places, logits, rows);
  const slotsOf = bySlots(memory.u32(base + places.ids, rows * topK), experts.length);
  const slotsAt = modelPointer.i32(base + places.slots);
  const gathered = { at: pointer.f32(base + places.gathered), stride: from.stride };
  const outputs = { at: pointer.f32(base + places.outputs), stride: to.stride };
  for (const [e, slots] of slotsOf) {
    memory.u32(slotsAt, slots.length).set(slots);
    table.gather_rows_f32(gathered.at, from.at, slotsAt, topK, from.stride, 0, slots.length);
    yield* runMlp(work, experts[e] as PackedMlp, inner, outputs, gathered, slots.length);
    const weights = pointer.f32(base + places.weights);
    table.scatter_rows_f32(to.at, outputs.at, weights, slotsAt, topK, to.stride, 0, slots.length);
  }
}

/** to = the outputs of the MLP that every row takes, or zeros. */
function* runShared(
  work: RowWork,
  { shared, sharedGate }: PackedMoe,
  places: MoePlaces,
  inner: number,
  to: Rows,
  from: Rows,
  rows: number,
): Steps {
  const { kernels, base } = work;
  const { memory } = kernels;
  if (!shared || sharedGate) memory.f32(to.at, rows * to.stride).fill(0);
  if (!shared) return;
  if (!sharedGate) {
    yield* runMlp(work, shared, inner, to, from, rows);
    return;
  }
  const gates = { at: pointer.f32(base + places.logits), stride: PANEL * sharedGate.panels };
  yield* projectRows(work, [sharedGate], gates, from, rows);
  const scales = Array.from({ length: rows }, (_, r) => sigmoid(memory.f32(gates.at + 4 * r * gates.stride, 1)[0]!));
  const outputs = { at: pointer.f32(base + places.outputs), stride: to.stride };
  yield* runMlp(work, shared, inner, outputs, from, rows);
  for (const [r, scale] of scales.entries()) {
    const rowOf = ({ at, stride }: Rows): Rows => ({ at: pointer.f32(at + 4 * r * stride), stride });
    addRows(work, rowOf(to), rowOf(to), rowOf(outputs), scale, 1);
  }
}

const sigmoid = (x: number) => 1 / (1 + exp(-x));

/** Writes the experts of each row and their weights. */
function chooseExperts(
  { kernels, base }: RowWork,
  { topK, router, experts, correction }: PackedMoe,
  places: MoePlaces,
  logits: Rows,
  rows: number,
): void {
  const { score, renormalise, scale, groups, keepGroups, pairs } = router;
  const at = modelPointer.routeShape(base + places.shape);
  storeRouteShape(kernels.memory.view(), at, {
    ...{ experts: experts.length, topK, stride: logits.stride, groups, keepGroups, scale },
    sigmoid: score === "sigmoid" ? 1 : 0,
    pairs: pairs ? 1 : 0,
    renormalise: renormalise ? 1 : 0,
  });
  const [ids, weights] = [modelPointer.i32(base + places.ids), pointer.f32(base + places.weights)];
  kernels.table.route_f32(ids, weights, logits.at, pointer.f32(base + places.scratch), correction, at, 0, rows);
}

/** The places of each chosen expert in the list of choices, by ascending expert. */
function bySlots(ids: Uint32Array, experts: number): Map<number, number[]> {
  const all = Array.from({ length: experts }, (): number[] => []);
  for (const [slot, e] of ids.entries()) all[e]?.push(slot);
  return new Map([...all.entries()].filter(([, slots]) => slots.length > 0));
}
