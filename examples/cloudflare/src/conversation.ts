// The Durable Object of one conversation. The platform distributes objects over its machines, so scaling out needs nothing
// else. Answers are computed in slices: a slice is computed without a pause, then stored, then sent. So text that a client has
// seen is never lost, and other conversations of the isolate run between two slices.

import { DurableObject } from "cloudflare:workers";
import { forward, generate, type Session } from "headwise/models";
import { createTextStream } from "headwise/text";
import type { Ask } from "./ask.ts";
import { digestOf } from "./digest.ts";
import { engine } from "./engine.ts";
import { event, eventStream, HttpError, json, respond } from "./http.ts";
import type { Variables } from "./limits.ts";
import { Store, type Stored } from "./store.ts";

const DAY_MS = 86_400_000;

/** The bindings of wrangler.jsonc. */
export interface Env extends Variables {
  readonly CONVERSATIONS: DurableObjectNamespace<Conversation>;
}

export class Conversation extends DurableObject<Env> {
  readonly #id: string;
  readonly #store: Store;
  #stored: Stored | undefined;
  #busy = false;
  /** Tokens that the model has read for this object. */
  #read = 0;

  constructor(ctx: DurableObjectState, env: Env) {
    super(ctx, env);
    this.#id = ctx.id.toString();
    this.#store = new Store(ctx.storage);
    this.#stored = this.#store.read();
    // The session of an earlier object of this conversation may hold more tokens than are stored.
    engine.forget(this.#id);
    engine.finish(this.#id);
  }

  create(): Promise<Response> {
    return respond(async () => {
      this.#stored = this.#store.create();
      await this.#wakeLater();
      return json({ id: this.#id }, 201, { location: `/v1/sessions/${this.#id}` });
    });
  }

  /** The text from character `from` on, and the state of the conversation. */
  describe(from: number): Promise<Response> {
    return respond(() => {
      const { text, ids, left, created } = this.#known();
      const sizes = { length: text.length, tokens: ids.length, maxTokens: engine.limits.MAX_CONTEXT, left };
      return json({ id: this.#id, created, ...sizes, busy: this.#busy, from, text: text.slice(from) });
    });
  }

  /** Adds a text and streams the answer. */
  answer(ask: Ask): Promise<Response> {
    return respond(() => {
      const stored = this.#known();
      const { length } = stored.text;
      const { MAX_CONTEXT } = engine.limits;
      if (this.#busy) throw new HttpError(409, "session_busy", "another answer is under way", { "retry-after": "1" });
      if (ask.at !== undefined && ask.at !== length)
        throw new HttpError(409, "wrong_position", `the conversation has ${length} characters, not ${ask.at}`);
      const past = stored.ids.length;
      const prompt = engine.tokenizer.encode(ask.text, { addSpecial: past === 0 });
      if (past + prompt.length >= MAX_CONTEXT) {
        const text = `${past} + ${prompt.length} tokens leave no room for an answer: a conversation ends at ${MAX_CONTEXT}, open another one`;
        throw new HttpError(422, "context_full", text);
      }
      if (!engine.begin(this.#id))
        throw new HttpError(429, "too_busy", "too many answers are under way here", { "retry-after": "1" });
      this.#busy = true;
      return eventStream(this.#answer(stored, ask, prompt), () => this.#finish());
    });
  }

  remove(): Promise<Response> {
    return respond(async () => {
      this.#known();
      if (this.#busy) throw new HttpError(409, "session_busy", "an answer is under way", { "retry-after": "1" });
      await this.#clear();
      return new Response(null, { status: 204 });
    });
  }

  /** Idle: releases the session, and later deletes the conversation. */
  override async alarm(): Promise<void> {
    if (!this.#stored) return;
    if (this.#busy) return this.#wakeLater();
    engine.forget(this.#id);
    const end = this.#stored.used + engine.limits.KEEP_DAYS * DAY_MS;
    if (Date.now() >= end) await this.#clear();
    else await this.ctx.storage.setAlarm(end);
  }

  /** The state of the isolate. Only with DEBUG. */
  inspect(): Response {
    return json({ ...engine.state, held: this.#stored?.held, read: this.#read });
  }

  /** Resets the object as if its machine had failed. Only with DEBUG. */
  abort(): void {
    this.ctx.abort("reset by the debug route");
  }

  #wakeLater(): Promise<void> {
    return this.ctx.storage.setAlarm(Date.now() + engine.limits.IDLE_SECONDS * 1000);
  }

  #known(): Stored {
    if (!this.#stored) throw new HttpError(404, "no_session", "there is no such session");
    return this.#stored;
  }

  async #finish(): Promise<void> {
    this.#busy = false;
    engine.finish(this.#id);
    await this.#wakeLater();
  }

  async #clear(): Promise<void> {
    engine.forget(this.#id);
    this.#stored = undefined;
    await this.#store.clear();
  }

  async *#answer(stored: Stored, ask: Ask, prompt: readonly number[]): AsyncGenerator<string, void> {
    const { limits, tokenizer } = engine;
    const ids = [...stored.ids, ...prompt];
    const begin = ids.length;
    const end = Math.min(begin + ask.tokens, limits.MAX_CONTEXT);
    const stream = createTextStream(tokenizer, ids);
    const logits: Float32Array[] = [];
    let text = stored.text + ask.text;
    // If a client disconnected during its prompt, the session holds more tokens than are stored.
    engine.truncate(this.#id, stored.ids.length);
    try {
      for (let reason: string | undefined; !reason; await scheduler.wait(0)) {
        const [at, before] = [text.length, ids.length];
        const session = engine.session(this.#id, (empty) => this.#store.restore(stored, empty));
        const isStopped = await this.#slice(session, ids, end, ask, logits);
        for (const id of ids.slice(before)) text += stream.push(id);
        if (isStopped) reason = "stop";
        else if (ids.length === end) reason = end < begin + ask.tokens ? "full" : "length";
        if (reason) text += stream.end();
        if (reason || ids.length > before) {
          const isDue = reason || session.length - stored.held >= limits.CHECKPOINT_TOKENS;
          const written = { text, ids: [...ids], left: reason ? 0 : end - ids.length };
          this.#store.save(stored, written, isDue ? session : undefined);
          await this.ctx.storage.sync();
        }
        // A comment while there is no text: a disconnected client is only detected by writing to it.
        yield text.length > at ? event("text", { at, text: text.slice(at) }, at) : ": reading\n\n";
        if (!reason) continue;
        const sizes = { prompt: prompt.length, answer: ids.length - begin, tokens: ids.length, length: text.length };
        const digest = ask.digest ? await digestOf(logits.slice(0, ids.length - begin)) : undefined;
        yield event("done", { reason, ...sizes, digest });
      }
    } catch (error) {
      // What is stored is consistent, whatever the session holds.
      engine.forget(this.#id);
      console.error(error);
      yield event("error", { code: "internal", message: "internal error, see the log" });
    }
  }

  /**
   * Reads and chooses SLICE_TOKENS tokens at most, and adds those that were chosen to `ids`, up to `end`. Tokens that the session
   * lacks count towards the size of the slice. Returns whether the model ended its text.
   */
  async #slice(session: Session, ids: number[], end: number, ask: Ask, logits: Float32Array[]): Promise<boolean> {
    const { limits, tokenizer } = engine;
    // A text that the model has ended was read to its end: what follows is chosen by reading its last token again.
    if (session.length === ids.length) session.truncate(ids.length - 1);
    const [past, before] = [session.length, ids.length];
    const unread = ids.slice(past, past + limits.SLICE_TOKENS);
    const isPart = past + unread.length < before;
    const maxTokens = isPart ? 0 : Math.min(limits.SLICE_TOKENS - unread.length + 1, end - before);
    if (isPart) forward(session, unread, { top: 1 });
    else {
      const keep = (_: unknown, { data }: { data: Float32Array }) => logits.push(data.slice());
      const options = {
        ...{ maxTokens, temperature: ask.temperature, seed: ask.seed, stopIds: tokenizer.endIds },
        logitsProcessors: ask.digest ? [keep] : [],
        // Without yields to the event loop, so that no other conversation runs meanwhile, which could evict this session.
        sliceMs: Number.MAX_VALUE,
      };
      for await (const { id } of generate(session, unread, options)) ids.push(id);
    }
    this.#read += session.length - past;
    return ids.length < before + maxTokens;
  }
}
