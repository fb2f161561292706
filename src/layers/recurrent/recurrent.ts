// Recurrent layers as a mixer: rows are projected, convolved along their sequence, and scanned; what the layer keeps of a sequence
// is the inputs of the convolution's last taps and the states of the heads.

import { ACT_GELU_TANH, ACT_SIGMOID, ACT_SWISH, PAGE } from "../../../assembly/layout.ts";
import type { RowRun } from "../../base/util/rows.ts";
import { rowsIn } from "../../base/util/rows.ts";
import type { Steps } from "../../base/util/steps.ts";
import {
  ActivationShape,
  ChannelScanShape,
  ConvShape,
  DecayShape,
  type F32Ptr,
  LinearAttentionShape,
  NULL,
  type Pointer,
} from "../../wasm/abi.ts";
import type { Kernels } from "../../wasm/kernels.ts";
import { type Layout, pointer } from "../../wasm/memory.ts";
import { checkConfig } from "../attention/config.ts";
import { normGroups } from "../attention/heads.ts";
import { type PackedLinear, wholePanels } from "../linear/formats.ts";
import { type LinearScratch, placeLinearScratch, prepareInput, project, type Rows } from "../linear/products.ts";
import type { BlockLayer, Mixer, StateCall, StateRuns } from "../mixer/mixer.ts";
import {
  type ChannelsConfig,
  convChannels,
  type PackedRecurrent,
  packRecurrent,
  type RecurrentConfig,
  type RecurrentMatrix,
  type RecurrentWeights,
  recurrentSizes,
  type ScanConfig,
  type ScanNorm,
  scanSizes,
} from "./config.ts";
import {
  RecurrentState,
  type Replay,
  recurrentStateBytes,
  type StatePart,
  type StateSizes,
  type Transition,
} from "./state.ts";

/** A recurrent layer in linear memory. */
export interface RecurrentLayer extends BlockLayer {
  readonly recurrent: RecurrentConfig;
  readonly packed: PackedRecurrent;
}

/** Where a layer works: offsets in scratch, and the floats between rows. */
interface Places {
  readonly stride: { readonly in: number; readonly conv: number; readonly values: number; readonly decays: number };
  readonly in: number;
  readonly conv: number;
  readonly gate: number;
  readonly low: number;
  readonly step: number;
  readonly decay: number;
  readonly write: number;
  readonly heads: number;
  readonly shape: number;
  readonly linear: LinearScratch;
}

const SHAPE_BYTES = /* @__PURE__ */ Math.max(
  ActivationShape.bytes,
  ChannelScanShape.bytes,
  ConvShape.bytes,
  DecayShape.bytes,
  LinearAttentionShape.bytes,
);

const linearsOf = ({ packed }: RecurrentLayer): PackedLinear[] =>
  Object.values(packed.linears).filter((each): each is PackedLinear => each !== undefined);

export function stateSizes(config: RecurrentConfig): StateSizes {
  const { taps } = config;
  const channels = convChannels(config);
  const before = Math.max(0, taps - 1);
  const { state, outputs } = scanned(config);
  return {
    inputs: before * channels,
    scan: state,
    rows: { inputs: before && channels, scan: rowPlaces(config).floats },
    work: SHAPE_BYTES / 4 + outputs,
  };
}

/** The floats of the state of a scan, and of a row of its outputs. */
function scanned(config: RecurrentConfig): { readonly state: number; readonly outputs: number } {
  const { scan, channels } = config;
  if (scan) return { state: scanSizes(scan).state, outputs: scanSizes(scan).values };
  const width = channels ? convChannels(config) : 0;
  return { state: (channels?.stateDim ?? 0) * width, outputs: width };
}

/**
 * A row that a scan reads, as it is kept: of heads, queries, keys and values, decays, and what values are written times; of channels,
 * their inputs and steps, and keys and queries, or what inputs are written times.
 */
function rowPlaces(config: RecurrentConfig) {
  const { scan, channels } = config;
  if (scan) {
    const { channels: mixed, decays } = scanSizes(scan);
    return { second: mixed, third: mixed + decays, floats: mixed + decays + scan.numHeads };
  }
  if (!channels) return { second: 0, third: 0, floats: 0 };
  const width = convChannels(config);
  const third = 2 * width;
  return { second: width, third, floats: third + (channels.kind === "selective" ? 2 * channels.stateDim : width) };
}

