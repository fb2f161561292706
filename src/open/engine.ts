// What computes the tokens of an opened model, the sessions that it keeps, and the passes that answers share.

import { yieldToEventLoop } from "../base/platform/host.ts";
import { HeadwiseError } from "../base/util/errors.ts";
import type { CacheFormat } from "../layers/state/pages.ts";
import type { Model } from "../models/blocks/model.ts";
import { createSession, nearestLength, type Session } from "../models/decoder/session.ts";
import type { Seq2Seq } from "../models/encoder/load.ts";
import { readSource } from "../models/encoder/read-source.ts";
import {
  type GeneratedToken,
  type GenerateOptions,
  type GenerationEnd,
  generate,
} from "../models/generate/generate.ts";
import { type GenerationFailure, type GenerationJob, generateMany } from "../models/generate/generate-many.ts";
import { expectStart } from "../text/generate-text.ts";

/** Guesses by what followed the last tokens before. */
export type NgramDraft = Extract<NonNullable<GenerateOptions["draft"]>, { readonly ngram: number }>;

/** Tokens to write behind others. */
export interface EngineJob extends Omit<GenerateOptions, "draft" | "signal" | "sliceMs"> {
  readonly draft?: NgramDraft | undefined;
  /** The prompt; for a model with two halves, what its encoder reads. */
  readonly ids: readonly number[];
  /** Tokens that the session should have room for. */
  readonly length: number;
}

/** Callbacks of a job. */
export interface EngineEvents {
  /** Tokens of the prompt that are read now, and those that were read before. */
  begin(read: number, reused: number): void;
  token(token: GeneratedToken): void;
  end(end: GenerationEnd | GenerationFailure): void;
}

/** A model as methods of opened models use it, wherever it runs. */
export interface Engine {
  /** Its type, for messages. */
  readonly type: string;
  readonly vocabSize: number;
  /** Tokens of the longest sequence. */
  readonly sessionLength: number;
  /** Whether an encoder reads the prompt, and the decoder writes another text. */
  readonly isHalves: boolean;
  readonly released: boolean;
  /** Begins to write. Returns a function that ends it; `events.end` is called then, too. */
  generate(job: EngineJob, events: EngineEvents): () => void;
}

/** An engine of this thread. */
export interface LocalEngine extends Engine {
  /** Sessions that are kept. */
  readonly sessions: readonly Session[];
  release(): void;
}

/** Bytes of sessions. */
export interface SessionBytes {
  /** Of all of them. */
  readonly all: number;
  /** Of those that are kept after their answers. */
  readonly kept: number;
}

/** Runs a model in this thread. */
export function createEngine(model: Model | Seq2Seq, cache: CacheFormat, bytes: SessionBytes): LocalEngine {
  const create = (maxSeqLen: number) => createSession(model as Model, { maxSeqLen, format: cache });
  const kept = new KeptSessions(create, bytes.all, bytes.kept);
  const passes = createPasses();
  const isHalves = model.encoder !== undefined;

  /** A session for a job, the tokens that it still has to read, and what takes it back. */
  const begin = async ({ ids, length }: EngineJob, signal: AbortSignal) => {
    if (isHalves) {
      const session = await readSource(model as Seq2Seq, ids, { format: cache, signal });
      const start = [expectStart("readSource", model)];
      return { session, unread: start, read: ids.length, reused: 0, giveBack: () => session.release() };
    }
    const { session, reused } = await kept.take(ids, length, signal);
    const giveBack = (isFailed: boolean) => (isFailed ? kept.drop(session) : kept.give(session));
    return { session, unread: ids.slice(reused), read: ids.length - reused, reused, giveBack };
  };

  return {
    type: model.type,
    vocabSize: model.vocabSize,
    sessionLength: model.spec.sessionLength,
    isHalves,
    get sessions() {
      return kept.kept;
    },
    get released() {
      return model.released || model.kernels.released;
    },
    generate(job, events) {
      const abort = new AbortController();
      const { signal } = abort;
      const { ids: _, length: _length, draft, ...options } = job;
      const run = async () => {
        const { session, unread, read, reused, giveBack } = await begin(job, signal);
        events.begin(read, reused);
        const work: Work = {
          ...{ ...options, session, signal, ids: unread },
          onToken: (token) => events.token(token),
          onEnd(end) {
            giveBack(end.reason === "error");
            events.end(end);
          },
        };
        if (draft) runAlone(work, { ...options, draft, signal });
        else passes.add(work);
      };
      run().catch((error: unknown) => events.end({ reason: "error", error }));
      return () => abort.abort();
    },
    release: () => kept.release(),
  };
}

