// A model in a worker: the same methods, off the thread that calls them. Tokenizers and templates stay with the caller; the worker
// loads the weights and computes ids and rows.

import {
  endWorker,
  keepAlive,
  listen,
  makeWorkers,
  otherScript,
  scriptName,
  type ThreadHost,
  type ThreadWorker,
} from "../base/platform/workers.ts";
import { describe, HeadwiseError, type HeadwiseErrorCode, tagOf } from "../base/util/errors.ts";
import { reasonOf } from "../base/util/strings.ts";
import type { ModelSource } from "../files/model-files.ts";
import type { GeneratedToken, GenerationEnd } from "../models/generate/generate.ts";
import type { Recipe } from "../retrieval/recipe.ts";
import type { RunOptions, RunTexts, TextTokens } from "../retrieval/run.ts";
import type { Choices } from "./choose.ts";
import type { Engine, EngineEvents, EngineJob } from "./engine.ts";
import type { LoadingOptions, OpenProgress } from "./load.ts";
import type { Hub, Place } from "./source.ts";

/** The name of the script of these workers. */
export const REMOTE_SCRIPT: string = scriptName("headwise/open-worker");

/** An error as it crosses threads. */
interface SentError {
  readonly name: string;
  readonly message: string;
  readonly code?: HeadwiseErrorCode | undefined;
}

/** A file of a list: some engines forget the name of a `File` that is sent. */
export interface SentFile {
  readonly name: string;
  readonly content: Blob;
}

/** What a worker is asked. `id` is that of the answer. */
export type ToWorker =
  | {
      readonly kind: "open";
      readonly script: string;
      /** Where the files are, with `File`s and URLs as they can be sent. */
      readonly place: Omit<Place, "source"> & { readonly source: ModelSource | readonly SentFile[] };
      readonly options: Omit<LoadingOptions, "signal" | "onProgress" | "createWorker" | "statistics">;
      readonly hub: { readonly url: string; readonly token: string | undefined };
      readonly keeps: boolean;
      readonly memory: number | undefined;
      readonly recipe: Recipe;
    }
  | { readonly kind: "generate"; readonly id: number; readonly job: Omit<EngineJob, "logitsProcessors"> }
  | {
      readonly kind: "run";
      readonly id: number;
      /** The public function that asks. */
      readonly where: string;
      readonly batch: readonly TextTokens[];
      readonly options: Omit<RunOptions, "signal" | "onProgress">;
    }
  | { readonly kind: "abort"; readonly id: number };

/** What a worker has opened. */
interface OpenedRemotely {
  readonly type: string;
  readonly vocabSize: number;
  readonly sessionLength: number;
  /** Whether it writes, as opposed to reading texts. */
  readonly writes: boolean;
  readonly isHalves: boolean;
  readonly hears: boolean;
  readonly choices: Choices;
}

/** What a worker answers. */
export type FromWorker = { readonly script: string } & (
  | { readonly kind: "progress"; readonly progress: OpenProgress }
  | { readonly kind: "opened"; readonly opened: OpenedRemotely }
  | { readonly kind: "failed"; readonly id: number | undefined; readonly error: SentError }
  | { readonly kind: "begin"; readonly id: number; readonly read: number; readonly reused: number }
  | { readonly kind: "token"; readonly id: number; readonly token: GeneratedToken }
  | { readonly kind: "end"; readonly id: number; readonly end: GenerationEnd }
  | { readonly kind: "share"; readonly id: number; readonly done: number }
  | { readonly kind: "rows"; readonly id: number; readonly rows: Float32Array[] }
);

/** An error, to be sent. */
export function sendError(error: unknown): SentError {
  const { name = "Error", message = reasonOf(error), code } = Object(error) as Partial<SentError>;
  return { name, message, code };
}

/** An error that was sent, of the class that it had. */
function receiveError({ name, message, code }: SentError): Error {
  if (code !== undefined) return new HeadwiseError(code, message);
  if (name === "RangeError") return new RangeError(message);
  return name === "TypeError" ? new TypeError(message) : new Error(message);
}

