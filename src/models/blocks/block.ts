// What a pass through a model works in, and a layer on rows in linear memory: its attention, and its MLP or mixture of experts.

import { PANEL } from "../../../assembly/layout.ts";
import { exp } from "../../base/util/math.ts";
import type { Steps } from "../../base/util/steps.ts";
import { placeRotations } from "../../layers/attention/heads.ts";
import type { RopeWithDim } from "../../layers/attention/rope.ts";
import { wholePanels } from "../../layers/linear/formats.ts";
import { type LinearScratch, placeLinearScratch, type Rows } from "../../layers/linear/products.ts";
import type { RotationPlaces, RunRows, Runs, StateCall } from "../../layers/mixer/mixer.ts";
import { NULL, RouteShape } from "../../wasm/abi.ts";
import { Layout, pointer } from "../../wasm/memory.ts";
import {
  type BranchFactors,
  isGated,
  type MlpSpec,
  type ModelSpec,
  type MoeSpec,
  type NormRole,
  widthOfHeads,
} from "../spec/spec.ts";
import {
  type ModelPlaces,
  modelPointer,
  type PackedBlock,
  type PackedLayerInput,
  type PackedMlp,
  type PackedMoe,
  type PackedNorm,
} from "./model.ts";
import {
  activateRows,
  addRows,
  gateHeads,
  gateRows,
  type LayerSite,
  normRows,
  projectRows,
  ROOT_HALF,
  ROW_SHAPE_BYTES,
  type RowWork,
  sparsifyRows,
  warmQueries,
  xieluRows,
} from "./rows.ts";
import { addToStreams, correctStreams, placeStreams, predictStreams, type StreamPlaces } from "./streams.ts";

/** What runs the attention of a layer, and its attention to the outputs of an encoder. */
export interface LayerRun {
  readonly self: RunRows<StateCall>;
  readonly cross?: RunRows;
}

/** The scratch of a pass with chunks of up to `rows` rows. Offsets; rows lie `stride` floats apart. */
export interface PassPlan<Run = LayerRun> {
  readonly rows: number;
  readonly stride: number;
  /** Ids of the chunk's tokens, and their rows in the table of positions. */
  readonly ids: number;
  readonly positions: number;
  /** The residual; what a branch reads, after its norm; what it computes. */
  readonly residual: number;
  readonly normed: number;
  readonly branch: number;
  readonly shape: number;
  readonly streams: StreamPlaces;
  /** [rows, layers·dim], in whole panels: the inputs of layers besides the residual, if they have any. */
  readonly layerInputs: number;
  /** [rows, heads' outputs], in whole panels, if those are gated. */
  readonly gates: number;
  /** Tables of rotations, and the first of the layers that have them. */
  readonly rotations: readonly (RotationPlaces & { readonly layer: number })[];
  readonly linear: LinearScratch;
  /** What runs the attention of each layer. */
  readonly attention: readonly Run[];
  readonly inner: number;
  readonly moe: MoePlaces;
  /** Narrowed rows before the head, [headRows, dim]; logits [headRows, vocabulary in whole panels]; chosen ones. */
  readonly narrow: number;
  readonly logits: number;
  readonly headRows: number;
  readonly topValues: number;
  readonly topIds: number;
  readonly bytes: number;
}

/** About how many floats of logits are computed at a time. */
const LOGIT_FLOATS = 2 ** 22;

/** The most logits of a row that a call can ask for. */
export const MOST_TOP = 1024;

/** What a plan is made for. */
interface PlanSizes {
  /** Rows of a chunk at most. */
  readonly rows: number;
  /** Rows that become logits, at most. */
  readonly outputs: number;
  /** What rotates in each layer, where layers share tables. */
  readonly ropes?: readonly (RopeWithDim | undefined)[];
}

/**
 * Plans a pass. `placeAttention` places what the attention of a layer works in for chunks of up to `rows` rows, with tables of
 * rotations that layers share, and returns what runs it.
 */