/** Goes over rows that were kept, as a call has gone over them. */
function replayRows({ kernels, recurrent, packed }: RecurrentLayer): Replay {
  const { scan, channels: own } = recurrent;
  const channels = convChannels(recurrent);
  const { second, third, floats } = rowPlaces(recurrent);
  return (part, rows, count, { from, to, work, first }) => {
    const at = (place: number, row = 0): Rows => ({
      at: pointer.f32(rows + 4 * (row * floats + place)),
      stride: floats,
    });
    const out = { at: pointer.f32(work + SHAPE_BYTES), stride: 0 };
    if (part === "inputs") {
      const held = kernels.memory.f32(to, stateSizes(recurrent).inputs);
      const earlier = kernels.memory.f32(from, held.length);
      const later = kernels.memory.f32(rows, count * channels);
      // The last inputs, as many as are held.
      const kept = earlier.subarray(Math.min(count * channels, held.length));
      held.set(kept);
      held.set(later.subarray(Math.max(0, later.length - held.length)), kept.length);
    } else if (scan) {
      const given = { mixed: at(0), decay: at(second), write: at(third), out };
      scanRows(kernels, scan, packed, work, count, given, { from, to });
    } else if (own)
      // One by one: outputs have the stride of inputs, and are not needed.
      for (let row = 0; row < count; row++) {
        const given = { mixed: at(0, row), step: at(second, row), third: at(third, row), out };
        const places = { from: row === 0 ? from : to, to, first: first && row === 0 };
        scanChannels(kernels, own, channels, packed, work, 1, given, places);
      }
  };
}

/** Recurrent layers in models. */
export const RECURRENT: Mixer<RecurrentLayer, RecurrentState> = {
  callsOnlyKernels: () => true,
  rope: () => undefined,
  linears: linearsOf,
  chunkRows: (_, rows) => rows,
  states: {
    bytes: (_where, { recurrent }, maxSeqLen) => recurrentStateBytes(stateSizes(recurrent), maxSeqLen),
    create: (where, layer, maxSeqLen) =>
      new RecurrentState(where, layer.kernels, stateSizes(layer.recurrent), maxSeqLen, replayRows(layer)),
  },
  plan(layer, layout, rows) {
    const places = placeRecurrentRows(layer.recurrent, layer.packed.linears, layout, rows);
    return (base, stepFlops, runs, { x, out }) => runRows({ layer, places, base, stepFlops }, runs, x, out);
  },
};

/**
 * Places what a layer works in for chunks of up to `rows` rows, by the sizes and formats of its matrices.
 */
export function placeRecurrentRows(
  config: RecurrentConfig,
  linears: Readonly<Partial<Record<RecurrentMatrix, Pick<PackedLinear, "k" | "format">>>>,
  layout: Layout,
  rows: number,
): Places {
  const { scan } = config;
  const own = scan && scanSizes(scan);
  const channels = convChannels(config);
  const sizes = recurrentSizes(config);
  const lows = [sizes.gateDown, sizes.stepDown, sizes.select];
  const low = Math.max(0, ...lows.map((size) => wholePanels(size?.n ?? 0)));
  const stride = {
    // The last channels of a row, which are of a multiple of four, may reach into the next row.
    in: wholePanels((sizes.in?.n ?? 0) + 4),
    conv: wholePanels(channels),
    values: wholePanels(own ? own.values : channels),
    decays: wholePanels(own && scan ? Math.max(own.decays, scan.numHeads) : (config.channels?.width ?? 0)),
  };
  return {
    stride,
    in: layout.floats(rows * stride.in),
    conv: layout.floats(rows * stride.conv),
    gate: layout.floats(sizes.gate ? rows * stride.values : 0),
    low: layout.floats(rows * low),
    step: layout.floats(rows * stride.decays),
    decay: layout.floats(scan ? rows * stride.decays : 0),
    write: layout.floats(sizes.write ? rows * stride.decays : 0),
    heads: layout.floats(scan || config.channels ? rows * stride.values : 0),
    shape: layout.take(SHAPE_BYTES),
    linear: placeLinearScratch(layout, Object.values(linears), rows),
  };
}

interface Work {
  readonly layer: RecurrentLayer;
  readonly places: Places;
  readonly base: number;
  readonly stepFlops: number;
}

type Run = RowRun<StateCall<RecurrentState>>;

