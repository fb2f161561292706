// Mixers side by side: all of them read the same rows, and their outputs are added, each times a factor.

import { rowsIn } from "../../base/util/rows.ts";
import { type Layout, pointer } from "../../wasm/memory.ts";
import { KV_STATES } from "../attention/kv-state.ts";
import { wholePanels } from "../linear/formats.ts";
import type { BlockLayer, LayerState, Mixer, RunRows, StateCall, StateMaker } from "../mixer/mixer.ts";

/** A mixer, and what its outputs are multiplied by. */
interface ParallelPart {
  readonly layer: BlockLayer;
  readonly scale: number;
}

export interface ParallelLayer extends BlockLayer {
  readonly parts: readonly ParallelPart[];
}

/** What makes the state of a layer: by default keys and values. */
export const statesOf = ({ mixer }: BlockLayer): StateMaker => mixer.states ?? KV_STATES;

/** What each of the mixers keeps, as one state. */
class ParallelState implements LayerState {
  readonly parts: readonly LayerState[];
  readonly bytes: number;
  readonly formats: number;

  constructor(parts: readonly LayerState[]) {
    this.parts = parts;
    this.bytes = parts.reduce((sum, { bytes }) => sum + bytes, 0);
    this.formats = parts.reduce((all, { formats }) => all | formats, 0);
  }

  get forkBytes(): number {
    return this.parts.reduce((sum, { forkBytes }) => sum + forkBytes, 0);
  }

  mark(): void {
    for (const part of this.parts) part.mark?.();
  }

  begin(): void {
    for (const part of this.parts) part.begin();
  }

  settle(past: number): boolean {
    return this.parts.map((part) => part.settle(past)).every(Boolean);
  }

  commit(tokens: number): void {
    for (const part of this.parts) part.commit(tokens);
  }

  nearest(length: number, held: number): number {
    return nearestOf(this.parts, length, held);
  }

  expectTruncatable(length: number): void {
    for (const part of this.parts) part.expectTruncatable(length);
  }

  reserve(length: number): void {
    for (const part of this.parts) part.reserve(length);
  }

  truncate(length: number): void {
    for (const part of this.parts) part.truncate(length);
  }

  fork(where: string): this {
    return new ParallelState(openAll(this.parts, (part) => part.fork(where))) as this;
  }

  release(): void {
    for (const part of this.parts) part.release();
  }
}

/** The longest length up to `length` that all of these states can go back to once they hold `held` tokens. */
export function nearestOf(states: readonly LayerState[], length: number, held: number): number {
  for (let nearest = length; ; ) {
    const next = states.reduce((least, state) => state.nearest(least, held), nearest);
    if (next === nearest) return next;
    nearest = next;
  }
}

/** Opens a state, or what else holds memory, of each; if one fails, none stays. */
export function openAll<T, Opened extends { release(): void }>(all: readonly T[], open: (each: T) => Opened): Opened[] {
  const opened: Opened[] = [];
  try {
    for (const each of all) opened.push(open(each));
    return opened;
  } catch (error) {
    for (const state of opened) state.release();
    throw error;
  }
}

const STATES: StateMaker<ParallelLayer, ParallelState> = {
  bytes: (where, { parts }, maxSeqLen, options) =>
    parts.reduce((sum, { layer }) => sum + statesOf(layer).bytes(where, layer, maxSeqLen, options), 0),
  create: (where, { parts }, maxSeqLen, options) =>
    new ParallelState(openAll(parts, ({ layer }) => statesOf(layer).create(where, layer, maxSeqLen, options))),
};

/** Mixers side by side, in models. The tap and maps are those of the first one that has them. */
const PARALLEL: Mixer<ParallelLayer, ParallelState> = {
  callsOnlyKernels: ({ parts }, position) => parts.every(({ layer }) => layer.mixer.callsOnlyKernels(layer, position)),
  rope: ({ parts }) => parts.map(({ layer }) => layer.mixer.rope(layer)).find((rope) => rope !== undefined),
  linears: ({ parts }) => parts.flatMap(({ layer }) => layer.mixer.linears(layer)),
  chunkRows: ({ parts }, rows) => Math.min(...parts.map(({ layer }) => layer.mixer.chunkRows(layer, rows))),
  states: STATES,
  plan({ kernels, config, parts }, layout, rows, formats, reading, rotations) {
    const sum = placeParallelSum(layout, config.dModel, rows);
    const own = parts.map(({ layer, scale }, i) => ({
      ...{ i, scale },
      run: layer.mixer.plan(layer, layout, rows, formats, reading, rotations) as RunRows<StateCall>,
    }));
    return function* (base, stepFlops, runs, { x, out, ...rest }) {
      const count = rowsIn(runs);
      const branch = { at: pointer.f32(base + sum), stride: out.stride };
      for (const { i, scale, run } of own) {
        const states = runs.map((each) => ({
          ...each,
          of: { ...each.of, state: each.of.state.parts[i] as LayerState },
        }));
        yield* run(base, stepFlops, states, { x, out: i === 0 ? out : branch, ...(i === 0 && rest) });
        const { table } = kernels;
        if (i > 0) table.add_scaled_f32(out.at, out.at, branch.at, out.stride, scale, 0, count);
        else if (scale !== 1) table.cap_logits_f32(out.at, config.dModel, out.stride, scale, 0, 0, count);
      }
    };
  },
};

/** Places the outputs of a mixer before they are added. */
export const placeParallelSum = (layout: Layout, dModel: number, rows: number): number =>
  layout.floats(rows * wholePanels(dModel));

/** A layer of several, which releases them. */
export function createParallelLayer(parts: readonly ParallelPart[]): ParallelLayer {
  const [first] = parts as readonly [ParallelPart];
  const { kernels, config, pageShape, rotary } = first.layer;
  return {
    ...{ kind: "parallel", kernels, config, pageShape, rotary, parts, mixer: PARALLEL },
    bytes: parts.reduce((sum, { layer }) => sum + layer.bytes, 0),
    get released() {
      return first.layer.released;
    },
    release() {
      for (const { layer } of parts) layer.release();
    },
  };
}
