import { ALIGN } from "../../assembly/layout.ts";
import { HeadwiseError } from "../base/util/errors.ts";
import type {
  AttentionShape,
  CacheShape,
  F32Ptr,
  LinearShape,
  PagesPtr,
  Pointer,
  RopeShape,
  StatisticsShape,
  U8Ptr,
} from "./abi.ts";

/** What the plan functions count, each in bytes of linear memory. */
interface PlannedBytes {
  /** Bytes that the layer or the model holds. */
  readonly weights: number;
  /** Bytes that the cache of a layer holds, or a call without a cache while it runs. */
  readonly cache: number;
  /** Bytes that all sessions of a model hold. */
  readonly sessions: number;
  /**
   * Bytes that all calls on the same kernels share. They are kept at their largest size, which does not grow beyond 256 rows, nor with
   * the length of a sequence except for maps and masks. A running asynchronous call takes as much again.
   */
  readonly scratch: number;
  /** What a call takes besides, and frees at its end: the keys and values of some heads if it is expanded, or keys for maps. */
  readonly call: number;
  /** The sum of all fields. */
  readonly total: number;
}

/**
 * Exact bytes of linear memory: how much `kernels.usedBytes` grows on one thread. Each thread more takes 80 to 256 KB, and with an
 * f16 cache every thread takes another 128·(headDim + valueDim)·4 bytes. `Held` are the fields of a plan besides those that all
 * plans have.
 */
export type MemoryPlan<Held extends "cache" | "sessions" | "call" = never> = Pick<
  PlannedBytes,
  "weights" | "scratch" | "total" | Held
>;

const WASM_PAGE = 65_536;
/** The largest size of a memory: 4 GiB less one page, so that every end address is a u32. */
export const LARGEST_MEMORY: number = 2 ** 32 - WASM_PAGE;

/** The part of WebAssembly.Memory that is used here. Tests replace it to reach sizes that no machine has. */
interface GrowableMemory {
  readonly buffer: ArrayBufferLike;
  grow(pages: number): number;
}

interface Block {
  at: number;
  bytes: number;
}

/** Rounds up to the alignment of every allocation. */
export function aligned(bytes: number): number {
  return Math.ceil(bytes / ALIGN) * ALIGN;
}

/**
 * Owns a WebAssembly memory: long-lived blocks, and one scratch block, which belongs to one call at a time and never
 * shrinks. Every address is 64-byte aligned and not 0. Callers make views where they need them and never store them,
 * because growth replaces the buffer.
 */
export class LinearMemory {
  readonly #memory: GrowableMemory;
  /**
   * The current buffer and views of all of it, cached because getting them is slow. Only this class grows the memory.
   */
  #buffer: ArrayBufferLike;
  #view: DataView | undefined;
  #floats: Float32Array | undefined;
  #words: Int32Array | undefined;
  /** Sorted by address, never adjacent. */
  readonly #free: Block[] = [];
  readonly #sizes: Map<number, number> = new Map();
  #end: number;
  #used = 0;
  #scratch: Block = { at: 0, bytes: 0 };

  constructor(memory: GrowableMemory, heapBase: number) {
    this.#memory = memory;
    this.#buffer = memory.buffer;
    this.#end = Math.max(ALIGN, aligned(heapBase));
  }

  /** Bytes in allocated blocks, including the scratch block. */
  get used(): number {
    return this.#used;
  }

  /** Bytes of the memory itself. */
  get byteLength(): number {
    return this.#buffer.byteLength;
  }

  /** Bytes of the scratch block: the most that any call has needed. */
  get scratchBytes(): number {
    return this.#scratch.bytes;
  }

  /**
   * Allocates a block of at least `bytes`, whose content is unspecified. Throws OUT_OF_MEMORY, and then nothing has
   * changed.
   */
  allocate(where: string, bytes: number): number {
    const size = Math.max(ALIGN, aligned(bytes));
    const found = this.#free.findIndex((block) => block.bytes >= size);
    const block = this.#free[found];
    let at: number;
    if (block) {
      at = block.at;
      if (block.bytes === size) this.#free.splice(found, 1);
      else {
        block.at += size;
        block.bytes -= size;
      }
    } else {
      const last = this.#free.at(-1);
      at = last && last.at + last.bytes === this.#end ? last.at : this.#end;
      this.#reach(where, at + size, size);
      if (at === last?.at) this.#free.pop();
      this.#end = at + size;
    }
    this.#sizes.set(at, size);
    this.#used += size;
    return at;
  }