export function planPass<Run>(
  spec: ModelSpec,
  { products }: Pick<ModelPlaces, "products">,
  { rows, outputs, ropes = [] }: PlanSizes,
  placeAttention: (layer: number, layout: Layout, rotations: RotationPlaces | undefined) => Run,
): PassPlan<Run> {
  const stride = wholePanels(spec.dModel);
  const vocabulary = wholePanels(spec.vocabSize);
  const headRows = Math.min(outputs, Math.max(1, Math.floor(LOGIT_FLOATS / vocabulary)));
  const common = new Layout();
  const moes = spec.blocks.flatMap(({ mlp }) => (mlp?.kind === "moe" ? mlp : []));
  const dense = spec.blocks.flatMap(({ mlp }) => (mlp?.kind === "mlp" ? mlp : []));
  const mlps = [...dense, ...moes.flatMap(({ expert, shared }) => (shared ? [expert, shared.mlp] : expert))];
  const places = {
    ids: common.floats(rows),
    positions: common.floats(rows),
    residual: common.floats(rows * stride),
    normed: common.floats(rows * Math.max(stride, spec.embed.dim, wholePanels(spec.vectorDim ?? 0))),
    branch: common.floats(rows * Math.max(stride, spec.embed.dim)),
    shape: common.take(ROW_SHAPE_BYTES),
    streams: placeStreams(common, spec, rows, stride),
    layerInputs: common.floats(rows * wholePanels(spec.blocks.length * (spec.embed.perLayer?.dim ?? 0))),
    gates: common.floats(rows * Math.max(0, ...spec.blocks.filter(isGated).map(widthOfHeads).map(wholePanels))),
    linear: placeLinearScratch(common, products, rows),
  };
  const rotations = new Map<string | undefined, PassPlan["rotations"][number]>();
  const keys = ropes.map((rope) => JSON.stringify(rope));
  for (const [layer, rope] of ropes.entries())
    if (rope && !rotations.has(keys[layer]))
      rotations.set(keys[layer], { ...placeRotations(common, rope, rows), layer });
  const layouts: Layout[] = [];
  // What a branch works in is not needed by the next one, so that all of them lie at the same place.
  const next = () => {
    const layout = new Layout();
    layout.bytes = common.bytes;
    layouts.push(layout);
    return layout;
  };
  const attention = spec.blocks.map((_, layer) => placeAttention(layer, next(), rotations.get(keys[layer])));
  const [mlpLayout, headLayout] = [next(), next()];
  const plan = {
    ...{ rows, stride, headRows, attention, rotations: [...rotations.values()] },
    ...places,
    inner: placeInner(
      mlpLayout,
      mlps,
      [spec.embed.perLayer?.dim ?? 0, ...spec.blocks.map(({ lowRank = 0 }) => lowRank)],
      rows,
    ),
    moe: placeMoeRows(
      mlpLayout,
      moes,
      rows,
      stride,
      spec.blocks.some(({ norms }) => norms.expertsPre),
    ),
    narrow: headLayout.floats(headRows * wholePanels(spec.embed.dim)),
    logits: headLayout.floats(headRows * vocabulary),
    topValues: headLayout.floats(MOST_TOP),
    topIds: headLayout.floats(MOST_TOP),
  };
  return { ...plan, bytes: Math.max(...layouts.map(({ bytes }) => bytes)) };
}

// A layer.

/** The rows of a chunk between layers. */
export interface BlockRows {
  readonly residual: Rows;
  readonly normed: Rows;
  readonly branch: Rows;
}

/** The rows of a plan in scratch at `base`. */
export function blockRows(
  { residual, normed, branch, stride }: Pick<PassPlan, keyof BlockRows | "stride">,
  base: number,
): BlockRows {
  const rows = (place: number): Rows => ({ at: pointer.f32(base + place), stride });
  return { residual: rows(residual), normed: rows(normed), branch: rows(branch) };
}