/** What waits for answers of one call. */
interface Call {
  answer(message: FromWorker): void;
  fail(error: unknown): void;
}

/** A model in a worker. */
export interface Remote extends OpenedRemotely {
  readonly engine: Engine;
  readonly run: RunTexts;
  release(): void;
}

/** How a worker is asked for a model. */
interface RemoteRequest {
  readonly where: string;
  readonly place: Place;
  readonly options: LoadingOptions;
  readonly hub: Hub;
  readonly keeps: boolean;
  readonly memory: number | undefined;
  readonly recipe: Recipe;
}

/** Opens a model in a worker of `host`, which is ended by `release`. */
export async function openRemotely(host: ThreadHost, request: RemoteRequest): Promise<Remote> {
  const { where, place, options, hub, keeps, memory, recipe } = request;
  const { signal, onProgress, createWorker: _, ...sent } = options;
  const channel = createChannel(where, startWorker(where, host));
  const abort = () => channel.end(signal?.reason);
  try {
    signal?.addEventListener("abort", abort);
    const opened = await new Promise<OpenedRemotely>((resolve, reject) => {
      channel.opening = {
        answer(message) {
          if (message.kind === "progress") onProgress?.(message.progress);
          else if (message.kind === "opened") resolve(message.opened);
          else if (message.kind === "failed") reject(receiveError(message.error));
        },
        fail: reject,
      };
      const hubFields = { url: hub.url.href, token: hub.token };
      const asked = {
        place: { ...place, source: sendable(place.source) },
        options: sent,
        hub: hubFields,
        keeps,
        memory,
        recipe,
      };
      channel.post({ kind: "open", script: REMOTE_SCRIPT, ...asked }, transferable(place.source));
    });
    channel.opening = undefined;
    channel.rest();
    const calls = { engine: remoteEngine(channel, opened), run: remoteRunner(channel) };
    return { ...opened, ...calls, release: () => channel.end() };
  } catch (error) {
    channel.end(error);
    throw error;
  } finally {
    host.close?.();
    signal?.removeEventListener("abort", abort);
  }
}

/** Starts a worker, or closes the host. */
function startWorker(where: string, { createWorker, close }: ThreadHost): ThreadWorker {
  if (!createWorker)
    throw new HeadwiseError("WORKER_LOST", `${where}: options.worker expected a host with workers, got one without`);
  const { workers, failed } = makeWorkers(where, 1, createWorker);
  const [worker] = workers;
  if (worker) return worker;
  close?.();
  throw new HeadwiseError(
    "WORKER_LOST",
    `${where}: options.worker expected a worker that starts, got none: ${failed[0]}`,
  );
}

/** Files with their names, and URLs as text. */
function sendable(source: ModelSource): ModelSource | readonly SentFile[] {
  if (Array.isArray(source)) return (source as readonly File[]).map((file) => ({ name: file.name, content: file }));
  return tagOf(source) === "URL" ? String(source) : source;
}

/** The buffer of bytes, which the worker may have for itself. */
function transferable(source: ModelSource): ArrayBuffer[] {
  const buffer = source instanceof Uint8Array ? source.buffer : source;
  return buffer instanceof ArrayBuffer ? [buffer] : [];
}

/** The messages of a worker, and who waits for them. */
interface Channel {
  opening: Call | undefined;
  /** The number of the next call. */
  next: number;
  readonly calls: Map<number, Call>;
  readonly ended: boolean;
  /** Sends a message. If the worker has ended, the call fails as those that waited then. */
  post(message: ToWorker, transfer?: readonly ArrayBuffer[]): void;
  /** Lets the process end as long as no call waits. */
  rest(): void;
  /** Ends the worker. Calls that wait fail with the error; without one, with RELEASED. */
  end(error?: unknown): void;
}

