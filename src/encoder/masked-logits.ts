import { readIds, type TokenIds } from "../decoder/forward.ts";
import { type OutputSink, runHead } from "../decoder/head.ts";
import { activateRows, normRows, projectRows, type RowWork } from "../decoder/rows.ts";
import { MOST_TOP } from "../decoder/scratch.ts";
import type { Rows } from "../linear/linear.ts";
import { createFloats, LARGEST_LENGTH } from "../tensor/tensor.ts";
import { expectInt, readFields } from "../util/arguments.ts";
import { finish } from "../util/steps.ts";
import { NULL } from "../wasm/abi.ts";
import type { Encoder } from "./load-encoder.ts";
import { type Output, runEncoder, type Sequence } from "./pass.ts";
import { BATCH_OPTIONS, type Batch, type BatchOptions, expectLists, readBatch } from "./read-batch.ts";

/** Options of `maskedLogits`. */
export interface MaskedLogitsOptions extends BatchOptions {
  /** Whose logits: a list of places in each sequence, such as those of its masks. Default all of its tokens. */
  readonly positions?: readonly TokenIds[] | undefined;
  /** Only the largest logits of each row, 1 to 1024, and their ids. Default all logits. */
  readonly top?: number | undefined;
}

/** What `maskedLogits` gives for a sequence. */
export interface MaskedLogits {
  /** [positions, vocabSize]; with `top`, that many instead of vocabSize, descending. */
  readonly logits: Float32Array;
  /** With `top`: the ids of these logits, of equal ones the lower first. */
  readonly ids: Int32Array | undefined;
}

/**
 * The logits of a head for masked tokens: what each token could be, given all others. Each row has the same bits in any batch.
 * @param batch Token ids of each sequence, masks among them, or texts with `options.tokenizer`.
 * @throws The same errors as `encode`, and a RangeError for a model whose file has no such head.
 * @example
 * import { loadKernels } from "headwise";
 * import { loadEncoder, maskedLogits } from "headwise/encoders";
 * import { models } from "headwise/models";
 * const kernels = await loadKernels({ models });
 * const model = await loadEncoder(kernels, "model"); // a decoder, which has no such head
 * try {
 *   maskedLogits(model, [[2, 7, 1, 3]], { positions: [[1]], top: 5 });
 * } catch (error) {
 *   console.log((error as Error).message); // maskedLogits: model expected one whose file has a head for masked tokens, got one without
 * }
 * kernels.release();
 */
export function maskedLogits(model: Encoder, batch: Batch, options: MaskedLogitsOptions = {}): MaskedLogits[] {
  const where = "maskedLogits";
  const { positions, top, ...rest } = readFields(where, "options", options, [...BATCH_OPTIONS, "positions", "top"]);
  const sequences = readBatch(where, model, batch, rest);
  if (!model.weights.transform)
    throw new RangeError(`${where}: model expected one whose file has a head for masked tokens, got one without`);
  const width =
    top === undefined ? model.vocabSize : expectInt(where, "top", top, 1, Math.min(MOST_TOP, model.vocabSize));
  const places = readPlaces(where, sequences, positions);
  const results = places.map(({ length }) => ({
    logits: createFloats(where, "logits", length * width),
    ids: top === undefined ? undefined : new Int32Array(length * width),
  }));
  // Outputs are numbered in the order of the sequences.
  const outputs = places.flatMap((own, sequence) => own.map((token, i) => ({ sequence, token, i })));
  const sink: OutputSink = (row) => {
    const { sequence, i } = outputs[row.output] as (typeof outputs)[number];
    const { logits, ids } = results[sequence] as (typeof results)[number];
    const at = i * width;
    if (!ids) return logits.set(row.logits(), at);
    const found = row.top(width);
    logits.set(found.values, at);
    ids.set(found.ids, at);
  };
  const outputsOf = (of: number): readonly (readonly [output: number, token: number])[] =>
    outputs.flatMap(({ sequence, token }, output) => (sequence === of ? [[output, token] as const] : []));
  const output: Output = {
    logits: outputs.length,
    *take(work, plan, { runs, rows }) {
      const wanted = runs.flatMap(({ of, begin, end, at }) =>
        outputsOf(of.sequence).flatMap(([output, token]) =>
          token < begin || token >= end ? [] : [{ row: at + token - begin, output }],
        ),
      );
      const transform = (to: Rows, from: Rows, count: number) => transformRows(work, model, to, from, count);
      yield* runHead(work, model, plan, rows, wanted, sink, transform);
    },
  };
  finish(runEncoder(where, model, sequences, output));
  return results;
}

/** What is before the head: a projection, an activation and a norm. */
function* transformRows(work: RowWork, { spec, weights }: Encoder, to: Rows, from: Rows, count: number) {
  const { transform } = weights;
  const activation = spec.head.transform?.activation;
  if (!transform || !activation) return;
  yield* projectRows(work, [transform.dense], to, from, count);
  activateRows(work, activation, to, NULL, spec.embed.dim, count);
  normRows(work, transform.norm, to, to, spec.embed.dim, count);
}

/** The tokens of each sequence whose logits are wanted. */
function readPlaces(
  where: string,
  sequences: readonly Sequence[],
  positions: readonly TokenIds[] | undefined,
): readonly (readonly number[])[] {
  if (positions === undefined) return sequences.map(({ ids }) => Array.from(ids.keys()));
  return expectLists(where, "positions", positions, sequences.length).map((given, i) => {
    const { length } = (sequences[i] as Sequence).ids;
    return Array.from(readIds(where, `positions[${i}]`, given, length, LARGEST_LENGTH));
  });
}