/** Runs the layer on the rows of a chunk. */
function* runRows(work: Work, runs: StateRuns<RecurrentState>, x: Rows, out: Rows): Steps {
  const { layer, places, base } = work;
  const { recurrent, packed } = layer;
  const { linears } = packed;
  const { stride } = places;
  const rows = rowsIn(runs);
  const projected = { at: pointer.f32(base + places.in), stride: stride.in };
  yield* projectRows(work, [[linears.in, projected]], x, rows);
  const convolved = { at: pointer.f32(base + places.conv), stride: stride.conv };
  const { scan, channels } = recurrent;
  let mixed = recurrent.taps > 0 ? convolved : projected;
  if (recurrent.taps > 0) for (const run of runs) yield* convolve(work, run, projected, convolved);
  else activate(work, ACT_SWISH, projected, undefined, linears.in.panels * 8, rows);
  if (scan) {
    yield* prepareScan(work, scan, mixed, x, rows);
    for (const run of runs) yield* scanRun(work, scan, run, mixed);
    mixed = { at: pointer.f32(base + places.heads), stride: stride.values };
    finishScan(work, scan, mixed, rows);
  }
  if (channels) mixed = yield* runChannels(work, channels, runs, mixed, x, rows);
  yield* projectRows(work, [[linears.out, out]], mixed, rows);
}

/** Multiplies rows with matrices of the same inputs. */
function* projectRows(work: Work, all: readonly (readonly [PackedLinear, Rows])[], x: Rows, rows: number): Steps {
  const { layer, places, base, stepFlops } = work;
  const { kernels, packed } = layer;
  const linears = all.map(([linear]) => linear);
  const input = prepareInput(kernels, linears, x, rows, packed.mode, places.linear, base);
  for (const [linear, to] of all) yield* project(kernels, linear, to, input, rows, stepFlops);
}

/** gate = act(gate) · up, or act(gate), in place of `up` where it is given. */
function activate(work: Work, kind: number, gate: Rows, up: Rows | undefined, n: number, rows: number): void {
  const { layer, places, base } = work;
  const { memory, table } = layer.kernels;
  const shape = (base + places.shape) as Pointer<ActivationShape>;
  const to = up ?? gate;
  const strides = { outStride: to.stride, gateStride: gate.stride, upStride: to.stride };
  ActivationShape.store(memory.view(), shape, { kind, n, ...strides, alpha: 1, limit: 0 });
  table.activate_f32(to.at, gate.at, up ? up.at : NULL, shape, 0, rows);
}

/** Rows begin..end of a run, cut where a checkpoint lies; `at` is the first one's row in the chunk, `position` its token's. */
function* segmentsOf({
  of,
  begin,
  end,
  at,
}: Run): Generator<{ at: number; position: number; rows: number }, void, void> {
  const { past } = of.tokens;
  for (let from = begin; from < end; ) {
    const to = Math.min(end, PAGE * (1 + Math.floor((past + from) / PAGE)) - past);
    yield { at: at + from - begin, position: past + from, rows: to - from };
    from = to;
  }
}

/** Runs `step` on the segments of a run: it brings a part of the state from one place to another. `keepRow` keeps what does. */
function* advance(
  run: Run,
  part: StatePart,
  keepRow: (to: Float32Array, row: number) => void,
  step: (at: number, rows: number, from: F32Ptr, to: F32Ptr, first: boolean) => number,
): Steps {
  const { state, tokens } = run.of;
  for (const { at, position, rows } of segmentsOf(run)) {
    const { from, to } = state.transition(part, position === tokens.past);
    const flops = step(at, rows, pointer.f32(from), pointer.f32(to), position === 0);
    for (let row = 0; row < rows; row++) {
      const to = state.rowAt(part, position - tokens.past + row, tokens.qLen);
      if (to) keepRow(to, at + row);
    }
    state.keep(part, position + rows);
    yield flops;
  }
}

const placed = (base: number, at: number, stride: number): Rows => ({ at: pointer.f32(base + at), stride });
/** All of these from a row on. */
const rowsOfAll = <Name extends string>(all: Readonly<Record<Name, Rows>>, row: number): Record<Name, Rows> =>
  Object.fromEntries(
    Object.entries<Rows>(all).map(([name, rows]) => [name, { at: rowAt(rows, row), stride: rows.stride }]),
  ) as Record<Name, Rows>;
const rowAt = ({ at, stride }: Rows, row: number, column = 0): F32Ptr => pointer.f32(at + 4 * (row * stride + column));

