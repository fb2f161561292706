// Formats, threads and lengths that suit a model, its host, and the memory that there is; each with its reason.

import type { MachineMemory } from "../base/platform/host.ts";
import { memorySharing } from "../base/platform/workers.ts";
import type { Global } from "../base/util/arguments.ts";
import { HeadwiseError } from "../base/util/errors.ts";
import type { ModelStore } from "../files/store.ts";
import type { WeightFormat } from "../layers/linear/formats.ts";
import type { CacheFormat } from "../layers/state/pages.ts";
import { planModelFiles } from "../models/load/load-model.ts";
import type { ModelFormats, ModelPlan } from "../models/load/plan-model.ts";
import { gguf } from "../models/spec/read-gguf.ts";
import { LARGEST_MEMORY } from "../wasm/memory.ts";
import type { Description } from "./recognise.ts";
import type { Place } from "./source.ts";

/** What was chosen, and why, in words. */
export interface Choice<Value> {
  /** What was chosen. */
  readonly value: Value;
  /** Why. */
  readonly reason: string;
}

/** What `openModel` chose for a model. */
export interface Choices {
  /** The build of the kernels. */
  readonly build: Choice<"simd" | "relaxed">;
  /** Threads that run; 0 for a table of rows, which runs no kernels. */
  readonly threads: Choice<number>;
  /** The formats of the weights: "stored" for those of the files. */
  readonly weights: Choice<WeightFormat | ModelFormats | "stored">;
  /** The format of what sessions keep of their tokens; undefined for a model that keeps none. */
  readonly cache: Choice<CacheFormat> | undefined;
  /** Tokens of the longest sequence: of a conversation, or of a text. */
  readonly maxSeqLen: Choice<number | undefined>;
  /** Whether what is read of URLs is kept for the next time. */
  readonly store: Choice<boolean>;
  /** Bytes of memory that the model may take. */
  readonly memory: Choice<number>;
}

/** What a caller wants of a decoder's formats. */
interface Wanted {
  readonly weights: WeightFormat | ModelFormats | undefined;
  readonly cache: CacheFormat | undefined;
  readonly maxSeqLen: number | undefined;
}

/** What is chosen of a decoder before it is loaded. */
interface DecoderChoices extends Pick<Choices, "weights" | "maxSeqLen"> {
  readonly cache: Choice<CacheFormat>;
  readonly plan: ModelPlan;
}

const ASKED = "asked for";

/**
 * The memory that a model may take: what was asked for, or what the machine has, and never more than 32 bits address beside the bytes
 * that others use of it.
 */
export function chooseMemory(given: number | undefined, machine: MachineMemory | undefined, used = 0): Choice<number> {
  const most = LARGEST_MEMORY - used;
  const { bytes, reason } =
    given === undefined ? (machine ?? { bytes: LARGEST_MEMORY, reason: "" }) : { bytes: given, reason: ASKED };
  if (bytes >= most) return { value: most, reason: "what WebAssembly can address" };
  return { value: bytes, reason };
}

/** Models whose weights take less than this run on one thread: passes are too short to be divided. */
const LEAST_SHARED = 2 ** 25;

/** The threads to ask for; undefined in `reason` means that the host decides. */
export function chooseThreads(
  given: number | "auto" | undefined,
  weightBytes: number,
): { readonly threads: number | "auto"; readonly reason: string | undefined } {
  if (given !== undefined) return { threads: given, reason: undefined };
  const { sharedMemory, isolated } = memorySharing();
  if (isolated === false) return { threads: 1, reason: "this page is not cross-origin isolated" };
  if (!sharedMemory) return { threads: 1, reason: "this engine has no shared memory" };
  if (weightBytes < LEAST_SHARED)
    return { threads: 1, reason: "passes of a model this small are too short to be divided" };
  return { threads: "auto", reason: undefined };
}

/** A way to load a decoder, the first of which that fits is taken. */
interface Candidate extends Omit<Wanted, "cache"> {
  readonly cache: CacheFormat;
  readonly reasons: Readonly<Record<"weights" | "cache" | "maxSeqLen", string>>;
}

