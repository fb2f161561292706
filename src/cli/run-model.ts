// `headwise run FOLDER --ids LIST`: a whole decoder on a list of tokens.

import type { CacheFormat } from "../cache/page-layout.ts";
import { forward } from "../decoder/forward.ts";
import type { Model } from "../decoder/model.ts";
import { createSession } from "../decoder/session.ts";
import { FloatDigest } from "../diagnostics/float-digest.ts";
import { median } from "../diagnostics/timing.ts";
import { largestIds, probabilitiesOf } from "../inspect/probabilities.ts";
import type { WeightFormat } from "../linear/formats.ts";
import type { Kernels } from "../wasm/kernels.ts";
import { UsageError } from "./args.ts";
import { loadDecoder, startDecoderKernels } from "./load-decoder.ts";
import type { Loading } from "./loading.ts";
import { expectModelPath } from "./model-path.ts";
import { print } from "./output.ts";
import { columnsText, paint, sizeText } from "./text.ts";

/** What to run, checked. */
interface ModelWork {
  readonly ids: readonly number[];
  /** How many of the largest logits are shown. */
  readonly top: number;
  /** How many of the ids, the last ones, are read one by one in the second run. */
  readonly decode: number;
  readonly weights: WeightFormat | undefined;
  readonly cache: CacheFormat | undefined;
  readonly threads: number | "auto";
  readonly deterministic: boolean;
  readonly json: boolean;
  readonly loading: Loading;
}

/** What a run gives. */
interface ModelRun extends Readings {
  readonly folder: string;
  readonly type: string;
  readonly layers: number;
  readonly vocabSize: number;
  /** Bytes of the weights. */
  readonly bytes: number;
  readonly loadMs: number;
  readonly kernels: Pick<Kernels, "build" | "reason" | "threads">;
  readonly top: readonly { readonly id: number; readonly logit: number; readonly probability: number }[];
  /** Of all logits of the next token. */
  readonly digest: string;
}

/** How long reading the ids took, and whether both ways gave the same logits. */
interface Readings {
  readonly sessionBytes: number;
  readonly prefill: { readonly tokens: number; readonly ms: number };
  /** Undefined if no token is read by itself. */
  readonly decode?: { readonly tokens: number; readonly past: number; readonly ms: number; readonly same: boolean };
}

/** Reads the ids at once, and again with the last of them one by one; compares and prints the logits of the next token. */
export async function runModel(folder: string, work: ModelWork): Promise<void> {
  const { ids, weights, loading } = work;
  await expectModelPath("run", folder);
  const kernels = await startDecoderKernels(work.threads, work.deterministic);
  try {
    const { model, loadMs } = await loadDecoder("run", kernels, folder, { weights, maxSeqLen: ids.length }, loading);
    const outside = ids.find((id) => id >= model.vocabSize);
    if (outside !== undefined)
      throw new UsageError(`run: --ids expected ids below ${model.vocabSize}, those of the model, got ${outside}`);
    const { type, layers, vocabSize, bytes } = model;
    const { logits, ...readings } = readTokens(model, work);
    const digest = new FloatDigest();
    digest.add(logits);
    const { build, reason, threads } = kernels;
    const report: ModelRun = {
      ...{ folder, type, layers, vocabSize, bytes, loadMs, kernels: { build, reason, threads } },
      ...{ ...readings, top: topOf(logits, work.top), digest: digest.toString() },
    };
    print(work.json ? JSON.stringify(report, null, 2) : reportText(report));
    if (report.decode?.same === false) process.exitCode = 1;
  } finally {
    kernels.release();
  }
}

function readTokens(
  model: Model,
  { ids, decode, cache: format }: ModelWork,
): Readings & { readonly logits: Float32Array } {
  const past = Math.max(1, ids.length - decode);
  using whole = createSession(model, { maxSeqLen: ids.length, format });
  const began = performance.now();
  const { logits } = forward(whole, ids);
  const prefill = { tokens: ids.length, ms: performance.now() - began };
  const sessionBytes = whole.bytes;
  if (past >= ids.length) return { logits, sessionBytes, prefill };
  using stepped = createSession(model, { maxSeqLen: ids.length, format });
  forward(stepped, ids.slice(0, past));
  const times: number[] = [];
  let last = logits;
  for (const id of ids.slice(past)) {
    const start = performance.now();
    last = forward(stepped, [id]).logits;
    times.push(performance.now() - start);
  }
  const same = last.every((logit, i) => Object.is(logit, logits[i]));
  return { logits, sessionBytes, prefill, decode: { tokens: times.length, past, ms: median(times), same } };
}

/** The largest logits, and their probabilities. */
function topOf(logits: Float32Array, count: number): ModelRun["top"] {
  const shares = probabilitiesOf(logits);
  return largestIds(logits, count).map((id) => ({ id, logit: logits[id]!, probability: shares[id]! }));
}

function reportText(run: ModelRun): string {
  const { kernels, prefill, decode } = run;
  const perSecond = (tokens: number, ms: number) => `${((1000 * tokens) / ms).toFixed(1)} tokens/s`;
  const verdict =
    decode &&
    (decode.same
      ? paint("green", "the logits have the same bits")
      : paint("red", "FAILED: the logits have other bits"));
  const rows = [
    ["model", `${run.type}, ${run.layers} layers, ${sizeText(run.bytes)}, loaded in ${run.loadMs.toFixed(0)} ms`],
    ["session", `${prefill.tokens} tokens, ${sizeText(run.sessionBytes)}`],
    ["build", `${kernels.build}: ${kernels.reason}`],
    ["threads", `${kernels.threads.used}: ${kernels.threads.reason}`],
    ["prefill", `${prefill.ms.toFixed(2)} ms for ${prefill.tokens} tokens: ${perSecond(prefill.tokens, prefill.ms)}`],
    [
      "decode",
      decode
        ? `${decode.ms.toFixed(2)} ms per token after ${decode.past}: ${perSecond(1, decode.ms)}`
        : "none: no token is decoded",
    ],
    ...(verdict === undefined ? [] : [["identity", `prefill = decode: ${verdict}`]]),
    ["logits", `[${run.vocabSize}], digest ${run.digest}`],
  ];
  const table = run.top.map(({ id, logit, probability }) => [
    ...[`${id}`, logit.toPrecision(6), `${(100 * probability).toFixed(2)} %`],
  ]);
  const lines = rows.map(([title = "", text]) => `${title.padEnd(10)}${text}`).join("\n");
  return `${lines}\n\n${columnsText([["id", "logit", "probability"], ...table], 0)}`;
}
