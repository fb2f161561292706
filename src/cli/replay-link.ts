// `headwise inspect MODEL --replay LINK`: repeats what a link of `--link` names, and compares the bits.

import { decodeRecord } from "../inspect/permalink.ts";
import { type AnyRecord, replay } from "../inspect/records.ts";
import { WEIGHT_FORMATS } from "../linear/formats.ts";
import { UsageError } from "./args.ts";
import type { CommonChoices } from "./common-options.ts";
import { loadDecoder, startDecoderKernels } from "./load-decoder.ts";
import type { Loading } from "./loading.ts";
import { expectModelPath } from "./model-path.ts";
import { print } from "./output.ts";

/** The options that count beside the link. Weights are those of the record unless others are asked for. */
type ReplayOptions = Pick<CommonChoices, "weights" | "activations" | "threads"> & {
  readonly json: boolean;
  readonly loading: Loading;
};

/** Prints whether the results have the recorded bits; if not, the process exits with 1. */
export async function replayLink(
  command: string,
  path: string,
  link: string,
  { weights, activations, threads, json, loading }: ReplayOptions,
): Promise<void> {
  const record = readLink(command, link);
  const { formats, kernels: recorded, request } = record;
  await expectModelPath(command, path);
  const kernels = await startDecoderKernels(threads, recorded.build === "simd", "statistics" in request);
  try {
    const options = { weights: weights ?? WEIGHT_FORMATS.find((format) => format === formats), activations };
    const { model } = await loadDecoder(command, kernels, path, options, loading);
    // Whoever runs a command can end it.
    const { same, record: found } = await replay(model, record, { maxTokens: Number.MAX_SAFE_INTEGER }).catch(
      (error: unknown) => {
        // Another model, format or build than the record names.
        throw error instanceof RangeError ? new UsageError(`${command}: ${error.message}`) : error;
      },
    );
    const [name, bits, wanted] = [record.inspect, found.results, record.results];
    const text = `${name}  ${same ? "the same bits" : `other bits than recorded: expected ${wanted}, got`} ${bits}`;
    print(json ? JSON.stringify({ inspect: name, same, recorded: wanted, found: bits }, null, 2) : text);
    if (!same) process.exitCode = 1;
  } finally {
    kernels.release();
  }
}

function readLink(command: string, link: string): AnyRecord {
  try {
    return decodeRecord(link);
  } catch {
    throw new UsageError(`${command}: --replay expected a link that --link prints for a result, got ${link}`);
  }
}