/** The convolution of a run's rows: between two factors, or with SiLU before a scan, except a gated one of channels. */
function* convolve(work: Work, run: Run, from: Rows, to: Rows): Steps {
  const { layer, places, base } = work;
  const { recurrent, packed, kernels } = layer;
  const { dModel, taps, scan, channels: own } = recurrent;
  const channels = convChannels(recurrent);
  const isAlone = !scan && !own;
  const silu = scan || own?.kind === "selective" ? 1 : 0;
  const shape = (base + places.shape) as Pointer<ConvShape>;
  const floatsAt = (row: number, column = 0) => kernels.memory.f32(rowAt(from, row, column), channels);
  const keepRow = (to: Float32Array, row: number) => {
    const factors = floatsAt(row);
    // The product of two float32 is exact in float64, so that storing it rounds as the kernel does.
    if (!isAlone) to.set(factors);
    else for (const [i, x] of floatsAt(row, 2 * dModel).entries()) to[i] = x * (factors[i] as number);
  };
  yield* advance(run, "inputs", keepRow, (at, rows, before, state) => {
    const [b, c, x] = [rowAt(from, at), rowAt(from, at, dModel), rowAt(from, at, 2 * dModel)];
    ConvShape.store(kernels.memory.view(), shape, {
      ...{ rows, channels, taps, xStride: from.stride, outStride: to.stride, silu, from: before },
      ...(isAlone ? { before: b, after: c } : { before: NULL, after: NULL }),
    });
    const { conv, convBias } = packed.vectors;
    kernels.table.causal_conv_f32(rowAt(to, at), isAlone ? x : b, state, conv as F32Ptr, convBias, shape, 0, channels);
    return 2 * rows * channels * (taps + 4);
  });
}

/** What a scan needs besides its rows: queries and keys of length 1, decays, factors, and the gate. */
function* prepareScan(work: Work, scan: ScanConfig, mixed: Rows, x: Rows, rows: number): Steps {
  const { layer, places, base } = work;
  const { packed, kernels } = layer;
  const { linears, vectors } = packed;
  const { memory, table } = kernels;
  const { stride } = places;
  const sizes = scanSizes(scan);
  const [step, decay, write] = [places.step, places.decay, places.write].map((at) =>
    placed(base, at, stride.decays),
  ) as [Rows, Rows, Rows];
  const gate = placed(base, places.gate, stride.values);
  const { unitEps, keyDim, numKeyHeads } = scan;
  if (unitEps !== undefined)
    for (const first of [sizes.q, sizes.k]) {
      const own = { at: rowAt(mixed, 0, first), stride: mixed.stride };
      normGroups(kernels, own, rows, numKeyHeads, keyDim, vectors.unit as F32Ptr, unitEps / keyDim);
    }
  const direct: [PackedLinear, Rows][] = [];
  if (linears.write) direct.push([linears.write, write]);
  if (linears.step && !linears.stepDown) direct.push([linears.step, step]);
  if (linears.gate && !linears.gateDown) direct.push([linears.gate, gate]);
  if (direct.length > 0) yield* projectRows(work, direct, x, rows);
  for (const [down, up, to] of [
    [linears.stepDown, linears.step, step],
    [linears.gateDown, linears.gate, gate],
  ] as const) {
    if (!down || !up) continue;
    const low = placed(base, places.low, 8 * down.panels);
    yield* projectRows(work, [[down, low]], x, rows);
    yield* projectRows(work, [[up, to]], low, rows);
  }
  if (linears.gate && scan.gateScale !== 1)
    table.cap_logits_f32(gate.at, sizes.values, gate.stride, scan.gateScale, 0, 0, rows);
  if (linears.step) {
    if (scan.stepScale !== 1) table.cap_logits_f32(step.at, sizes.decays, step.stride, scan.stepScale, 0, 0, rows);
    const shape = (base + places.shape) as Pointer<DecayShape>;
    const [low, high] = scan.steps;
    const { decays: n } = sizes;
    DecayShape.store(memory.view(), shape, { n, xStride: step.stride, outStride: step.stride, low, high });
    const { stepBias, rate } = vectors;
    table.decay_f32(decay.at, step.at, step.at, stepBias as F32Ptr, rate as F32Ptr, shape, 0, rows);
  }
  if (linears.write) {
    activate(work, ACT_SIGMOID, write, undefined, scan.numHeads, rows);
    if (scan.write === "double-sigmoid") table.cap_logits_f32(write.at, scan.numHeads, write.stride, 2, 0, 0, rows);
  }
}