  /** Frees a block. */
  free(at: number): void {
    const bytes = this.#sizes.get(at);
    if (bytes === undefined) throw new RangeError(`free: at expected an allocated address, got ${at}`);
    this.#sizes.delete(at);
    this.#used -= bytes;
    let i = this.#free.findIndex((block) => block.at > at);
    if (i < 0) i = this.#free.length;
    const before = this.#free[i - 1];
    const after = this.#free[i];
    const joinsBefore = before !== undefined && before.at + before.bytes === at;
    const joinsAfter = after !== undefined && at + bytes === after.at;
    if (joinsBefore) {
      before.bytes += bytes;
      if (joinsAfter) {
        before.bytes += after.bytes;
        this.#free.splice(i, 1);
      }
    } else if (joinsAfter) {
      after.at = at;
      after.bytes += bytes;
    } else this.#free.splice(i, 0, { at, bytes });
  }

  /** The scratch block, at least `bytes` long; its content does not survive the next call. */
  scratch(where: string, bytes: number): number {
    if (bytes > this.#scratch.bytes) {
      const at = this.allocate(where, bytes);
      if (this.#scratch.at) this.free(this.#scratch.at);
      this.#scratch = { at, bytes: aligned(bytes) };
    }
    return this.#scratch.at;
  }

  f32(at: number, length: number): Float32Array {
    return new Float32Array(this.#buffer, at, length);
  }

  u8(at: number, length: number): Uint8Array {
    return new Uint8Array(this.#buffer, at, length);
  }

  u32(at: number, length: number): Uint32Array {
    return new Uint32Array(this.#buffer, at, length);
  }

  view(): DataView {
    this.#view ??= new DataView(this.#buffer);
    return this.#view;
  }

  /** The whole memory as floats: that at address `at` is element `at / 4`. */
  floats(): Float32Array {
    this.#floats ??= new Float32Array(this.#buffer);
    return this.#floats;
  }

  /** The whole memory as words: that at address `at` is element `at / 4`. */
  words(): Int32Array {
    this.#words ??= new Int32Array(this.#buffer);
    return this.#words;
  }

  /** Makes `view()` give this view of the memory, until it grows; without one, again a view of its own. */
  replaceView(view?: DataView): void {
    this.#view = view;
  }

  /** Grows the memory up to address `end`. Callers change their own state only after this succeeded. */
  #reach(where: string, end: number, asked: number): void {
    const missing = end - this.#buffer.byteLength;
    if (missing <= 0) return;
    try {
      if (end > LARGEST_MEMORY) throw new RangeError("beyond 32-bit addresses");
      this.#memory.grow(Math.ceil(missing / WASM_PAGE));
      this.#buffer = this.#memory.buffer;
      this.#view = this.#floats = this.#words = undefined;
    } catch (cause) {
      const text = `${where}: ${asked} more bytes do not fit: ${this.#used} in use of ${this.byteLength}, growth refused`;
      throw new HeadwiseError("OUT_OF_MEMORY", text, { cause });
    }
  }
}

/**
 * Places aligned blocks one after the other: `take` returns the offset of a block, `bytes` is the size of all so far.
 */
export class Layout {
  bytes = 0;
  take(bytes: number): number {
    const at = this.bytes;
    this.bytes += aligned(bytes);
    return at;
  }
  floats(count: number): number {
    return this.take(count * 4);
  }
}

const typed = (at: number): never => at as never;

/** Gives an address the type of what it points to: the only way from a number to a kernel argument. */
export const pointer: {
  f32(at: number): F32Ptr;
  u8(at: number): U8Ptr;
  u16(at: number): Pointer<Uint16Array>;
  f64(at: number): Pointer<Float64Array>;
  pages(at: number): PagesPtr;
  attentionShape(at: number): Pointer<AttentionShape>;
  cacheShape(at: number): Pointer<CacheShape>;
  linearShape(at: number): Pointer<LinearShape>;
  ropeShape(at: number): Pointer<RopeShape>;
  statisticsShape(at: number): Pointer<StatisticsShape>;
} = {
  f32: typed,
  u8: typed,
  u16: typed,
  f64: typed,
  pages: typed,
  attentionShape: typed,
  cacheShape: typed,
  linearShape: typed,
  ropeShape: typed,
  statisticsShape: typed,
};
