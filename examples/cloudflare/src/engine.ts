// The kernels, the weights, and the caches of the most recently used conversations: one engine per isolate. Durable Objects
// of one class share isolates, and an isolate has 128 MB, so the engine owns the caches and not the objects. A conversation
// that needs memory gets it from the one that has been idle longest, which later reads its pages from storage.

import { env } from "cloudflare:workers";
import { type Cache, type Kernels, loadKernels } from "headwise";
import config from "../../../model/config.json";
import weights from "../../../model/model.safetensors";
import { createDecoder, type Decoder } from "./decoder.ts";
import { type Env, type Limits, readLimits } from "./limits.ts";

/** Milliseconds without a slice after which an answer counts as abandoned: its object was reset, or its client reads no more. */
const ABANDONED_MS = 30_000;

export class Engine {
  readonly limits: Limits;
  readonly model: Decoder;
  readonly kernels: Kernels;
  /** By conversation, the most recently used one last. */
  readonly #live = new Map<string, Cache[]>();
  /** Running answers, with the time of the last slice. */
  readonly #active = new Map<string, number>();
  /** Bytes of the caches of a conversation. */
  readonly #cacheBytes: number;
  #fed = 0;

  constructor(kernels: Kernels, limits: Limits) {
    this.kernels = kernels;
    this.limits = limits;
    this.model = createDecoder(kernels, new Uint8Array(weights), JSON.stringify(config));
    const first = this.#createCaches();
    this.#cacheBytes = first.reduce((sum, { bytes }) => sum + bytes, 0);
    // The largest call, so that scratch is allocated at its final size before the caches.
    this.model.next({ tokens: Array<number>(limits.SLICE_TOKENS).fill(0), caches: first });
    for (const cache of first) cache.release();
    // With this much memory only idle conversations are evicted, never one with a running answer.
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

  /** Logits after the last of `tokens`, which are added to the caches. */
  next(tokens: readonly number[], caches: readonly Cache[]): Float32Array {
    this.#fed += tokens.length;
    return this.model.next({ tokens, caches });
  }

  /** Truncates live caches to at most `length` tokens. */
  truncate(id: string, length: number): void {
    for (const cache of this.#live.get(id) ?? []) if (cache.length > length) cache.truncate(length);
  }

  /** Releases the caches of a conversation. */
  forget(id: string): void {
    for (const cache of this.#live.get(id) ?? []) cache.release();
    this.#live.delete(id);
  }

  /** Registers an answer and returns true, or returns false if too many are running; `finish` ends it. */
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

  /** For the debug route. `fed` counts the tokens that the model has processed. */
  get state() {
    const { build, usedBytes, memoryBytes } = this.kernels;
    return { build, usedBytes, memoryBytes, live: this.#live.size, active: this.#active.size, fed: this.#fed };
  }

  #createCaches(): Cache[] {
    return this.model.createCaches(this.limits.MAX_CONTEXT);
  }
}

/**
 * The `simd` build gives the same bits on every machine. The platform has several kinds, and a conversation may continue on
 * another one.
 */
export const engine: Engine = new Engine(await loadKernels({ deterministic: true }), readLimits(env as unknown as Env));
