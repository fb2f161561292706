import { keepAlive, listen, type ThreadWorker } from "../platform/workers.ts";
import { HeadwiseError } from "../util/errors.ts";
import { buffersIn } from "./partition.ts";
import { createShard, type ShardReply, type ShardRequest } from "./shard.ts";

/** The shards of an attention, in workers or on the calling thread. */
export interface ShardPool {
  /**
   * Sends each shard its request and resolves to all replies. Throws the first error among them, WORKER_LOST if a
   * worker has ended by itself, and after `end` the error passed to that. One call at a time.
   */
  request(where: string, requests: readonly ShardRequest[]): Promise<readonly ShardReply[]>;
  /** Sends a request that has no reply. */
  post(request: ShardRequest): void;
  /** Ends all workers, and pending requests with `error`. */
  end(error: (where: string) => Error): void;
}

/** One shard, to which requests are posted. */
interface Endpoint {
  post(request: ShardRequest): void;
  /** Whether the shard keeps the process alive. */
  keepAlive(alive: boolean): void;
  end(): void;
}

type PostTransferring = (message: unknown, transfer: readonly Transferable[]) => void;

/** A shard in a worker. */
function workerEndpoint(
  worker: ThreadWorker,
  answered: (reply: ShardReply) => void,
  ended: (why: string) => void,
): Endpoint {
  listen(worker, answered, ended);
  return {
    post(request) {
      const ports = request.kind === "start" ? request.peers.filter((port) => port !== undefined) : [];
      (worker.postMessage as PostTransferring).call(worker, request, [...buffersIn(request), ...ports]);
    },
    keepAlive: (alive) => keepAlive(worker, alive),
    end: () => void worker.terminate(),
  };
}

/** A shard on the calling thread, for hosts without workers. */
function localEndpoint(answered: (reply: ShardReply) => void): Endpoint {
  const answer = createShard();
  return {
    post: (request) => void answer(request).then((reply) => reply && answered(reply)),
    keepAlive: () => {},
    end: () => {},
  };
}

/** Creates a shard in each worker that `createWorker` makes, or without it one on the calling thread. */
export function createShardPool(count: number, createWorker: (() => ThreadWorker) | undefined): ShardPool {
  let endError: ((where: string) => Error) | undefined;
  const waiting: { replies: ShardReply[]; left: number; done(): void } = { replies: [], left: 0, done() {} };
  const answered = (i: number) => (reply: ShardReply) => {
    waiting.replies[i] = reply;
    if (--waiting.left === 0) waiting.done();
  };
  const end = (error: (where: string) => Error) => {
    endError ??= error;
    for (const endpoint of endpoints) endpoint.end();
    waiting.done();
  };
  const lost = (why: string) =>
    end((where) => {
      const text = `${where}: a worker was lost (${why}), and with it its heads and what their caches held; release this attention and make another`;
      return new HeadwiseError("WORKER_LOST", text, { cause: why });
    });
  const expectOpen = (where: string) => {
    if (endError) throw endError(where);
  };
  const endpoints: Endpoint[] = [];
  try {
    for (let i = 0; i < count; i++)
      endpoints.push(createWorker ? workerEndpoint(createWorker(), answered(i), lost) : localEndpoint(answered(i)));
  } catch (error) {
    for (const endpoint of endpoints) endpoint.end();
    throw error;
  }
  for (const endpoint of endpoints) endpoint.keepAlive(false);
  return {
    async request(where, requests) {
      expectOpen(where);
      const replies: ShardReply[] = [];
      await new Promise<void>((done) => {
        Object.assign(waiting, { replies, left: count, done });
        try {
          for (const [i, endpoint] of endpoints.entries()) {
            endpoint.keepAlive(true);
            endpoint.post(requests[i] as ShardRequest);
          }
        } catch (error) {
          // Some shards have begun and wait for the heads of others, so no later request could be answered.
          lost(`a message to it failed: ${error}`);
        }
      });
      for (const endpoint of endpoints) endpoint.keepAlive(false);
      expectOpen(where);
      const { error } = replies.find((reply) => reply.error) ?? {};
      if (error) throw error.code ? new HeadwiseError(error.code, error.message) : new Error(error.message);
      return replies;
    },
    post(request) {
      if (!endError) for (const endpoint of endpoints) endpoint.post(request);
    },
    end,
  };
}