/** A generation with guesses, whose passes have other lengths than those of others: it has its own. */
function runAlone({ session, ids, onToken, onEnd }: Work, options: GenerateOptions): void {
  const tokens = generate(session, ids, options);
  const read = async () => {
    for await (const token of tokens) onToken(token);
  };
  // What ends the loop, ends the tokens.
  read().catch(() => {});
  tokens.end.then(onEnd, (error: unknown) => onEnd({ reason: "error", error }));
}

// Sessions that are kept after an answer, so that one that continues it does not read the same tokens again.

/** Fewer tokens that are shared are not worth a copy. */
const LEAST_SHARED = 16;

/** A session for an answer, and how many of its first tokens it has read. */
interface Taken {
  readonly session: Session;
  readonly reused: number;
}

const bytesOf = (sessions: Iterable<Session>) => [...sessions].reduce((sum, { bytes }) => sum + bytes, 0);

/** What `work` gives; undefined where memory has no room for it. */
function ifRoom<T>(work: () => T): T | undefined {
  try {
    return work();
  } catch (error) {
    if (error instanceof HeadwiseError && error.code === "OUT_OF_MEMORY") return undefined;
    throw error;
  }
}

/** Sessions of a model: those in use, and those that are kept. */
class KeptSessions {
  readonly #create: (maxSeqLen: number) => Session;
  readonly #most: number;
  readonly #mostKept: number;
  /** The one that was used last is the first. */
  readonly #kept: Session[] = [];
  readonly #used = new Set<Session>();
  /** Called when there may be room again. */
  readonly #waiting: (() => void)[] = [];

  /**
   * @param most Bytes of all sessions.
   * @param mostKept Bytes of those that are kept: the oldest are released where they would exceed this, or all would exceed `most`.
   */
  constructor(create: (maxSeqLen: number) => Session, most: number, mostKept: number) {
    this.#create = create;
    this.#most = most;
    this.#mostKept = mostKept;
  }

  /** Those that are kept, the one that was used last first. */
  get kept(): readonly Session[] {
    return this.#kept.filter(({ released }) => !released);
  }

  /**
   * A session with room for `length` tokens that has read the longest beginning of `ids` that any has, but the last of them. Waits for
   * others to be given back where memory has no room for one more.
   */
  async take(ids: readonly number[], length: number, signal: AbortSignal): Promise<Taken> {
    for (;;) {
      signal.throwIfAborted();
      const taken = this.#attempt(ids, length);
      if (taken) return taken;
      await new Promise<void>((resolve) => {
        this.#waiting.push(resolve);
        signal.addEventListener("abort", () => resolve(), { once: true });
      });
    }
  }

  /** Takes a session back, to be kept. */
  give(session: Session): void {
    if (this.#used.delete(session) && !session.released) {
      this.#kept.unshift(session);
      this.#trim();
    }
    this.#wake();
  }

  /** Takes a session back of which nothing is known any more. */
  drop(session: Session): void {
    this.#used.delete(session);
    session.release();
    this.#wake();
  }

