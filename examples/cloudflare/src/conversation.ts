// The Durable Object of one conversation. The platform distributes objects over its machines, so scaling out needs nothing
// else. Answers are computed in slices: a slice is computed without a pause, then stored, then sent. So tokens that a client
// has seen are never lost, and other conversations of the isolate run between two slices.

import { DurableObject } from "cloudflare:workers";
import type { Cache } from "headwise";
import type { Ask } from "./ask.ts";
import { argmax } from "./decoder.ts";
import { digestOf } from "./digest.ts";
import { engine } from "./engine.ts";
import { event, eventStream, HttpError, json, respond } from "./http.ts";
import type { Env } from "./limits.ts";
import { Store, type Stored } from "./store.ts";

const DAY_MS = 86_400_000;

export class Conversation extends DurableObject<Env> {
  readonly #id: string;
  readonly #store: Store;
  #stored: Stored | undefined;
  #busy = false;

  constructor(ctx: DurableObjectState, env: Env) {
    super(ctx, env);
    this.#id = ctx.id.toString();
    this.#store = new Store(ctx.storage);
    this.#stored = this.#store.read();
    // The caches of an earlier object of this conversation may hold more tokens than the stored text.
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

  /** The text from token `from` on, and the state of the conversation. */
  describe(from: number): Promise<Response> {
    return respond(() => {
      const { text, created } = this.#known();
      const { MAX_CONTEXT } = engine.limits;
      const { trainedLen } = engine.model;
      const sizes = { length: text.length, maxLength: MAX_CONTEXT, trainedLength: trainedLen };
      return json({ id: this.#id, created, ...sizes, busy: this.#busy, from, text: text.slice(from) });
    });
  }

  /** Adds the prompt and streams the tokens that follow. */
  generate(ask: Ask): Promise<Response> {
    return respond(() => {
      const stored = this.#known();
      const { length } = stored.text;
      const { MAX_CONTEXT } = engine.limits;
      if (this.#busy) throw new HttpError(409, "session_busy", "another answer is under way", { "retry-after": "1" });
      if (ask.at !== undefined && ask.at !== length)
        throw new HttpError(409, "wrong_position", `the conversation has ${length} tokens, not ${ask.at}`);
      if (length + ask.prompt.length === 0)
        throw new HttpError(422, "empty_prompt", "a conversation begins with a text of one character or more");
      if (length + ask.prompt.length + ask.tokens > MAX_CONTEXT) {
        const text = `${length} + ${ask.prompt.length} + ${ask.tokens} tokens exceed the ${MAX_CONTEXT} of a conversation`;
        throw new HttpError(422, "context_full", text);
      }
      if (!engine.begin(this.#id))
        throw new HttpError(429, "too_busy", "too many answers are under way here", { "retry-after": "1" });
      this.#busy = true;
      return eventStream(this.#answer(stored, ask), () => this.#finish());
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

  /** Idle: releases the cache, and later deletes the conversation. */
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
    return json({ ...engine.state, held: this.#stored?.held });
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

  async *#answer(stored: Stored, { prompt, tokens: count, digest }: Ask): AsyncGenerator<string, void> {
    const { model } = engine;
    const begin = stored.text.length + prompt.length;
    const tokens = [...model.encode(stored.text), ...prompt];
    const logits: Float32Array[] = [];
    // If a client disconnected during its prompt, the caches hold more tokens than the text.
    engine.truncate(this.#id, stored.text.length);
    try {
      while (tokens.length < begin + count) {
        const from = tokens.length;
        this.#slice(stored, tokens, begin + count, logits);
        await this.ctx.storage.sync();
        let events = "";
        for (let index = Math.max(from, begin); index < tokens.length; index++)
          events += event("token", { index, text: model.vocabulary[tokens[index]!] }, index);
        if (!digest) logits.length = 0;
        // A comment while the prompt is still read: a disconnected client is only detected by writing to it.
        yield events || ": reading\n\n";
        await scheduler.wait(0);
      }
      const sizes = { prompt: prompt.length, tokens: count, length: tokens.length };
      yield event("done", { ...sizes, ...(digest && { digest: await digestOf(logits) }) });
    } catch (error) {
      // The caches may now differ in length; what is stored is consistent.
      engine.forget(this.#id);
      console.error(error);
      yield event("error", { code: "internal", message: "internal error, see the log" });
    }
  }

  /** Computes tokens up to `end` and stores them. Tokens that are missing in the caches count towards the size of the slice. */
  #slice(stored: Stored, tokens: number[], end: number, logits: Float32Array[]): void {
    const { limits, model } = engine;
    const caches = engine.caches(this.#id, (empty) => this.#store.restore(stored, empty));
    const known = tokens.length;
    for (let room = limits.SLICE_TOKENS; room > 0 && tokens.length < end; ) {
      const { length: held } = caches[0] as Cache;
      const fed = tokens.slice(held, held + room);
      room -= fed.length;
      const next = engine.next(fed, caches);
      if (held + fed.length < tokens.length) break;
      tokens.push(argmax(next));
      logits.push(next);
    }
    if (tokens.length === known) return;
    const text = tokens.map((token) => model.vocabulary[token]).join("");
    const behind = (caches[0] as Cache).length - stored.held;
    if (tokens.length === end || behind >= limits.CHECKPOINT_TOKENS) this.#store.savePages(stored, text, caches);
    else this.#store.saveText(stored, text);
  }
}
