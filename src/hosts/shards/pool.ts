import { endWorker, keepAlive, listen, otherScript, type ThreadWorker } from "../../base/platform/workers.ts";
import { HeadwiseError } from "../../base/util/errors.ts";
import { reasonOf } from "../../base/util/strings.ts";
import {
  createShard,
  namedError,
  SCRIPT,
  type ShardMessage,
  type ShardReply,
  type ShardRequest,
  transfersOf,
} from "./shard.ts";

/** Whether the reply of shard i can be the result of its request. */
type Fits = (reply: ShardReply, i: number) => boolean;

/** The shards of an attention, in workers or on the calling thread. */
export interface ShardPool {
  /**
   * Sends each shard its request and resolves to all replies. Throws the first error among them, WORKER_LOST if a
   * worker has ended by itself or has posted what cannot be its reply, and after `end` the error passed to that. One
   * call at a time.
   */
  request(where: string, requests: readonly ShardRequest[], fits?: Fits): Promise<readonly ShardReply[]>;
  /** Sends a request that has no reply. */
  post(request: ShardRequest): void;
  /** Ends all workers, and pending requests with `error`. */
  end(error: (where: string) => Error): void;
}

/** One shard, to which requests are posted. */
interface Endpoint {
  post(id: number, request: ShardRequest): void;
  /** Whether the shard keeps the process alive. */
  keepAlive(alive: boolean): void;
  end(): void;
}

type PostTransferring = (message: ShardMessage<ShardRequest>, transfer: readonly Transferable[]) => void;

/** A shard in a worker. */
function workerEndpoint(
  worker: ThreadWorker,
  answered: (message: unknown) => void,
  ended: (why: string) => void,
): Endpoint {
  listen(worker, answered, ended);
  return {
    post: (id, body) =>
      (worker.postMessage as PostTransferring).call(worker, { script: SCRIPT, id, body }, transfersOf(body)),
    keepAlive: (alive) => keepAlive(worker, alive),
    end: () => endWorker(worker),
  };
}

/** A shard on the calling thread, for hosts without workers. */
function localEndpoint(answered: (message: ShardMessage<ShardReply>) => void): Endpoint {
  let answer: ReturnType<typeof createShard> | undefined = createShard();
  return {
    post: (id, request) =>
      void answer?.(request).then((body) => {
        if (body) answered({ script: SCRIPT, id, body });
      }),
    keepAlive: () => {},
    end() {
      // With its memory, which a released attention would keep.
      answer = undefined;
    },
  };
}

/** The id of requests without reply; those of calls are counted from 1. */
const NO_CALL = 0;

const STRAY = "it posted what cannot be its answer";

/** The call that waits for the replies to its requests. */
interface Waiting {
  readonly id: number;
  readonly replies: (ShardReply | undefined)[];
  left: number;
  done(): void;
}

/** Creates a shard in each of the workers, or without workers one on the calling thread. */
export function createShardPool(workers: readonly ThreadWorker[] | undefined): ShardPool {
  let endError: ((where: string) => Error) | undefined;
  let waiting: Waiting | undefined;
  let calls = 0;
  const end = (error: (where: string) => Error) => {
    if (endError) return;
    endError = error;
    for (const endpoint of endpoints) endpoint.end();
    waiting?.done();
  };
  const lost = (why: string) =>
    end((where) => {
      const text = `${where}: a worker was lost (${why}), and with it its heads and what their caches held; release this attention and make another`;
      return new HeadwiseError("WORKER_LOST", text, { cause: why });
    });
  const answered = (i: number) => (message: unknown) => {
    if (endError) return;
    const other = otherScript(message, SCRIPT);
    // What a worker posts first shows which script it runs.
    if (other && calls <= 1)
      return end((where) => {
        const rule = `a function that returns a new Worker of ${SCRIPT}`;
        return new HeadwiseError("ABI_MISMATCH", `${where}: createWorker expected ${rule}, got one of ${other}`);
      });
    const { id, body } = (other ? {} : message) as Partial<ShardMessage<ShardReply>>;
    if (!waiting || id !== waiting.id || waiting.replies[i] || typeof body !== "object" || body === null)
      return lost(STRAY);
    waiting.replies[i] = body;
    if (--waiting.left === 0) waiting.done();
  };
  const expectOpen = (where: string) => {
    if (endError) throw endError(where);
  };
  const post = (endpoint: Endpoint, id: number, request: ShardRequest) => {
    try {
      endpoint.post(id, request);
    } catch (error) {
      // Some shards may have begun and wait for the heads of others, so no later request could be answered.
      lost(`a message to it failed: ${reasonOf(error)}`);
    }
  };
  const endpoints: readonly Endpoint[] = workers?.map((worker, i) => workerEndpoint(worker, answered(i), lost)) ?? [
    localEndpoint(answered(0)),
  ];
  const keepAllAlive = (alive: boolean) => {
    for (const endpoint of endpoints) endpoint.keepAlive(alive);
  };
  keepAllAlive(false);
  return {
    async request(where, requests, fits = () => true) {
      expectOpen(where);
      const replies: (ShardReply | undefined)[] = [];
      await new Promise<void>((done) => {
        waiting = { id: ++calls, replies, left: endpoints.length, done };
        keepAllAlive(true);
        for (const [i, endpoint] of endpoints.entries())
          if (!endError) post(endpoint, calls, requests[i] as ShardRequest);
      });
      waiting = undefined;
      keepAllAlive(false);
      expectOpen(where);
      const all = replies as ShardReply[];
      const error = all.find((reply) => reply.error)?.error;
      if (error) throw namedError(where, error);
      if (!all.every(fits)) lost(STRAY);
      expectOpen(where);
      return all;
    },
    post(request) {
      for (const endpoint of endpoints) if (!endError) post(endpoint, NO_CALL, request);
    },
    end,
  };
}
