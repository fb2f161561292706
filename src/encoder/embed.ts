import type { Model } from "../decoder/model.ts";
import { readOptions } from "../decoder/read-options.ts";
import { SLICE_OPTIONS, type SliceOptions } from "../forward/slices.ts";
import { expectFlag, expectOneOf } from "../util/arguments.ts";
import { finish } from "../util/steps.ts";
import { runSliced } from "./encode.ts";
import { type Output, runEncoder, type Sequence } from "./pass.ts";
import { BATCH_OPTIONS, type Batch, type BatchOptions, readBatch } from "./read-batch.ts";
import { statesTo } from "./states.ts";

/** How a text's states become one vector: their mean, the first one, or the last one. */
export type Pooling = "mean" | "cls" | "last";

/** Options of `embed`. */
export interface EmbedOptions extends BatchOptions {
  /** What a model was trained for, mostly "mean"; many of BGE and E5 take "cls". Default "mean". */
  readonly pooling?: Pooling | undefined;
  /** Whether vectors are divided by their length, so that their products are cosines. Default false. */
  readonly normalize?: boolean | undefined;
}

const POOLINGS: readonly Pooling[] = ["mean", "cls", "last"];
const OPTIONS: readonly (keyof EmbedOptions)[] = [...BATCH_OPTIONS, "pooling", "normalize"];

/**
 * A vector for each text. Texts may have any lengths, and none is padded. Each has the same bits alone, in any batch and on any
 * number of threads.
 * @param batch Token ids of each text, with those that its tokenizer puts around it; or texts with `options.tokenizer`.
 * @returns [dModel] of each text.
 * @throws The same errors as `encode`.
 * @example
 * import { loadKernels } from "headwise";
 * import { embed, loadEncoder } from "headwise/encoders";
 * import { models } from "headwise/models";
 * const kernels = await loadKernels({ models });
 * const model = await loadEncoder(kernels, "model"); // a folder of this repository
 * const [a, b] = embed(model, [[2, 7, 1, 3], [2, 7, 1, 4, 3]], { pooling: "last", normalize: true });
 * const cosine = a?.reduce((sum, x, i) => sum + x * (b?.[i] ?? 0), 0) ?? 0;
 * console.log(cosine > 0 && cosine < 1); // true
 * kernels.release();
 */
export function embed(model: Model, batch: Batch, options: EmbedOptions = {}): Float32Array[] {
  const where = "embed";
  const { pooling, normalize, ...rest } = readOptions(where, options, OPTIONS);
  const pool = checkPool(where, pooling, normalize);
  const sequences = readBatch(where, model, batch, rest);
  const { output, vectors } = pool(model, sequences);
  finish(runEncoder(where, model, sequences, output));
  return vectors();
}

/**
 * `embed` in time slices, with yields to the event loop between them.
 * @throws The same errors as `embed`, and the signal's reason.
 * @example
 * import { loadKernels } from "headwise";
 * import { embedAsync, loadEncoder } from "headwise/encoders";
 * import { models } from "headwise/models";
 * const kernels = await loadKernels({ models });
 * const [vector] = await embedAsync(await loadEncoder(kernels, "model"), [[2, 7, 1, 3]], { sliceMs: 4, pooling: "last" });
 * console.log((vector?.length ?? 0) > 0); // true
 * kernels.release();
 */
export async function embedAsync(
  model: Model,
  batch: Batch,
  options: EmbedOptions & SliceOptions = {},
): Promise<Float32Array[]> {
  const where = "embedAsync";
  const { pooling, normalize, tokenTypes, tokenizer, ...slices } = readOptions(where, options, [
    ...OPTIONS,
    ...SLICE_OPTIONS,
  ]);
  const pool = checkPool(where, pooling, normalize);
  const sequences = readBatch(where, model, batch, { tokenTypes, tokenizer });
  const { output, vectors } = pool(model, sequences);
  await runSliced(where, model, sequences, output, slices);
  return vectors();
}

/** Checks how rows become vectors. */
function checkPool(where: string, pooling: Pooling = "mean", normalize = false) {
  expectOneOf(where, "pooling", pooling, POOLINGS);
  expectFlag(where, "normalize", normalize);
  return (model: Model, sequences: readonly Sequence[]): { output: Output; vectors: () => Float32Array[] } => {
    const { dModel } = model;
    // In float64, row by row: the same sum however the rows are divided into chunks.
    const sums = sequences.map(() => new Float64Array(dModel));
    const output = statesTo(model, (sequence, begin, count, rows, stride) => {
      const { length } = (sequences[sequence] as Sequence).ids;
      const sum = sums[sequence] as Float64Array;
      const first = pooling === "last" ? length - 1 : 0;
      const end = pooling === "cls" ? 1 : length;
      for (let row = Math.max(first, begin); row < Math.min(end, begin + count); row++) {
        const at = (row - begin) * stride;
        for (let i = 0; i < dModel; i++) sum[i]! += rows[at + i] as number;
      }
    });
    const vectors = () =>
      sums.map((sum, i) =>
        toVector(sum, normalize ? lengthOf(sum) : pooling === "mean" ? sequences[i]!.ids.length : 1),
      );
    return { output, vectors };
  };
}

const lengthOf = (vector: Float64Array) => Math.sqrt(vector.reduce((sum, x) => sum + x * x, 0));

/** A vector of length 0 stays as it is. */
const toVector = (sum: Float64Array, divisor: number) => Float32Array.from(sum, (x) => x / (divisor || 1));