/** The scan of a run's rows. */
function* scanRun(work: Work, scan: ScanConfig, run: Run, mixed: Rows): Steps {
  const { layer, places, base } = work;
  const { packed, kernels } = layer;
  const { numHeads, keyDim, valueDim, delta } = scan;
  const { channels, decays } = scanSizes(scan);
  const { stride } = places;
  const all = {
    mixed,
    decay: placed(base, places.decay, stride.decays),
    write: placed(base, packed.linears.write ? places.write : places.step, stride.decays),
    out: placed(base, places.heads, stride.values),
  };
  const keepRow = (to: Float32Array, row: number) => {
    const own = rowPlaces(layer.recurrent);
    to.set(kernels.memory.f32(rowAt(mixed, row), channels));
    to.set(kernels.memory.f32(rowAt(all.decay, row), decays), own.second);
    to.set(kernels.memory.f32(rowAt(all.write, row), numHeads), own.third);
  };
  yield* advance(run, "scan", keepRow, (at, rows, before, state) => {
    scanRows(kernels, scan, packed, base + places.shape, rows, rowsOfAll(all, at), { from: before, to: state });
    return rows * numHeads * keyDim * valueDim * (delta ? 8 : 5);
  });
}

/** Scans `rows` rows. Decays and factors are those given, where the layer computes them of rows. */
function scanRows(
  { memory, table }: Kernels,
  scan: ScanConfig,
  { linears, vectors }: PackedRecurrent,
  shapeAt: number,
  rows: number,
  { mixed, decay, write, out }: Readonly<Record<"mixed" | "decay" | "write" | "out", Rows>>,
  { from, to }: Transition,
): void {
  const { numHeads, numKeyHeads, turns, keyDim, valueDim, delta, scale } = scan;
  const { q, k, v } = scanSizes(scan);
  const shape = shapeAt as Pointer<LinearAttentionShape>;
  LinearAttentionShape.store(memory.view(), shape, {
    ...{ rows, keyDim, valueDim, keyHeads: numKeyHeads, group: turns ? 0 : numHeads / numKeyHeads },
    ...{ scale, from: pointer.f32(from), delta: delta ? 1 : 0 },
    ...{ keyStride: mixed.stride, valueStride: mixed.stride, outStride: out.stride },
    decay: linears.step ? decay.at : (vectors.rate as F32Ptr),
    decayStride: linears.step ? decay.stride : 0,
    perChannel: scan.decay === "channel" ? 1 : 0,
    beta: scan.write === "whole" ? NULL : write.at,
    betaStride: write.stride,
    skip: vectors.skip,
  });
  const [queries, keys, values] = [q, k, v].map((column) => rowAt(mixed, 0, column)) as [F32Ptr, F32Ptr, F32Ptr];
  table.linear_attention_f32(out.at, pointer.f32(to), queries, keys, values, shape, 0, numHeads);
}

/** The scan of channels of all runs, times the gate. */
function* runChannels(
  work: Work,
  own: ChannelsConfig,
  runs: StateRuns<RecurrentState>,
  mixed: Rows,
  x: Rows,
  rows: number,
): Steps<Rows> {
  const { layer, places, base } = work;
  const { packed, kernels } = layer;
  const { kind, width, stateDim, stepRank, eps } = own;
  const { linears, vectors } = packed;
  const { table, memory } = kernels;
  const { stride } = places;
  const [step, write] = [placed(base, places.step, stride.decays), placed(base, places.write, stride.decays)];
  const [gate, heads] = [placed(base, places.gate, stride.values), placed(base, places.heads, stride.values)];
  const { select, step: toStep, write: toWrite, gate: toGate } = linears as Required<typeof linears>;
  const low = placed(base, places.low, select ? 8 * select.panels : 0);
  yield* projectRows(work, [[toGate, gate]], x, rows);
  if (kind === "selective") {
    yield* projectRows(work, [[select, low]], mixed, rows);
    for (const [gain, first, n] of [
      [vectors.stepNorm, 0, stepRank],
      [vectors.keyNorm, stepRank, stateDim],
      [vectors.queryNorm, stepRank + stateDim, stateDim],
    ] as const) {
      const at = rowAt(low, 0, first);
      if (eps !== undefined) table.rms_norm_f32(at, at, gain as F32Ptr, n, low.stride, eps, 0, rows);
    }
    yield* projectRows(work, [[toStep, step]], low, rows);
  } else
    yield* projectRows(
      work,
      [
        [toStep, step],
        [toWrite, write],
      ],
      mixed,
      rows,
    );
  const channels = convChannels(layer.recurrent);
  const isSelective = kind === "selective";
  // Keys and queries follow each other.
  const third = isSelective ? { at: rowAt(low, 0, stepRank), stride: low.stride } : write;
  const { second, third: thirdAt, floats } = rowPlaces(layer.recurrent);
  const keepRow = (to: Float32Array, row: number) => {
    to.set(memory.f32(rowAt(mixed, row), channels));
    to.set(memory.f32(rowAt(step, row), channels), second);
    to.set(memory.f32(rowAt(third, row), floats - thirdAt), thirdAt);
  };
  for (const run of runs)
    yield* advance(run, "scan", keepRow, (at, count, from, to, first) => {
      const given = rowsOfAll({ mixed, step, third, out: heads }, at);
      scanChannels(kernels, own, channels, packed, base + places.shape, count, given, { from, to, first });
      return 16 * count * width * (stateDim + 2);
    });
  activate(work, isSelective ? ACT_SWISH : ACT_GELU_TANH, gate, heads, width, rows);
  return heads;
}

