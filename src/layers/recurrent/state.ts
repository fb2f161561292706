// What a recurrent layer keeps of a sequence: a state of a fixed number of bytes, and earlier ones to go back to.

import { PAGE } from "../../../assembly/layout.ts";
import { readFields } from "../../base/util/arguments.ts";
import type { Kernels } from "../../wasm/kernels.ts";
import { aligned, Layout } from "../../wasm/memory.ts";
import type { LayerState } from "../mixer/mixer.ts";
import {
  type CachePage,
  contentOf,
  listOf,
  type PageFacts,
  readPage,
  refusePages,
  STATE_FORMATS,
  writePage,
} from "../state/export.ts";

/** The parts of a state, which a call computes one after the other. */
export type StatePart = "inputs" | "scan";

/** What a state consists of, in floats. */
export interface StateSizes extends Readonly<Record<StatePart, number>> {
  /** What moves each part on by a row. */
  readonly rows: Readonly<Record<StatePart, number>>;
  /** What `Replay` works in. */
  readonly work: number;
}

/**
 * Brings a part that lies at `from` to `to`, over `count` rows of what moves it on, which lie at `rows`; `first`: they begin a
 * sequence.
 */
export type Replay = (
  part: StatePart,
  rows: number,
  count: number,
  places: Transition & { readonly work: number; readonly first: boolean },
) => void;

/** Where a state lies: before a row, and behind it. */
export interface Transition {
  readonly from: number;
  readonly to: number;
}

/** Rows of a call, at most, of which each can be gone back to, because what moved the state on is kept. */
const KEPT_ROWS = 16;

/**
 * Checkpoints lie at multiples of PAGE tokens. Slot i has the last multiple of PAGE · 2^i that is none of PAGE · 2^(i + 1), and the
 * last slot that of its multiple: so the way back to a length is at most about as long again as what was cut off.
 */
const slotsOf = (maxSeqLen: number): number => (maxSeqLen < PAGE ? 0 : 32 - Math.clz32(Math.floor(maxSeqLen / PAGE)));

/** The slot of a checkpoint at `length`, a multiple of PAGE. */
function slotOf(length: number, slots: number): number {
  const pages = length / PAGE;
  return Math.min(slots - 1, 31 - Math.clz32(pages & -pages));
}

/** The offsets of what lies behind `places` states: the kept rows, and what `Replay` works in. */
function placeRows({ rows, work }: StateSizes, places: number, size: number) {
  const layout = new Layout();
  layout.take(places * size);
  const inputs = layout.floats(KEPT_ROWS * rows.inputs);
  const scan = layout.floats(KEPT_ROWS * rows.scan);
  return { inputs, scan, work: layout.floats(work), bytes: layout.bytes };
}

/** States: what is held, what a call computes, checkpoints, and the one of `mark`. */
const placesOf = (maxSeqLen: number): number => 3 + slotsOf(maxSeqLen);

/** Bytes of linear memory of a state, and of the rows that it keeps. */
export function recurrentStateBytes(sizes: StateSizes, maxSeqLen: number): number {
  return placeRows(sizes, placesOf(maxSeqLen), stride(sizes)).bytes;
}

const stride = ({ inputs, scan }: StateSizes): number => aligned(4 * inputs) + aligned(4 * scan);

/**
 * The state of a recurrent layer. A call reads what is held and writes beside it, so that an aborted one changes nothing; `commit`
 * exchanges both. Behind a call of few rows, any of them can be gone back to: from the state before it, over the rows that are kept.
 * A call that is aborted behind a multiple of PAGE may have taken the place of an earlier checkpoint, which is lost.
 */
export class RecurrentState implements LayerState {
  readonly formats = 0;
  readonly bytes: number;
  readonly sizes: StateSizes;
  private readonly kernels: Kernels;
  private readonly maxSeqLen: number;
  private readonly replay: Replay;
  private readonly block: number;
  private readonly rows: ReturnType<typeof placeRows>;
  /** The lengths of the checkpoints, and of the mark behind them; 0: none. */
  private readonly lengths: number[];
  private held = 0;
  /** The length before the last call, whose state is still there; undefined once the next one writes. */
  private previous: number | undefined;
  /** Which of the two first places holds the state. */
  private place = 0;

  constructor(where: string, kernels: Kernels, sizes: StateSizes, maxSeqLen: number, replay: Replay) {
    this.kernels = kernels;
    this.sizes = sizes;
    this.maxSeqLen = maxSeqLen;
    this.replay = replay;
    this.rows = placeRows(sizes, placesOf(maxSeqLen), stride(sizes));
    this.bytes = this.rows.bytes;
    this.block = kernels.memory.allocate(where, this.bytes);
    this.lengths = new Array(1 + slotsOf(maxSeqLen)).fill(0);
    this.bytesAt(0).fill(0);
  }

