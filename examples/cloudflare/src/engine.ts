// The model, its tokenizer, and the sessions of the most recently used conversations: one engine per isolate. Durable Objects
// of one class share isolates, and an isolate has 128 MB, so the engine owns the sessions and not the objects. A conversation
// that needs memory gets it from the one that has been idle longest, which later reads its pages from storage.

import { env } from "cloudflare:workers";
import { openModel } from "headwise";
import { createSession, type Model, planModel, type Session } from "headwise/models";
import type { Tokenizer } from "headwise/text";
import config from "../../../model/stories/config.json";
import file from "../../../model/stories/stories.gguf";
import { type Limits, readLimits, type Variables } from "./limits.ts";

/** Milliseconds without a slice after which an answer counts as abandoned: its object was reset, or its client reads no more. */
const ABANDONED_MS = 30_000;

export class Engine {
  readonly limits: Limits;
  readonly model: Model;
  readonly tokenizer: Tokenizer;
  /** By conversation, the most recently used one last. */
  readonly #live = new Map<string, Session>();
  /** Sessions that fit into memory. */
  readonly #most: number;
  /** Running answers, with the time of the last slice. */
  readonly #active = new Map<string, number>();

  constructor(model: Model, tokenizer: Tokenizer, limits: Limits) {
    this.limits = limits;
    this.model = model;
    this.tokenizer = tokenizer;
    const { MAX_CONTEXT: maxSeqLen, MAX_ACTIVE, MEMORY_MIB, SLICE_TOKENS: rows } = limits;
    const { sessions, scratch } = planModel(config, { weights: "q8", maxSeqLen, rows });
    // What loading took; scratch twice, because a call in slices has its own; and memory grows by pages of 64 KiB.
    const rest = model.kernels.memoryBytes + 2 * scratch + 2 ** 16;
    this.#most = Math.floor((MEMORY_MIB * 2 ** 20 - rest) / sessions);
    // With this much memory only idle conversations are evicted, never one with a running answer.
    const least = Math.ceil((rest + (MAX_ACTIVE + 1) * sessions) / 2 ** 20);
    if (this.#most <= MAX_ACTIVE)
      throw new Error(`MEMORY_MIB expected at least ${least} for MAX_ACTIVE, got ${MEMORY_MIB}`);
  }

  /** The session of a conversation, filled by `restore` if it is not live. For one slice. */
  session(id: string, restore: (empty: Session) => void): Session {
    let session = this.#live.get(id);
    this.#live.delete(id);
    if (!session) {
      for (const [idle] of this.#live) if (this.#live.size >= this.#most) this.forget(idle);
      session = createSession(this.model, { maxSeqLen: this.limits.MAX_CONTEXT });
      try {
        restore(session);
      } catch (error) {
        session.release();
        throw error;
      }
    }
    this.#live.set(id, session);
    if (this.#active.has(id)) this.#active.set(id, Date.now());
    return session;
  }

  /** Truncates a live session to at most `length` tokens. */
  truncate(id: string, length: number): void {
    const session = this.#live.get(id);
    if (session && session.length > length) session.truncate(length);
  }

  /** Releases the session of a conversation. */
  forget(id: string): void {
    this.#live.get(id)?.release();
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

  /** For the debug route. */
  get state() {
    const { build, usedBytes, memoryBytes } = this.model.kernels;
    return { build, usedBytes, memoryBytes, live: this.#live.size, active: this.#active.size };
  }
}

/**
 * The `simd` build gives the same bits on every machine. The platform has several kinds, and a conversation may continue on
 * another one.
 */
const { model, tokenizer } = (await openModel(file, { deterministic: true })).parts;
export const engine: Engine = new Engine(model as Model, tokenizer, readLimits(env as unknown as Variables));