/** Scans `rows` rows of channels; `first`: they begin a sequence. `third` are keys and queries, or what inputs are written times. */
function scanChannels(
  { memory, table }: Kernels,
  { kind, stateDim }: ChannelsConfig,
  channels: number,
  { vectors }: PackedRecurrent,
  shapeAt: number,
  rows: number,
  { mixed, step, third, out }: Readonly<Record<"mixed" | "step" | "third" | "out", Rows>>,
  { from, to, first }: Transition & { readonly first: boolean },
): void {
  const isSelective = kind === "selective";
  const shape = shapeAt as Pointer<ChannelScanShape>;
  ChannelScanShape.store(memory.view(), shape, {
    ...{ rows, channels, stateDim, stride: mixed.stride, stepStride: step.stride, keyStride: third.stride },
    ...{ first: first ? 1 : 0, from: pointer.f32(from), rate: vectors.rate as F32Ptr, skip: vectors.skip },
    k: isSelective ? third.at : NULL,
    q: isSelective ? rowAt(third, 0, stateDim) : NULL,
    write: isSelective ? NULL : third.at,
  });
  table.channel_scan_f32(out.at, pointer.f32(to), mixed.at, step.at, shape, 0, channels);
}

/** The gate and the norm of a scan's outputs, in place. */
function finishScan(work: Work, scan: ScanConfig, heads: Rows, rows: number): void {
  const { layer, places, base } = work;
  const { norm, gate } = scan;
  const { values } = scanSizes(scan);
  const applyGate = () => {
    if (!gate) return;
    const gates = { at: pointer.f32(base + places.gate), stride: places.stride.values };
    activate(work, gate === "silu" ? ACT_SWISH : ACT_SIGMOID, gates, heads, values, rows);
  };
  if (norm?.gateFirst !== false) applyGate();
  if (norm) normScan(layer, norm, heads, values / norm.groups, rows);
  if (norm?.gateFirst === false) applyGate();
}

/** RMS norm of each of `groups` groups of n outputs, in place. */
function normScan(
  { kernels, packed }: RecurrentLayer,
  { groups, eps, shared }: ScanNorm,
  heads: Rows,
  n: number,
  rows: number,
): void {
  const { table } = kernels;
  const gain = packed.vectors.norm as F32Ptr;
  if (shared) normGroups(kernels, heads, rows, groups, n, gain, eps);
  else
    for (let group = 0; group < groups; group++) {
      const at = rowAt(heads, 0, group * n);
      table.rms_norm_f32(at, at, pointer.f32(gain + 4 * group * n), n, heads.stride, eps, 0, rows);
    }
}

/** Packs a layer. */
export function createRecurrentLayer(
  where: string,
  kernels: Kernels,
  recurrent: RecurrentConfig,
  weights: RecurrentWeights,
  options: Parameters<typeof packRecurrent>[4],
): RecurrentLayer {
  const packed = packRecurrent(where, kernels, recurrent, weights, options);
  const { dModel } = recurrent;
  let released = false;
  return {
    ...{ kind: "recurrent", kernels, recurrent, packed, mixer: RECURRENT, rotary: undefined, bytes: packed.bytes },
    // What those see who know no more of a layer than its sizes: it has no heads of attention, and no pages.
    config: checkConfig(where, { dModel, numHeads: 1, causal: true }),
    pageShape: { numKvHeads: 0, headDim: 0, valueDim: 0 },
    get released() {
      return released;
    },
    release() {
      if (!released && !kernels.released) kernels.memory.free(packed.at);
      released = true;
    },
  };
}