  /** Where a part lies in place `index`: two by turns, then the checkpoints. */
  private at(part: StatePart, index: number): number {
    const base = this.block + index * stride(this.sizes);
    return part === "inputs" ? base : base + aligned(4 * this.sizes.inputs);
  }

  private bytesAt(index: number): Uint8Array {
    return this.kernels.memory.u8(this.block + index * stride(this.sizes), stride(this.sizes));
  }

  get forkBytes(): number {
    return this.bytes;
  }

  get turn(): number {
    return this.place;
  }

  /** Where a call reads a part, and where it writes it; `first`: before its first row. */
  transition(part: StatePart, first: boolean): Transition {
    const to = this.at(part, 1 - this.place);
    this.previous = undefined;
    return { from: first ? this.at(part, this.place) : to, to };
  }

  /** Where what moves a part on at row `row` of a call of `count` is to be written; undefined if it is not kept. */
  rowAt(part: StatePart, row: number, count: number): Float32Array | undefined {
    const floats = this.sizes.rows[part];
    // A single row leads from a state that is there to one that is there.
    if (floats === 0 || count === 1 || count > KEPT_ROWS) return undefined;
    return this.kernels.memory.f32(this.block + this.rows[part] + 4 * row * floats, floats);
  }

  /** Keeps a part that a call has brought to `position`, if that is a checkpoint's. The scan is the last part. */
  keep(part: StatePart, position: number): void {
    if (position % PAGE !== 0) return;
    const slot = slotOf(position, this.slots);
    const floats = this.sizes[part];
    const from = this.kernels.memory.f32(this.at(part, 1 - this.place), floats);
    this.kernels.memory.f32(this.at(part, 2 + slot), floats).set(from);
    this.lengths[slot] = position;
  }

  /** The parts of the state of a length that it holds, or has a checkpoint of; undefined for others. */
  partsAt(length: number): Uint8Array[] | undefined {
    const place = length === this.held ? this.place : 2 + this.lengths.indexOf(length);
    if (length === 0 || (length !== this.held && place < 2)) return undefined;
    const { memory } = this.kernels;
    return (["inputs", "scan"] as const).map((part) => memory.u8(this.at(part, place), 4 * this.sizes[part]));
  }

  /** Makes a checkpoint of a state that comes from elsewhere; `held`: makes it what is held. The caller fills its parts. */
  admit(length: number, held: boolean): Uint8Array[] {
    if (held) this.held = length;
    else this.lengths[slotOf(length, this.slots)] = length;
    return this.partsAt(length) as Uint8Array[];
  }

  private get slots(): number {
    return this.lengths.length - 1;
  }

  mark(): void {
    this.bytesAt(2 + this.slots).set(this.bytesAt(this.place));
    this.lengths[this.slots] = this.held;
  }

  begin(): void {
    for (const [slot, length] of this.lengths.entries()) if (length > this.held) this.lengths[slot] = 0;
  }

  settle(past: number): boolean {
    this.previous = undefined;
    // The last token of a page leaves a checkpoint.
    return (past | 1) % PAGE !== PAGE - 1;
  }

  commit(tokens: number): void {
    if (tokens === 0) return;
    this.previous = this.held;
    this.held += tokens;
    this.place = 1 - this.place;
  }

  nearest(length: number, held: number): number {
    if (length >= held) return held;
    const before = this.held === held ? this.previous : this.held;
    if (before !== undefined && length >= before && held - before <= KEPT_ROWS) return length;
    const lengths = [...this.lengths, before ?? 0];
    // Those that are to come take the places of others.
    for (let next = PAGE * (1 + Math.floor(this.held / PAGE)); next <= held; next += PAGE)
      lengths[slotOf(next, this.slots)] = next;
    return Math.max(0, ...lengths.filter((each) => each <= length && each <= held));
  }

  expectTruncatable(length: number): void {
    const { held, previous = held } = this;
    const all = previous < held && held - previous <= KEPT_ROWS;
    const kept = [0, ...this.lengths, previous, held].filter((each) => each <= (all ? previous : held));
    if (kept.includes(length) || (all && Number.isInteger(length) && length > previous && length <= held)) return;
    const rule = [...new Set(kept)].sort((a, b) => a - b).join(", ") + (all ? ` to ${held}` : "");
    throw new RangeError(`truncate: length expected one of ${rule}, got ${length}`);
  }