/** What a layer computes of the outputs of its heads: a gate by the rows that attention read, and a norm. */
function finishHeads(
  work: RowWork,
  { attention: { config }, attentionGate, gatesHeads, norms }: PackedBlock,
  place: number,
  read: Rows,
  count: number,
): (heads: Rows) => Steps {
  const width = config.numHeads * config.valueDim;
  return function* (heads) {
    if (attentionGate) {
      const gates = { at: pointer.f32(work.base + place), stride: PANEL * attentionGate.panels };
      yield* projectRows(work, [attentionGate], gates, read, count);
      if (gatesHeads) gateHeads(work, heads, gates, config, count);
      else gateRows(work, heads, gates, width, count);
    }
    if (norms.attentionSub) normRows(work, norms.attentionSub, heads, heads, width, count);
  };
}

/** The factors of branches that have none. */
const PLAIN: BranchFactors["mlp"] = { added: 1, kept: 1 };

/** Runs a layer: attention and MLP, each of which is added to the residual, with the layer's norms. */
export function* runBlock<Call>(
  work: RowWork,
  block: PackedBlock,
  plan: Pick<PassPlan, "layerInputs" | "streams" | "gates" | "inner" | "moe">,
  attend: RunRows<Call>,
  runs: Runs<Call>,
  rows: BlockRows,
  count: number,
  attendCross?: (rows: { readonly x: Rows; readonly out: Rows }) => Steps,
): Steps {
  const { residual, normed, branch } = rows;
  const { norms, parallel, addsToNormed, scale, mlpScale = 1, factors, temperature, attentionGate, mlp, moe } = block;
  const { tap, maps, measure } = work;
  const width = block.attention.config.dModel;
  /** Applies a norm where the layer has it; else what it would have written is what it would have read. */
  const norm = (role: NormRole, to: Rows, from: Rows): Rows => {
    const own = norms[role];
    if (!own) return from;
    normRows(work, own, to, from, width, count);
    return to;
  };
  const add = (read: Rows, after: NormRole, factor = scale, { added, kept } = PLAIN) => {
    const to = addsToNormed ? read : residual;
    if (kept !== 1) work.kernels.table.cap_logits_f32(to.at, width, to.stride, kept, 0, 0, count);
    addRows(work, residual, to, branch, factor * added, count);
    norm(after, residual, residual);
  };

  const { streams } = block;
  if (streams) yield* predictStreams(work, streams, plan.streams, residual, normed, count);
  tap?.("residPre", residual);
  let read = norm("attentionPre", normed, residual);
  let undo = show(work, "attnIn", read, count);
  const { numHeads, headDim } = block.attention.config;
  const warm = temperature && warmQueries(work, temperature, numHeads * headDim);
  const finish = attentionGate || norms.attentionSub ? finishHeads(work, block, plan.gates, read, count) : undefined;
  yield* attend(work.base, work.stepFlops, runs, { x: read, out: branch, tap, maps, measure, warm, finish });
  undo?.();
  norm("attentionPost", branch, branch);
  tap?.("attnOut", branch);
  // In parallel layers the MLP reads what was before attention: by a norm of its own, or what attention read.
  if (parallel && norms.mlpPre) read = norm("mlpPre", normed, residual);
  add(read, "attentionAfter", scale, factors?.attention);
  if (block.lowRank) {
    const { down, up } = block.lowRank;
    const narrow = { at: pointer.f32(work.base + plan.inner), stride: PANEL * down.panels };
    yield* projectRows(work, [down], narrow, read, count);
    yield* projectRows(work, [up], branch, narrow, count);
    norm("lowRankPost", branch, branch);
    addRows(work, branch, branch, read, 1, count);
    addRows(work, residual, residual, branch, 1, count);
    work.kernels.table.cap_logits_f32(residual.at, width, residual.stride, ROOT_HALF, 0, 0, count);
  }
  if (attendCross) {
    read = norm("crossPre", normed, residual);
    yield* attendCross({ x: read, out: branch });
    add(read, "crossAfter");
  }
  if (!parallel) tap?.("residMid", residual);
  if (mlp || moe) {
    if (!parallel) read = norm("mlpPre", normed, residual);
    undo = show(work, "mlpIn", read, count);
    if (mlp) yield* runMlp(work, mlp, plan.inner, branch, read, count, norms.mlpSub);
    if (moe) yield* runMoe(work, moe, plan.moe, plan.inner, branch, read, count, residual, norms);
    undo?.();
    norm("mlpPost", branch, branch);
    tap?.("mlpOut", branch);
    add(read, "mlpAfter", scale * mlpScale, factors?.mlp);
  }
  const { outScale, layerInput } = block;
  if (streams) yield* correctStreams(work, streams, plan.streams, residual, normed, branch, count);
  if (layerInput) {
    yield* runLayerInput(work, layerInput, plan, branch, residual, count);
    norm("perLayerPost", branch, branch);
    if (streams) addToStreams(work, streams, plan.streams, branch, count);
    else addRows(work, residual, residual, branch, 1, count);
  }
  if (outScale !== 1) work.kernels.table.cap_logits_f32(residual.at, width, residual.stride, outScale, 0, 0, count);
  tap?.("residPost", residual);
}

