import { warnOnce } from "../../base/platform/host.ts";
import {
  AUTO_MOST,
  endWorker,
  keepAlive,
  listen,
  makeWorkers,
  otherScript,
  type ThreadHost,
  type ThreadWorker,
  type WorkerAnswer,
} from "../../base/platform/workers.ts";
import { HeadwiseError } from "../../base/util/errors.ts";
import { reasonOf } from "../../base/util/strings.ts";
import { chooseKernels, type Kernels, type Threads, wrapKernels } from "../../wasm/kernels.ts";
import {
  type Builds,
  isModule,
  type LoadOptions,
  type Started,
  type StartedInstance,
  startChosen,
} from "../../wasm/modules.ts";
import { SHARING } from "../../wasm/rewrite.ts";
import { SHARES, type Shares, shareKernels } from "./parallel-kernels.ts";
import { SCRIPT, ThreadPool, type WorkerStart } from "./pool.ts";

/** How long to wait, and what to share. */
interface Limits {
  /** Milliseconds for a worker to start: a slow phone needs one second. */
  readonly startMs: number;
  /**
   * Milliseconds without a finished tile after which a worker is given up. A tile is some milliseconds of work, so only a
   * worker that is gone, or a machine that has stood still for seconds, takes longer.
   */
  readonly patienceMs: number;
  readonly shares: Shares;
}

export const LIMITS: Limits = { startMs: 10_000, patienceMs: 10_000, shares: SHARES };

/**
 * Kernels with as many threads as the host allows, up to those requested; with one thread on memory of its own, and a
 * reason, where it allows none.
 */
export async function loadThreaded(
  builds: Builds,
  options: LoadOptions,
  host: ThreadHost,
  { startMs, patienceMs, shares }: Limits = LIMITS,
): Promise<Kernels> {
  const { threads: requested = "auto" } = options;
  const alone = (reason: string) => chooseKernels(builds, { ...options, threads: requested }, reason);
  // A number of threads that cannot be had is warned of there.
  const refused = async (reason: string) => {
    const kernels = await alone(reason);
    if (requested === "auto") warnOnce(`one thread: ${reason}`);
    return kernels;
  };
  const { count, reason } = planThreads(requested, host);
  if (requested !== 1 && !(host.sharing.possible && host.createWorker)) return refused(reason);
  if (count === 1 || !host.createWorker) return alone(reason);
  let started: Started;
  try {
    started = await startChosen(builds, options, SHARING);
  } catch (error) {
    if (!(error instanceof HeadwiseError)) throw error;
    // What else may be wrong with the module or the engine, loading for one thread will report.
    return refused(
      error.code === "ABI_MISMATCH" && hasModule(options)
        ? "a module given does not run on shared memory: it is one for a single thread"
        : "this engine refused shared memory",
    );
  }
  const { instance } = started;
  const pool = new ThreadPool("loadKernels", instance, count > host.processors, patienceMs);
  let failed: readonly string[];
  try {
    failed = await startWorkers(pool, instance, count - 1, host.createWorker, startMs);
  } finally {
    host.close?.();
  }
  if (pool.size === 1) {
    pool.release();
    return refused(`no worker started (${failed[0]})`);
  }
  const missing = failed.length === 0 ? "" : `; ${failed.length} of ${count - 1} workers did not start (${failed[0]})`;
  return wrapKernels(started, {
    get threads(): Threads {
      const lost = pool.lost === 0 ? "" : `; ${pool.lost} of ${count - 1} workers were lost`;
      return { requested, used: pool.size, reason: `${reason}${missing}${lost}` };
    },
    table: shareKernels(instance.kernels, instance.memory, pool, shares),
    release: () => pool.release(),
  });
}

/** How many threads to start, and why. */
export function planThreads(
  requested: number | "auto",
  { sharing, processors, createWorker }: ThreadHost,
): { readonly count: number; readonly reason: string } {
  if (requested === 1) return { count: 1, reason: "one thread was asked for" };
  if (!sharing.possible) return { count: 1, reason: sharing.reason };
  if (!createWorker) return { count: 1, reason: "this host has no workers" };
  if (requested !== "auto") return { count: requested, reason: "as many as were asked for" };
  const count = Math.max(1, Math.min(AUTO_MOST, processors));
  const has = `this host has ${processors} ${processors === 1 ? "processor" : "processors"}`;
  return { count, reason: count < processors ? `${has}; "auto" takes up to ${AUTO_MOST}` : has };
}

/** Whether anything given is compiled, which cannot be changed to share memory any more. */
function hasModule({ module, quantized = {}, latent = {}, models = {}, statistics = {} }: LoadOptions): boolean {
  const parts = [quantized, latent, models, statistics].flatMap((builds: object) => Object.values(builds));
  return [module, ...parts.flatMap((modules) => Object.values(modules ?? {}))].some(isModule);
}

/**
 * Starts workers, all at once, and lets those join that are ready in time. Returns why the others are not. Throws if
 * `createWorker` makes something else; then there is none.
 */
async function startWorkers(
  pool: ThreadPool,
  { modules, wasmMemory: memory }: StartedInstance,
  count: number,
  createWorker: () => ThreadWorker,
  startMs: number,
): Promise<readonly string[]> {
  const { workers, failed } = makeWorkers("loadKernels", count, createWorker);
  const common = { script: SCRIPT, modules: Object.values(modules), memory, control: pool.at, lookFor: pool.lookFor };
  const starts = workers.map((worker, i) => startWorker(pool, worker, { ...common, thread: i + 1 }, startMs));
  const answers = await Promise.all(starts);
  return [...failed, ...answers.filter((why) => why !== undefined)];
}

/** Resolves with nothing when the worker has joined, else with the reason why it has not and is ended. */
function startWorker(
  pool: ThreadPool,
  worker: ThreadWorker,
  start: WorkerStart,
  startMs: number,
): Promise<string | undefined> {
  return new Promise((resolve) => {
    const member = { terminate: () => endWorker(worker) };
    let waiting = true;
    const settle = (why?: string) => {
      clearTimeout(timer);
      if (waiting && why !== undefined) member.terminate();
      waiting = false;
      resolve(why);
    };
    const timer = setTimeout(() => settle(`it was not ready within ${startMs} ms`), startMs);
    /** Posts a message, or gives the worker up. Returns whether it was posted. */
    const post = (message: unknown): boolean => {
      try {
        worker.postMessage(message);
        return true;
      } catch (error) {
        settle(reasonOf(error));
        return false;
      }
    };
    const answered = (message: unknown) => {
      // A worker answers once; what it posts afterwards has no meaning.
      if (!waiting) return;
      const other = otherScript(message, SCRIPT);
      if (other) return settle(`it runs ${other} instead of ${SCRIPT}`);
      const { ready, text } = message as WorkerAnswer;
      if (!ready) return settle(text);
      // It begins only now, so that one that came too late never takes a tile.
      if (!post("begin")) return;
      pool.join(member, start.thread);
      keepAlive(worker, false);
      settle();
    };
    const ended = (why: string) => {
      pool.leave(member);
      // On the web a script may fail and its worker remain.
      member.terminate();
      settle(why);
    };
    listen(worker, answered, ended);
    post(start);
  });
}