  reserve(): void {}

  truncate(length: number): void {
    if (length === this.held) return;
    const { previous = length } = this;
    if (length === this.previous) this.place = 1 - this.place;
    else if (length === 0) this.bytesAt(this.place).fill(0);
    else if (this.lengths.includes(length))
      this.bytesAt(this.place).set(this.bytesAt(2 + this.lengths.indexOf(length)));
    else this.replayRows(length - previous);
    this.held = length;
    if (length <= previous) this.previous = undefined;
    this.begin();
  }

  /** Brings the state before the last call over the first `count` of its rows. */
  private replayRows(count: number): void {
    for (const part of ["inputs", "scan"] as const) {
      if (this.sizes[part] === 0) continue;
      this.replay(part, this.block + this.rows[part], count, {
        from: this.at(part, 1 - this.place),
        to: this.at(part, this.place),
        work: this.block + this.rows.work,
        first: this.previous === 0,
      });
    }
  }

  fork(where: string): this {
    const copy = new RecurrentState(where, this.kernels, this.sizes, this.maxSeqLen, this.replay);
    const { memory } = this.kernels;
    memory.u8(copy.block, this.bytes).set(memory.u8(this.block, this.bytes));
    copy.lengths.splice(0, copy.lengths.length, ...this.lengths);
    [copy.held, copy.place, copy.previous] = [this.held, this.place, this.previous];
    copy.begin();
    return copy as this;
  }

  release(): void {
    if (!this.kernels.released) this.kernels.memory.free(this.block);
  }
}

// Export and import, as pages: each holds the state behind its last token, if there is one.

const factsOf = ({ inputs, scan, rows }: StateSizes): PageFacts => ({
  formats: STATE_FORMATS,
  fields: Object.entries({ PAGE, batch: 1, inputs, scan, row: rows.scan }),
});

/** A page for each page of `length` tokens from that of token `since` on: a header alone where no checkpoint is at its end. */
export function exportStates(where: string, state: RecurrentState, length: number, since: number): CachePage[] {
  state.begin();
  const exported: CachePage[] = [];
  for (let index = Math.floor(since / PAGE); index * PAGE < length; index++) {
    const end = Math.min(length, (index + 1) * PAGE);
    const parts = state.partsAt(end);
    const held = parts ? end - index * PAGE : 0;
    exported.push({ index, bytes: writePage(where, index, factsOf(state.sizes), held, parts ?? []) });
  }
  return exported;
}

/**
 * Fills an empty state for `length` tokens from pages of `exportStates`. Those behind are not read. `expectUsable` throws where reading
 * pages, which may run code of the caller's, has released the state.
 */
export function fillState(
  where: string,
  state: RecurrentState,
  pages: Iterable<CachePage>,
  length: number,
  expectUsable: () => void,
): void {
  const listed = listOf(pages);
  expectUsable();
  if (!listed) refusePages(where, pages);
  state.begin();
  const { sizes } = state;
  const count = Math.ceil(length / PAGE);
  const size = 4 * (sizes.inputs + sizes.scan);
  const fill = (to: readonly Uint8Array[], bytes: Uint8Array) => {
    let from = 0;
    for (const part of to) {
      part.set(contentOf(bytes).subarray(from, from + part.length));
      from += part.length;
    }
  };
  const lengths = [0];
  let index = 0;
  let last: Uint8Array | undefined;
  for (const page of listed) {
    if (index === count) break;
    const given = readFields(where, `pages[${index}]`, page, ["index", "bytes"]);
    expectUsable();
    const [bytes, held] = readPage(where, index, factsOf(sizes), (tokens) => (tokens > 0 ? size : 0), given);
    const end = index * PAGE + held;
    if (held > 0 && held < PAGE && end < length)
      throw new RangeError(
        `${where}: ids.length expected at most ${end}, the tokens that the pages hold, got ${length}`,
      );
    if (held > 0) lengths.push(end);
    if (held === PAGE && end <= length) fill(state.admit(end, false), bytes);
    if (end === length) last = bytes;
    index++;
  }
  expectUsable();
  if (index < count) throw new RangeError(`${where}: pages expected ${count} for length ${length}, got ${index}`);
  if (count === 0) return;
  if (!last) {
    const rule = `one of ${lengths.join(", ")}, of which the pages hold states`;
    throw new RangeError(`${where}: ids.length expected ${rule}, got ${length}`);
  }
  fill(state.admit(length, true), last);
}