function createChannel(where: string, worker: ThreadWorker): Channel {
  const calls = new Map<number, Call>();
  let ended = false;
  let failure: unknown;
  const end = (error: unknown = new HeadwiseError("RELEASED", `${where}: model was released`)) => {
    if (ended) return;
    ended = true;
    failure = error;
    endWorker(worker);
    for (const call of [channel.opening, ...calls.values()]) call?.fail(error);
    calls.clear();
  };
  const lost = (why: string) =>
    end(new HeadwiseError("WORKER_LOST", `${where}: the worker of the model was lost: ${why}`));
  const channel: Channel = {
    opening: undefined,
    next: 1,
    calls,
    get ended() {
      return ended;
    },
    post(message, transfer = []) {
      if (ended) {
        if ("id" in message) calls.get(message.id)?.fail(failure);
        return;
      }
      keepAlive(worker, true);
      (worker as { postMessage(message: ToWorker, transfer: readonly ArrayBuffer[]): void }).postMessage(
        message,
        transfer,
      );
    },
    rest() {
      if (calls.size === 0) keepAlive(worker, false);
    },
    end,
  };
  const answered = (data: unknown) => {
    if (ended) return;
    const other = otherScript(data, REMOTE_SCRIPT);
    if (other) {
      const text = `${where}: options.worker expected a worker that runs ${REMOTE_SCRIPT}, got ${other}`;
      return end(new HeadwiseError("ABI_MISMATCH", text));
    }
    const message = data as FromWorker;
    const call = "id" in message && message.id !== undefined ? calls.get(message.id) : channel.opening;
    call?.answer(message);
  };
  listen(worker, answered, lost);
  return channel;
}

/** A call that waits for answers: its number, and what ends the wait. */
function beginCall(channel: Channel, call: Call): { readonly id: number; settle(): void } {
  const id = channel.next++;
  channel.calls.set(id, call);
  const settle = () => {
    channel.calls.delete(id);
    channel.rest();
  };
  return { id, settle };
}

/** An engine that is in the worker. */
function remoteEngine(channel: Channel, opened: OpenedRemotely): Engine {
  const { type, vocabSize, sessionLength, isHalves } = opened;
  return {
    ...{ type, vocabSize, sessionLength, isHalves },
    get released() {
      return channel.ended;
    },
    generate({ logitsProcessors, ...job }: EngineJob, events: EngineEvents) {
      const call: Call = {
        answer(message) {
          if (message.kind === "begin") events.begin(message.read, message.reused);
          else if (message.kind === "token") events.token(message.token);
          else if (message.kind === "failed") call.fail(receiveError(message.error));
          else if (message.kind === "end") {
            settle();
            events.end(message.end);
          }
        },
        fail(error) {
          settle();
          events.end({ reason: "error", error });
        },
      };
      const { id, settle } = beginCall(channel, call);
      if (logitsProcessors?.length) {
        const rule = "logitsProcessors expected none with the option worker";
        call.fail(new TypeError(`generateMany: ${rule}, got ${describe(logitsProcessors)}`));
      } else channel.post({ kind: "generate", id, job });
      return () => {
        if (channel.calls.has(id)) channel.post({ kind: "abort", id });
      };
    },
  };
}

/** Rows by the model in the worker. */
function remoteRunner(channel: Channel): RunTexts {
  return (where, batch, { signal, onProgress, ...options }) =>
    new Promise((resolve, reject) => {
      const abort = () => {
        channel.post({ kind: "abort", id });
        call.fail(signal?.reason);
      };
      const call: Call = {
        answer(message) {
          if (message.kind === "share") report(message.done);
          else if (message.kind === "failed") call.fail(receiveError(message.error));
          else if (message.kind === "rows") {
            done();
            resolve(message.rows);
          }
        },
        fail(error) {
          done();
          reject(error);
        },
      };
      const { id, settle } = beginCall(channel, call);
      /** What the caller's function throws ends the call, as it does without a worker. */
      const report = (share: number) => {
        try {
          onProgress?.(share);
        } catch (error) {
          channel.post({ kind: "abort", id });
          call.fail(error);
        }
      };
      const done = () => {
        settle();
        signal?.removeEventListener("abort", abort);
      };
      signal?.addEventListener("abort", abort);
      if (signal?.aborted) call.fail(signal.reason);
      else channel.post({ kind: "run", id, where, batch, options });
    });
}