const SHORTER = [2048, 1024, 512] as const;

/** Ways to load a decoder, from the one that is best to the one that is smallest. */
function candidatesOf(wanted: Wanted, { isFloat, longest = Infinity }: Description): Candidate[] {
  const isQuantised = !isFloat || ["q8", "q8-row", "q4"].includes(String(wanted.weights));
  const best: Candidate = {
    weights: wanted.weights,
    cache: wanted.cache ?? (isQuantised ? "q8" : "f16"),
    maxSeqLen: wanted.maxSeqLen,
    reasons: {
      weights: wanted.weights === undefined ? "as the files store them" : ASKED,
      cache: wanted.cache
        ? ASKED
        : isQuantised
          ? "faster behind long texts, and no less exact than quantised weights"
          : "half of the memory of float32",
      maxSeqLen: wanted.maxSeqLen === undefined ? "what the model was made for, at most 4096" : ASKED,
    },
  };
  const all = [best];
  const add = (change: Partial<Candidate>, reasons: Partial<Candidate["reasons"]>) => {
    const last = all.at(-1) as Candidate;
    all.push({ ...last, ...change, reasons: { ...last.reasons, ...reasons } });
  };
  if (wanted.cache === undefined && best.cache !== "q8")
    add({ cache: "q8" }, { cache: "more would not fit in memory" });
  if (wanted.weights === undefined && isFloat)
    add({ weights: "q8" }, { weights: "as the files store them, they would not fit in memory" });
  if (wanted.maxSeqLen === undefined)
    for (const maxSeqLen of SHORTER.filter((length) => length < longest))
      add({ maxSeqLen }, { maxSeqLen: "more would not fit in memory" });
  return all;
}

/** Chooses the formats and the length of a decoder. Throws OUT_OF_MEMORY, with what would fit, if none fits. */
export async function chooseDecoder(
  where: string,
  { source, others }: Place,
  description: Description,
  wanted: Wanted,
  memory: Choice<number>,
  reading: { readonly signal: Global<"AbortSignal"> | undefined; readonly store: ModelStore },
): Promise<DecoderChoices> {
  const planOf = ({ weights, cache: format, maxSeqLen }: Omit<Candidate, "reasons">) =>
    planModelFiles(source, { weights, format, maxSeqLen, gguf, ...reading });
  let least: { plan: ModelPlan; candidate: Candidate } | undefined;
  for (const candidate of candidatesOf(wanted, description)) {
    const plan = await planOf(candidate);
    if (plan.total <= memory.value) {
      const { weights = "stored", cache, maxSeqLen, reasons } = candidate;
      return {
        plan,
        weights: { value: weights, reason: reasons.weights },
        cache: { value: cache, reason: reasons.cache },
        maxSeqLen: { value: maxSeqLen, reason: reasons.maxSeqLen },
      };
    }
    if (least === undefined || plan.total < least.plan.total) least = { plan, candidate };
  }
  const { plan, candidate } = least as NonNullable<typeof least>;
  const smaller = [256, 512, 1024, 2048].map((maxSeqLen) => ({ ...candidate, weights: "q4" as const, maxSeqLen }));
  const found: string[] = [];
  for (const each of smaller.reverse()) {
    if (found.length > 0 || (await planOf(each)).total > memory.value) continue;
    found.push(`weights: "q4" with maxSeqLen: ${each.maxSeqLen}`);
  }
  const files = others.filter(({ bytes }) => bytes > 0 && bytes + plan.sessions + plan.scratch <= memory.value);
  if (files.length > 0) found.push(`the quantisation ${files.map(({ quantisation }) => quantisation).join(" or ")}`);
  throw new HeadwiseError(
    "OUT_OF_MEMORY",
    `${where}: memory expected ${plan.total} bytes or more (${plan.weights} of weights, ${plan.sessions} of a session, ` +
      `${plan.scratch} of calls), got ${memory.value} (${memory.reason}); what would fit: ${found.join(", or ") || "a smaller model"}`,
  );
}
