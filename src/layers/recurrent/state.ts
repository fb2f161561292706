// What a recurrent layer keeps of a sequence: a state of a fixed number of bytes, and earlier ones to go back to.

import { PAGE } from "../../../assembly/layout.ts";
import type { Kernels } from "../../wasm/kernels.ts";
import { aligned } from "../../wasm/memory.ts";
import type { LayerState } from "../mixer/mixer.ts";

/** The parts of a state, which a call computes one after the other. */
export type StatePart = "inputs" | "scan";

/** Floats of the parts: the inputs of the convolution that later rows read, and the states of all heads. */
export type StateSizes = Readonly<Record<StatePart, number>>;

/** Where a state lies: before a row, and behind it. */
interface Transition {
  readonly from: number;
  readonly to: number;
}

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

/** Bytes of linear memory of a state: what is held, what a call computes, and the checkpoints. */
export function recurrentStateBytes(sizes: StateSizes, maxSeqLen: number): number {
  return (2 + slotsOf(maxSeqLen)) * stride(sizes);
}

const stride = ({ inputs, scan }: StateSizes): number => aligned(4 * inputs) + aligned(4 * scan);

/**
 * The state of a recurrent layer. A call reads what is held and writes beside it, so that an aborted one changes nothing; `commit`
 * exchanges both. A call that is aborted behind a multiple of PAGE may have taken the place of an earlier checkpoint, which is lost.
 */
export class RecurrentState implements LayerState {
  readonly formats = 0;
  readonly bytes: number;
  private readonly kernels: Kernels;
  private readonly sizes: StateSizes;
  private readonly maxSeqLen: number;
  private readonly block: number;
  /** The lengths of the checkpoints; 0: none. */
  private readonly lengths: number[];
  private held = 0;
  /** The length before the last call, whose state is still there; undefined once the next one writes. */
  private previous: number | undefined;
  /** Which of the two first places holds the state. */
  private place = 0;

  constructor(where: string, kernels: Kernels, sizes: StateSizes, maxSeqLen: number) {
    this.kernels = kernels;
    this.sizes = sizes;
    this.maxSeqLen = maxSeqLen;
    this.bytes = recurrentStateBytes(sizes, maxSeqLen);
    this.block = kernels.memory.allocate(where, this.bytes);
    this.lengths = new Array(slotsOf(maxSeqLen)).fill(0);
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

  /** Keeps a part that a call has brought to `position`, if that is a checkpoint's. The scan is the last part. */
  keep(part: StatePart, position: number): void {
    if (position % PAGE !== 0) return;
    const slot = slotOf(position, this.lengths.length);
    const floats = this.sizes[part];
    const from = this.kernels.memory.f32(this.at(part, 1 - this.place), floats);
    this.kernels.memory.f32(this.at(part, 2 + slot), floats).set(from);
    this.lengths[slot] = position;
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
    const lengths = [...this.lengths];
    // Those that are to come take the places of others.
    for (let next = PAGE * (1 + Math.floor(this.held / PAGE)); next <= held; next += PAGE)
      lengths[slotOf(next, lengths.length)] = next;
    if (this.held === held && this.previous !== undefined) lengths.push(this.previous);
    return Math.max(0, ...lengths.filter((each) => each <= length && each <= held));
  }

  expectTruncatable(length: number): void {
    const kept = [0, ...this.lengths.filter((each) => each <= this.held), this.previous ?? 0, this.held];
    if (kept.includes(length)) return;
    const sorted = [...new Set(kept)].sort((a, b) => a - b);
    throw new RangeError(`truncate: length expected one of ${sorted.join(", ")}, got ${length}`);
  }

  reserve(): void {}

  truncate(length: number): void {
    if (length === this.held) return;
    if (length === this.previous) this.place = 1 - this.place;
    else if (length === 0) this.bytesAt(this.place).fill(0);
    else this.bytesAt(this.place).set(this.bytesAt(2 + this.lengths.indexOf(length)));
    this.held = length;
    this.previous = undefined;
    this.begin();
  }

  fork(where: string): this {
    const copy = new RecurrentState(where, this.kernels, this.sizes, this.maxSeqLen);
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
