import { rowFlops } from "../decoder/flops.ts";
import type { Model } from "../decoder/model.ts";
import { checkSlices, runSlices, SLICE_OPTIONS, type SliceOptions, stepFlopsOf } from "../forward/slices.ts";
import { createFloats } from "../tensor/tensor.ts";
import { readFields } from "../util/arguments.ts";
import { copyRows } from "../util/rows.ts";
import { finish } from "../util/steps.ts";
import { expectEncoder } from "./load-encoder.ts";
import { type Output, runEncoder, type Sequence } from "./pass.ts";
import { BATCH_OPTIONS, type Batch, type BatchOptions, readBatch } from "./read-batch.ts";
import { statesTo } from "./states.ts";

/**
 * The last hidden states of each sequence: the outputs of the last layer, after its norm. Sequences may have any lengths, and
 * none is padded. Each has the same bits alone, in any batch and on any number of threads.
 * @param model One of `loadEncoder`, or of `loadSeq2Seq`, whose encoder runs.
 * @param batch Token ids of each sequence, or texts with `options.tokenizer`.
 * @returns [tokens, dModel] of each sequence.
 * @throws TypeError or RangeError naming the argument. HeadwiseError `OUT_OF_MEMORY`, `RELEASED`, and with threads `WORKER_LOST`
 * or `KERNEL_FAILED`.
 * @example
 * import { loadKernels } from "headwise";
 * import { encode, loadEncoder } from "headwise/encoders";
 * import { models } from "headwise/models";
 * const kernels = await loadKernels({ models });
 * const model = await loadEncoder(kernels, "model"); // a folder of this repository
 * const [first, second] = encode(model, [[2, 7, 1, 3], [2, 3]]);
 * console.log(first?.length === 4 * model.dModel, second?.length === 2 * model.dModel); // true true
 * kernels.release();
 */
export function encode(model: Model, batch: Batch, options: BatchOptions = {}): Float32Array[] {
  const where = "encode";
  const sequences = readBatch(where, model, batch, readFields(where, "options", options, BATCH_OPTIONS));
  const { results, output } = collectRows(where, model, sequences);
  finish(runEncoder(where, model, sequences, output));
  return results;
}

/**
 * `encode` in time slices, with yields to the event loop between them.
 * @throws The same errors as `encode`, and the signal's reason.
 * @example
 * import { loadKernels } from "headwise";
 * import { encodeAsync, loadEncoder } from "headwise/encoders";
 * import { models } from "headwise/models";
 * const kernels = await loadKernels({ models });
 * let last = 0;
 * await encodeAsync(await loadEncoder(kernels, "model"), [[2, 7, 1, 3]], { onProgress: (done) => (last = done) });
 * console.log(last); // 1
 * kernels.release();
 */
export async function encodeAsync(
  model: Model,
  batch: Batch,
  options: BatchOptions & SliceOptions = {},
): Promise<Float32Array[]> {
  const where = "encodeAsync";
  const { tokenTypes, tokenizer, ...rest } = readFields(where, "options", options, [
    ...BATCH_OPTIONS,
    ...SLICE_OPTIONS,
  ]);
  const sequences = readBatch(where, model, batch, { tokenTypes, tokenizer });
  const { results, output } = collectRows(where, model, sequences);
  await runSliced(where, model, sequences, output, rest);
  return results;
}

/** Runs a pass in time slices. */
export async function runSliced(
  where: string,
  model: Model,
  sequences: readonly Sequence[],
  output: Output,
  options: SliceOptions,
): Promise<void> {
  const slices = checkSlices(where, options);
  const all = rowFlops(model.encoder ?? model) * sequences.reduce((sum, { ids }) => sum + ids.length, 0);
  const steps = runEncoder(where, model, sequences, output, stepFlopsOf(model.kernels), true);
  const expectActive = () => {
    slices.signal?.throwIfAborted();
    expectEncoder(where, model);
  };
  try {
    await runSlices(steps, all, slices, expectActive);
    expectActive();
  } finally {
    steps.return(undefined);
  }
}

/** Arrays for all rows, and what fills them. */
export function collectRows(
  where: string,
  model: Model,
  sequences: readonly Sequence[],
): { readonly results: Float32Array[]; readonly output: Output } {
  const { dModel } = model;
  const results = sequences.map(({ ids }) => createFloats(where, "states", ids.length * dModel));
  const output = statesTo(model, (sequence, begin, _count, rows, stride) =>
    copyRows(results[sequence] as Float32Array, begin * dModel, dModel, rows, stride, dModel),
  );
  return { results, output };
}