  release(): void {
    for (const session of [...this.#kept.splice(0), ...this.#used]) session.release();
    this.#used.clear();
    this.#wake();
  }

  #wake(): void {
    for (const wake of this.#waiting.splice(0)) wake();
  }

  /** Bytes of all, and of one more. */
  #isOver(more = 0): boolean {
    return bytesOf(this.#kept) + bytesOf(this.#used) + more > this.#most;
  }

  #trim(): void {
    while (this.#kept.length > 0 && (this.#isOver() || bytesOf(this.#kept) > this.#mostKept))
      this.#kept.pop()?.release();
  }

  /** A session that has read a beginning of `ids`; undefined where there is no room as long as others are used. */
  #attempt(ids: readonly number[], length: number): Taken | undefined {
    const { session: known, shared = 0 } = this.#find(ids, length) ?? {};
    if (known && shared === known.length) return { session: this.#use(known), reused: shared };
    const own = known && shared >= LEAST_SHARED ? this.#cut(known, shared) : undefined;
    if (own) return { session: own, reused: shared };
    const session = this.#make(length);
    return session && { session, reused: 0 };
  }

  /** The kept session that shares most with `ids`, and how many tokens it would keep. */
  #find(ids: readonly number[], length: number): { readonly session: Session; readonly shared: number } | undefined {
    let best: { readonly session: Session; readonly shared: number } | undefined;
    for (const session of this.kept) {
      if (session.maxSeqLen < length) continue;
      const { tokens } = session;
      let same = 0;
      while (same < tokens.length && same < ids.length - 1 && tokens[same] === ids[same]) same++;
      const shared = same === tokens.length ? same : nearestLength(session, same, tokens.length);
      if (shared > (best?.shared ?? 0)) best = { session, shared };
    }
    return best;
  }

  #use(session: Session): Session {
    const at = this.#kept.indexOf(session);
    if (at >= 0) this.#kept.splice(at, 1);
    this.#used.add(session);
    return session;
  }

  /** A session that has read `shared` tokens of a kept one: a fork, since the other may be continued too, if there is room for both. */
  #cut(session: Session, shared: number): Session | undefined {
    const fork = this.#isOver(session.bytes) ? undefined : ifRoom(() => session.fork());
    const own = this.#use(fork ?? session);
    const cut = ifRoom(() => {
      own.truncate(shared);
      return own;
    });
    if (!cut) this.drop(own);
    return cut;
  }

  /** A new session, if need be in the place of kept ones. */
  #make(length: number): Session | undefined {
    for (;;) {
      const session = ifRoom(() => this.#create(length));
      if (session) {
        this.#used.add(session);
        this.#trim();
        // One alone may have all that there is.
        if (!this.#isOver() || this.#used.size === 1) return session;
        this.#used.delete(session);
        session.release();
        return undefined;
      }
      const oldest = this.#kept.pop();
      if (oldest) oldest.release();
      else if (this.#used.size > 0) return undefined;
      // The error says what is missing.
      else return this.#use(this.#create(length));
    }
  }
}

// Answers that are written at the same time share passes: each step of the model is one for all of them.

/** A generation with its callbacks. */
interface Work extends GenerationJob {
  /** Called with each of its tokens. */
  onToken(token: GeneratedToken): void;
  /** Called at its end. */
  onEnd(end: GenerationEnd | GenerationFailure): void;
}

/** What runs generations of one model. */
interface Passes {
  /** Begins a generation at the next step. */
  add(work: Work): void;
}

/** Runs generations of one model together, as long as there are any. */
function createPasses(): Passes {
  const waiting: Work[] = [];
  const running = new Set<Work>();
  const begun = new WeakSet<Work>();
  let isRunning = false;
  let wake = () => {};

  /** Those that wait, as long as others run. */
  async function* next(): AsyncGenerator<Work, void, void> {
    for (;;) {
      const first = waiting.shift();
      if (first) {
        running.add(first);
        yield first;
      } else if (running.size === 0) return;
      else
        await new Promise<void>((resolve) => {
          wake = resolve;
        });
    }
  }

  const endOf = (work: Work, end: GenerationEnd | GenerationFailure) => {
    running.delete(work);
    work.onEnd(end);
    wake();
  };

  async function run(): Promise<void> {
    isRunning = true;
    try {
      while (waiting.length > 0)
        try {
          for await (const { job, token, end } of generateMany(next()))
            if (token) {
              job.onToken(token);
              // The first words are read before the next step is computed.
              if (!begun.has(job)) await yieldToEventLoop();
              begun.add(job);
            } else if (end) endOf(job, end);
        } catch (error) {
          // A step of all of them has failed, or the model was released.
          for (const work of [...running]) endOf(work, { reason: "error", error });
        }
    } finally {
      isRunning = false;
    }
  }

  return {
    add(work) {
      waiting.push(work);
      wake();
      if (!isRunning) void run();
    },
  };
}
