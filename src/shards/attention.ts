import { checkWeights } from "../attention/check-weights.ts";
import { type AttentionConfig, type CheckedConfig, checkConfig } from "../attention/config.ts";
import {
  checkWeightOptions,
  expectFormatsLoaded,
  WEIGHT_OPTIONS,
  type WeightOptions,
} from "../attention/weight-options.ts";
import type { AttentionWeights } from "../attention/weights.ts";
import type { ThreadHost, ThreadWorker } from "../platform/workers.ts";
import { expectFlag, expectFunction, expectInt, readFields } from "../util/arguments.ts";
import { HeadwiseError } from "../util/errors.ts";
import { type Handle, makeHandle, type Releasable } from "../util/lifetime.ts";
import { type Build, type Builds, type Choice, type QuantizedKernels, startChosen } from "../wasm/select-build.ts";
import { failureOf, namedError } from "./failure.ts";
import type { Share } from "./partition.ts";
import type { ShardPool } from "./pool.ts";
import { cutterOf, type Shards, type StartedShards, startShards } from "./start.ts";

/** One attention layer whose heads are divided among workers. Each worker has memory of its own. */
export interface ShardedAttention extends Releasable, Handle {
  /** The configuration with every default filled in. */
  readonly config: CheckedConfig;
  /** The build that runs. */
  readonly build: Build;
  /** Why this build runs, in words. */
  readonly reason: string;
  /** The shards of the layer. */
  readonly shards: Shards;
  /** Whether `release()` was called. */
  readonly released: boolean;
  /** @internal */
  readonly pool: ShardPool;
  /** @internal */
  readonly shares: readonly Share[];
  /** @internal Arrays for copies of x, one for each shard, of the length of the last x. */
  readonly spares: (Float32Array | undefined)[];
  /** @internal The number of caches created so far. */
  readonly caches: { made: number };
  /** @internal Runs `work` after all earlier work has settled. */
  queue<T>(work: () => Promise<T>): Promise<T>;
}

/** Options of `createShardedAttention`. */
export interface ShardOptions extends WeightOptions {
  /** Shards, 1 to 64, at most one per key-value head. Default "auto": one per processor, up to 8. */
  readonly shards?: number | "auto";
  /** Use the build "simd", which gives the same bits on every engine. Default false: the faster build on this engine. */
  readonly deterministic?: boolean;
  /** Kernels for weights other than float32: `quantized` of `headwise/quantized`, or your own modules. Default none. */
  readonly quantized?: QuantizedKernels;
  /**
   * Makes a worker that runs `headwise/shards-worker` of this version, a new one at each call, for pages whose content
   * security policy forbids workers made from inlined source. Default a worker made from inlined source.
   */
  readonly createWorker?: () => ThreadWorker;
}

const MOST_SHARDS = 64;

/** Milliseconds in which all workers must start and pack their weights. A phone packs a large layer in a second. */
const START_MS = 30_000;

/** `createShardedAttention` for the given builds; `hostFor` finds the workers of the host, or uses the caller's. */
export async function createSharded(
  builds: Builds,
  hostFor: (createWorker: ShardOptions["createWorker"]) => ThreadHost,
  config: AttentionConfig,
  weights: AttentionWeights,
  options: ShardOptions,
  startMs: number = START_MS,
): Promise<ShardedAttention> {
  const where = "createShardedAttention";
  const checked = checkConfig(where, config);
  const read = readFields(where, "options", options, OPTIONS);
  const { requested, choice, createWorker } = checkOptions(where, read);
  const quantized = choice.quantized !== undefined;
  const given = checkWeights(where, checked, weights, checkWeightOptions(where, "options.", read), quantized);
  expectFormatsLoaded(where, quantized, given.formats, `${where}(config, weights, `);
  const cut = cutterOf(where, checked, given);
  const { instance, reason } = await startChosen(builds, choice).catch((cause) => {
    throw namedError(where, failureOf(cause), { cause });
  });
  const { modules, relaxed } = instance;
  const host = hostFor(createWorker);
  try {
    const cutShares = (shares: readonly Share[]) => cut(modules, shares);
    const started = await startShards(where, checked, requested, host, startMs, cutShares);
    return makeSharded(checked, relaxed ? "relaxed" : "simd", reason, started);
  } finally {
    host.close?.();
  }
}

/** A function of its own: variables that its inner functions share live as long as the handle, so the weights are none. */
function makeSharded(
  config: CheckedConfig,
  build: Build,
  reason: string,
  { pool, shares, shards }: StartedShards,
): ShardedAttention {
  const spares: (Float32Array | undefined)[] = [];
  let before: Promise<void> = Promise.resolve();
  const settled = () => {};
  const free = () => {
    spares.length = 0;
    pool.end((caller) => new HeadwiseError("RELEASED", `${caller}: attention was released`));
  };
  const parts = {
    config,
    build,
    reason,
    shards,
    pool,
    shares,
    spares,
    caches: { made: 0 },
    queue<T>(work: () => Promise<T>) {
      const done = before.then(work);
      // Without the result, which would live as long as the attention.
      before = done.then(settled, settled);
      return done;
    },
  };
  const internal = ["pool", "shares", "spares", "caches"] as const;
  return makeHandle<ShardedAttention>("ShardedAttention", "createShardedAttention", parts, internal, free);
}

const OPTIONS = ["shards", "deterministic", "quantized", "createWorker", ...WEIGHT_OPTIONS];

function checkOptions(
  where: string,
  { shards: requested = "auto", createWorker, deterministic, quantized }: ShardOptions,
): { requested: number | "auto"; choice: Choice; createWorker: ShardOptions["createWorker"] } {
  if (requested !== "auto") expectInt(where, "shards", requested, 1, MOST_SHARDS);
  if (createWorker !== undefined) expectFunction(where, "createWorker", createWorker);
  const choice = { deterministic: expectFlag(where, "deterministic", deterministic), quantized };
  return { requested, choice, createWorker };
}