/**
 * Shows the tap what a branch reads. These rows may be those of the residual, or be read again: what is returned undoes the tap's
 * changes, and is called behind the branch.
 */
function show(
  { tap, kernels }: RowWork,
  site: LayerSite,
  { at, stride }: Rows,
  count: number,
): (() => void) | undefined {
  if (!tap) return undefined;
  const { memory } = kernels;
  const kept = memory.f32(at, count * stride).slice();
  tap(site, { at, stride });
  return () => memory.f32(at, kept.length).set(kept);
}

// The MLP of a layer or of an expert, on rows in linear memory.

/** Places what the largest of these MLPs computes first, or one of so many `others`, in whole panels, for up to `rows` rows. */
function placeInner(layout: Layout, mlps: readonly MlpSpec[], others: readonly number[], rows: number): number {
  const strides = mlps.map(({ dim, gated }) => (gated ? 2 : 1) * wholePanels(dim));
  return layout.floats(rows * Math.max(...others.map(wholePanels), ...strides));
}

/** to = down(norm(act(gate(from)) · up(from))), where there is a norm; `inner` is the offset of what is between. */
function* runMlp(
  work: RowWork,
  mlp: PackedMlp,
  inner: number,
  to: Rows,
  from: Rows,
  rows: number,
  norm?: PackedNorm,
): Steps {
  const { dim, inputs, gated, activation, xielu, down } = mlp;
  const stride = PANEL * inputs.reduce((sum, { panels }) => sum + panels, 0);
  const first = { at: pointer.f32(work.base + inner), stride };
  yield* projectRows(work, inputs, first, from, rows);
  if (activation.sparse) sparsifyRows(work, activation.sparse, first, dim, rows);
  if (xielu) xieluRows(work, xielu, first, dim, rows);
  else activateRows(work, activation, first, gated ? pointer.f32(first.at + 4 * wholePanels(dim)) : NULL, dim, rows);
  if (norm) normRows(work, norm, first, first, dim, rows);
  yield* projectRows(work, [down], to, first, rows);
}

/** to = out(act(gate(from)) · input), with the layer's input of each row. */
function* runLayerInput(
  work: RowWork,
  { gate, out, activation, dim, first, stride }: PackedLayerInput,
  { inner, layerInputs }: Pick<PassPlan, "inner" | "layerInputs">,
  to: Rows,
  from: Rows,
  rows: number,
): Steps {
  const gates = { at: pointer.f32(work.base + inner), stride: PANEL * gate.panels };
  yield* projectRows(work, [gate], gates, from, rows);
  activateRows(work, activation, gates, pointer.f32(work.base + layerInputs + 4 * first), dim, rows, stride);
  yield* projectRows(work, [out], to, gates, rows);
}

// A mixture of experts on rows in linear memory: a router chooses, rows are gathered by expert, so that each expert is one
// product for all of its tokens, and outputs are added up expert after expert, in the order of their numbers. So a token's sum
// has one order, whatever other tokens there are.

