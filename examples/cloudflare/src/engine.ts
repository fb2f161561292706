// One of these in each isolate: kernels, weights, and the caches of the conversations that were used last. Durable Objects
// of one class share isolates, and an isolate has 128 MB, so caches belong here and not to the objects: whoever needs room
// takes it from who has been idle longest, and who comes back reads his pages from storage.

import { env } from "cloudflare:workers";
import { type Cache, type Kernels, loadKernels } from "headwise";
import config from "../../../model/config.json";
import weights from "../../../model/induction.safetensors";
import { type Env, type Limits, readLimits } from "./limits.ts";
import { createModel, type Model } from "./model.ts";

/** Milliseconds without a slice after which an answer counts as abandoned: its object was reset, or its reader is stuck. */
const ABANDONED_MS = 30_000;

export class Engine {
  readonly limits: Limits;
  readonly model: Model;
  readonly kernels: Kernels;
  /** By conversation, the one that was used last at the end. */
  readonly #live = new Map<string, Cache[]>();
  /** Answers under way, and when each had its last slice. */
  readonly #active = new Map<string, number>();
  /** Bytes of the caches of a conversation. */
  readonly #cacheBytes: number;
  #fed = 0;

  constructor(kernels: Kernels, limits: Limits) {
    this.kernels = kernels;
    this.limits = limits;
    this.model = createModel(kernels, new Uint8Array(weights), config);
    const first = this.#createCaches();
    this.#cacheBytes = first.reduce((sum, { bytes }) => sum + bytes, 0);
    // The largest call there will be, so that scratch has its size before caches lie behind it.
    this.model.next(Array<number>(limits.SLICE_TOKENS).fill(0), first);
    for (const cache of first) cache.release();
    // Then idle conversations alone give way, and those with an answer under way never fight for room.
    const needed = kernels.usedBytes + (limits.MAX_ACTIVE + 1) * this.#cacheBytes;
    if (needed > this.#budget)
      throw new Error(
        `MEMORY_MIB expected at least ${Math.ceil(needed / 2 ** 20)} for MAX_ACTIVE, got ${limits.MEMORY_MIB}`,
      );
  }

  get #budget(): number {
    return this.limits.MEMORY_MIB * 2 ** 20;
  }

  /** The caches of a conversation, filled by `restore` if they are not live. Valid until the next `await`. */
  caches(id: string, restore: (caches: readonly Cache[]) => void): readonly Cache[] {
    let caches = this.#live.get(id);
    this.#live.delete(id);
    if (!caches) {
      for (const [idle] of this.#live) {
        if (this.kernels.usedBytes + this.#cacheBytes <= this.#budget) break;
        this.forget(idle);
      }
      caches = this.#createCaches();
      try {
        restore(caches);
      } catch (error) {
        for (const cache of caches) cache.release();
        throw error;
      }
    }
    this.#live.set(id, caches);
    if (this.#active.has(id)) this.#active.set(id, Date.now());
    return caches;
  }

  /** Logits behind the last of `tokens`, which are added to the caches. */
  next(tokens: readonly number[], caches: readonly Cache[]): Float32Array {
    this.#fed += tokens.length;
    return this.model.next(tokens, caches);
  }

  /** Lets live caches hold no more than `length` tokens. */
  truncate(id: string, length: number): void {
    for (const cache of this.#live.get(id) ?? []) if (cache.length > length) cache.truncate(length);
  }

  /** Gives the memory of a conversation back. */
  forget(id: string): void {
    for (const cache of this.#live.get(id) ?? []) cache.release();
    this.#live.delete(id);
  }

  /** Whether there is room for one more answer; `finish` ends it. */
  begin(id: string): boolean {
    const now = Date.now();
    for (const [other, last] of this.#active) if (now - last > ABANDONED_MS) this.#active.delete(other);
    if (this.#active.size >= this.limits.MAX_ACTIVE) return false;
    this.#active.set(id, now);
    return true;
  }

  finish(id: string): void {
    this.#active.delete(id);
  }

  /** For the debug route. `fed` counts the tokens that went through the model. */
  get state() {
    const { build, usedBytes, memoryBytes } = this.kernels;
    return { build, usedBytes, memoryBytes, live: this.#live.size, active: this.#active.size, fed: this.#fed };
  }

  #createCaches(): Cache[] {
    return this.model.createCaches(this.limits.MAX_CONTEXT);
  }
}

/**
 * The `simd` build gives the same bits on every machine. The fleet has several kinds, and a conversation may wake up on
 * another than it fell asleep on.
 */
export const engine: Engine = new Engine(await loadKernels({ deterministic: true }), readLimits(env as unknown as Env));
