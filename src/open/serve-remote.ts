// What a worker does with the messages of `remote.ts`: loads a model, and computes what it is asked for.

import { machineMemory } from "../base/platform/host.ts";
import { otherScript } from "../base/platform/workers.ts";
import { HeadwiseError } from "../base/util/errors.ts";
import type { ModelSource } from "../files/model-files.ts";
import { chooseMemory } from "./choose.ts";
import { type KernelHost, type Loaded, loadParts } from "./load.ts";
import { recognise } from "./recognise.ts";
import { type FromWorker, REMOTE_SCRIPT, type SentFile, sendError, type ToWorker } from "./remote.ts";
import { createUrlOpener, defaultStore, type Fetch, readHub } from "./source.ts";

const WHERE = "openModel";

/** Messages without what each of them has. */
type Reply = FromWorker extends infer Message ? (Message extends unknown ? Omit<Message, "script"> : never) : never;

/** Sends answers of a worker. */
type Send = (message: FromWorker, transfer: readonly ArrayBuffer[]) => void;

/** The worker's side: it opens one model, and computes what it is asked for. */
export class RemoteServer {
  readonly #host: KernelHost & { readonly fetch: Fetch };
  readonly #send: Send;
  #loaded: Loaded | undefined;
  /** What ends the calls that run, by their numbers. */
  readonly #ends = new Map<number, () => void>();

  constructor(host: KernelHost & { readonly fetch: Fetch }, send: Send) {
    this.#host = host;
    this.#send = send;
  }

  /** Does what a message asks for. */
  receive(data: unknown): void {
    const message = data as ToWorker;
    const id = "id" in message ? message.id : undefined;
    const failed = (error: unknown) => this.#reply({ kind: "failed", id, error: sendError(error) });
    if (message.kind === "generate") this.#generate(message);
    else if (message.kind === "run") this.#run(message).catch(failed);
    else if (message.kind === "abort") this.#ends.get(message.id)?.();
    else this.#open(message).catch(failed);
  }

  #reply(message: Reply, transfer: readonly ArrayBuffer[] = []): void {
    this.#send({ ...message, script: REMOTE_SCRIPT } as FromWorker, transfer);
  }

  async #open(asked: ToWorker & { readonly kind: "open" }): Promise<void> {
    const other = otherScript(asked, REMOTE_SCRIPT);
    if (other) throw new HeadwiseError("ABI_MISMATCH", `${REMOTE_SCRIPT} was started by ${other}`);
    const { options, keeps, memory } = asked;
    const host = this.#host;
    const hub = readHub(WHERE, asked.hub.url, asked.hub.token);
    const store = keeps ? defaultStore() : undefined;
    const opener = createUrlOpener(store, hub, host.fetch);
    const { source } = asked.place;
    const files =
      Array.isArray(source) && (source as readonly SentFile[]).map(({ name, content }) => new File([content], name));
    const place = { ...asked.place, source: files || (source as ModelSource) };
    const description = { ...(await recognise(WHERE, place, undefined, opener)), recipe: asked.recipe };
    const reason = store ? "the cache of this user or origin" : "asked for, or this host has no place for it";
    this.#loaded = await loadParts({
      ...{ where: WHERE, host, place, description, opener },
      options: { ...options, onProgress: (progress) => this.#reply({ kind: "progress", progress }) },
      memory: chooseMemory(memory, machineMemory()),
      store: { value: store !== undefined, reason },
    });
    opener.drop();
    const { model, engine, choices } = this.#loaded;
    const { type, vocabSize, spec, encoder } = model;
    const hears = encoder?.spec.embed.channels !== undefined;
    const kinds = { writes: engine !== undefined, isHalves: encoder !== undefined, hears };
    const opened = { type, vocabSize, sessionLength: spec.sessionLength, ...kinds, choices };
    this.#reply({ kind: "opened", opened });
  }

  #generate({ id, job }: ToWorker & { readonly kind: "generate" }): void {
    const end = this.#loaded?.engine?.generate(job, {
      begin: (read, reused) => this.#reply({ kind: "begin", id, read, reused }),
      token: (token) => this.#reply({ kind: "token", id, token }),
      end: (how) => {
        this.#ends.delete(id);
        if (how.reason === "error") this.#reply({ kind: "failed", id, error: sendError(how.error) });
        else this.#reply({ kind: "end", id, end: how });
      },
    });
    if (end) this.#ends.set(id, end);
  }

  async #run({ id, where, batch, options }: ToWorker & { readonly kind: "run" }): Promise<void> {
    const abort = new AbortController();
    this.#ends.set(id, () => abort.abort());
    try {
      const onProgress = (done: number) => this.#reply({ kind: "share", id, done });
      const rows = (await this.#loaded?.run?.(where, batch, { ...options, signal: abort.signal, onProgress })) ?? [];
      this.#reply({ kind: "rows", id, rows }, [...new Set(rows.map(({ buffer }) => buffer as ArrayBuffer))]);
    } finally {
      this.#ends.delete(id);
    }
  }
}
