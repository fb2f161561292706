// Sessions that are kept after an answer, so that one that continues it does not read the same tokens again.

import { HeadwiseError } from "../base/util/errors.ts";
import { nearestLength, type Session } from "../models/decoder/session.ts";

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
export class KeptSessions {
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
