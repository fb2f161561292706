// What computes the tokens of an opened model.

import type { CacheFormat } from "../layers/state/pages.ts";
import type { Model } from "../models/blocks/model.ts";
import { createSession, type Session } from "../models/decoder/session.ts";
import type { Seq2Seq } from "../models/encoder/load.ts";
import { readSource } from "../models/encoder/read-source.ts";
import {
  type GeneratedToken,
  type GenerateOptions,
  type GenerationEnd,
  generate,
} from "../models/generate/generate.ts";
import type { GenerationFailure } from "../models/generate/generate-many.ts";
import { expectStart } from "../text/generate-text.ts";
import { KeptSessions } from "./kept-sessions.ts";
import { createPasses, type Work } from "./passes.ts";

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