/** Offsets of what a mixture works in. */
interface MoePlaces {
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
  /** What experts that are narrower than the model take: [rows, dim], in whole panels. */
  readonly narrow: number;
  /** What all experts give, if they are narrower or have norms of their own. */
  readonly sums: number;
}

/** Places what the largest of these mixtures works in, for up to `rows` rows of `stride` floats; `apart`: experts have norms. */
function placeMoeRows(
  layout: Layout,
  all: readonly MoeSpec[],
  rows: number,
  stride: number,
  apart: boolean,
): MoePlaces {
  const most = (of: (moe: MoeSpec) => number) => Math.max(0, ...all.map(of));
  const topK = most((spec) => spec.topK);
  const any = all.length > 0 ? 1 : 0;
  const narrow = wholePanels(most(({ dim = 0 }) => dim));
  return {
    // At least a panel, for the projection whose sigmoid scales shared outputs.
    logits: layout.floats(any * rows * wholePanels(most(({ experts }) => experts))),
    ids: layout.floats(rows * topK),
    weights: layout.floats(rows * topK),
    shape: layout.take(RouteShape.bytes),
    scratch: layout.floats(most(({ experts, router }) => experts + 3 * router.groups)),
    slots: layout.floats(rows * topK),
    gathered: layout.floats(any * rows * Math.max(stride, narrow)),
    outputs: layout.floats(any * rows * Math.max(stride, narrow)),
    narrow: layout.floats(rows * narrow),
    sums: layout.floats(rows * Math.max(narrow, apart ? stride : 0)),
  };
}

/**
 * to = the weighted outputs of each row's experts, plus those of the MLP that every row takes. With norms of their own, router and
 * experts read the residual instead of `from`, and `from` is overwritten.
 */
