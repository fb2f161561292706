import { listen, type ThreadWorker } from "../platform/workers.ts";
import { HeadwiseError } from "../util/errors.ts";
import { buffersIn } from "./partition.ts";
import { createShard, type ShardReply, type ShardRequest } from "./shard.ts";

/** The shards of one attention, wherever they run. */
export interface ShardPool {
  /**
   * Sends each shard its request and waits for all replies. Throws the first error among them, WORKER_LOST once a worker
   * has ended by itself, and what `end` was told. One call at a time.
   */
  ask(where: string, requests: readonly ShardRequest[]): Promise<readonly ShardReply[]>;
  /** Sends a request that has no reply. */
  tell(request: ShardRequest): void;
  /** Ends all workers, and what waits for them with `error`. */
  end(error: (where: string) => Error): void;
}

/** One shard: where requests go. */
interface Seat {
  post(request: ShardRequest): void;
  /** Whether the process stays alive for it. */
  keep(alive: boolean): void;
  end(): void;
}

/** What the workers of Node have beside those of the web. */
interface Counted {
  ref?(): void;
  unref?(): void;
}

type TakesMoved = (message: unknown, moved: readonly Transferable[]) => void;

/** A shard in a worker. */
function seatWorker(worker: ThreadWorker, answered: (reply: ShardReply) => void, ended: (why: string) => void): Seat {
  listen(worker, (reply: ShardReply) => answered(reply), ended);
  const counted = worker as Counted;
  return {
    post(request) {
      const ports = request.kind === "start" ? request.peers.filter((port) => port !== undefined) : [];
      (worker.postMessage as TakesMoved).call(worker, request, [...buffersIn(request), ...ports]);
    },
    keep: (alive) => (alive ? counted.ref?.() : counted.unref?.()),
    end: () => void worker.terminate(),
  };
}

/** A shard on the calling thread, where there are no workers. */
function seatHere(answered: (reply: ShardReply) => void): Seat {
  const answer = createShard();
  return {
    post: (request) => void answer(request).then((reply) => reply && answered(reply)),
    keep: () => {},
    end: () => {},
  };
}

/** A shard in each worker that `createWorker` makes, or one on the calling thread without it. */
export function createShardPool(count: number, createWorker: (() => ThreadWorker) | undefined): ShardPool {
  let over: ((where: string) => Error) | undefined;
  const waiting: { replies: ShardReply[]; left: number; done(): void } = { replies: [], left: 0, done() {} };
  const answered = (i: number) => (reply: ShardReply) => {
    waiting.replies[i] = reply;
    if (--waiting.left === 0) waiting.done();
  };
  const end = (error: (where: string) => Error) => {
    over ??= error;
    for (const seat of seats) seat.end();
    waiting.done();
  };
  const lost = (why: string) =>
    end((where) => {
      const text = `${where}: a worker was lost (${why}), and with it its heads and what their caches held; release this attention and make another`;
      return new HeadwiseError("WORKER_LOST", text, { cause: why });
    });
  const expectOpen = (where: string) => {
    if (over) throw over(where);
  };
  const seats: Seat[] = [];
  try {
    for (let i = 0; i < count; i++)
      seats.push(createWorker ? seatWorker(createWorker(), answered(i), lost) : seatHere(answered(i)));
  } catch (error) {
    for (const seat of seats) seat.end();
    throw error;
  }
  for (const seat of seats) seat.keep(false);
  return {
    async ask(where, requests) {
      expectOpen(where);
      const replies: ShardReply[] = [];
      await new Promise<void>((done) => {
        Object.assign(waiting, { replies, left: count, done });
        try {
          for (const [i, seat] of seats.entries()) {
            seat.keep(true);
            seat.post(requests[i] as ShardRequest);
          }
        } catch (error) {
          // Some shards have begun and wait for the others' heads: nothing that is sent after this would fit.
          lost(`a message to it failed: ${error}`);
        }
      });
      for (const seat of seats) seat.keep(false);
      expectOpen(where);
      const { error } = replies.find((reply) => reply.error) ?? {};
      if (error) throw error.code ? new HeadwiseError(error.code, error.message) : new Error(error.message);
      return replies;
    },
    tell(request) {
      if (!over) for (const seat of seats) seat.post(request);
    },
    end,
  };
}