function* runMoe(
  work: RowWork,
  moe: PackedMoe,
  places: MoePlaces,
  inner: number,
  to: Rows,
  from: Rows,
  rows: number,
  residual: Rows,
  { routerPre, sharedPost, expertsPre, expertsPost }: PackedBlock["norms"],
): Steps {
  const { kernels, base } = work;
  const { memory, table } = kernels;
  const { topK, experts, narrow, scalesInputs } = moe;
  const dModel = moe.gate.k;
  yield* runShared(work, moe, places, inner, to, from, rows);
  if (sharedPost) normRows(work, sharedPost, to, to, dModel, rows);
  const logits = { at: pointer.f32(base + places.logits), stride: PANEL * moe.gate.panels };
  const routed = routerPre ? { at: pointer.f32(base + places.gathered), stride: from.stride } : from;
  if (routerPre) normRows(work, routerPre, routed, residual, dModel, rows);
  yield* projectRows(work, [moe.gate], logits, routed, rows);
  // The choice replaces them.
  const kept = scalesInputs && memory.f32(logits.at, rows * logits.stride).slice();
  chooseExperts(work, moe, places, logits, rows);
  const ids = memory.u32(base + places.ids, rows * topK);
  const slotsOf = bySlots(ids, experts.length);
  const shares =
    kept && Array.from(ids, (e, slot) => sigmoid(kept[Math.floor(slot / topK) * logits.stride + e] as number));
  if (shares) memory.f32(base + places.weights, rows * topK).fill(1);
  if (expertsPre) normRows(work, expertsPre, from, residual, dModel, rows);
  const slotsAt = modelPointer.i32(base + places.slots);
  const stride = narrow ? PANEL * narrow.in.panels : from.stride;
  const at = (place: number): Rows => ({ at: pointer.f32(base + place), stride });
  const taken = narrow ? at(places.narrow) : from;
  const sums = narrow || expertsPre ? at(places.sums) : to;
  if (narrow) yield* projectRows(work, [narrow.in], taken, from, rows);
  if (sums !== to) memory.f32(sums.at, rows * stride).fill(0);
  const [gathered, outputs] = [at(places.gathered), at(places.outputs)];
  for (const [e, slots] of slotsOf) {
    memory.u32(slotsAt, slots.length).set(slots);
    table.gather_rows_f32(gathered.at, taken.at, slotsAt, topK, stride, 0, slots.length);
    for (const [i, slot] of shares ? slots.entries() : []) {
      const row = pointer.f32(gathered.at + 4 * i * gathered.stride);
      table.cap_logits_f32(row, gathered.stride, gathered.stride, shares?.[slot] ?? 1, 0, 0, 1);
    }
    yield* runMlp(work, experts[e] as PackedMlp, inner, outputs, gathered, slots.length);
    const weights = pointer.f32(base + places.weights);
    table.scatter_rows_f32(sums.at, outputs.at, weights, slotsAt, topK, stride, 0, slots.length);
  }
  const given = narrow ? { at: outputs.at, stride: to.stride } : sums;
  if (narrow) yield* projectRows(work, [narrow.out], given, sums, rows);
  if (expertsPost) normRows(work, expertsPost, given, given, dModel, rows);
  if (given !== to) addRows(work, to, to, given, 1, rows);
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
  { topK, router, experts, correction, expertScales }: PackedMoe,
  places: MoePlaces,
  logits: Rows,
  rows: number,
): void {
  const { score, renormalise, scale, groups, keepGroups, pairs, jitter, logitScale = 1 } = router;
  if (logitScale !== 1) kernels.table.cap_logits_f32(logits.at, experts.length, logits.stride, logitScale, 0, 0, rows);
  if (jitter !== undefined) {
    const { memory } = kernels;
    for (let r = 0; r < rows; r++) {
      const own = mixSparsely(memory.f32(logits.at + 4 * r * logits.stride, experts.length), topK, jitter);
      memory.u32(base + places.ids + 4 * r * topK, topK).set(own.ids);
      memory.f32(base + places.weights + 4 * r * topK, topK).set(own.weights);
    }
    return;
  }
  const at = modelPointer.routeShape(base + places.shape);
  RouteShape.store(kernels.memory.view(), at, {
    ...{ experts: experts.length, topK, stride: logits.stride, groups, keepGroups, scale },
    sigmoid: score === "sigmoid" ? 1 : 0,
    pairs: pairs ? 1 : 0,
    renormalise: renormalise ? 1 : 0,
  });
  const [ids, weights] = [modelPointer.i32(base + places.ids), pointer.f32(base + places.weights)];
  kernels.table.route_f32(ids, weights, logits.at, pointer.f32(base + places.scratch), correction, at, 0, rows);
  if (expertScales === NULL) return;
  const scales = kernels.memory.f32(expertScales, experts.length);
  const chosen = kernels.memory.u32(ids, rows * topK);
  const shares = kernels.memory.f32(weights, rows * topK);
  for (const [slot, expert] of chosen.entries()) shares[slot] = (shares[slot] as number) * (scales[expert] as number);
}

/** The experts of a row and their weights, as `jitter` of RouterSpec says. */
function mixSparsely(logits: Float32Array, topK: number, jitter: number): { ids: number[]; weights: number[] } {
  const ids: number[] = [];
  const weights = Array.from({ length: topK }, () => {
    const left = [...logits.keys()].filter((e) => !ids.includes(e));
    // The first of equal ones; NaN is never larger.
    const best = left.reduce(
      (all, e) => ((logits[e] as number) > (logits[all] as number) ? e : all),
      left[0] as number,
    );
    const most = logits[best] as number;
    ids.push(best);
    const isNear = (x: number) => !((most - x) / Math.max(Math.abs(x), most) > 2 * jitter);
    const sum = left.reduce((sum, e) => sum + (isNear(logits[e] as number) ? exp((logits[e] as number) - most) : 0), 0);
    return 1 / sum;
  });
  return { ids, weights };
}

/** The places of each chosen expert in the list of choices, by ascending expert. */
function bySlots(ids: Uint32Array, experts: number): Map<number, number[]> {
  const all = Array.from({ length: experts }, (): number[] => []);
  for (const [slot, e] of ids.entries()) all[e]?.push(slot);
  return new Map([...all.entries()].filter(([, slots]) => slots.length > 0));
}
