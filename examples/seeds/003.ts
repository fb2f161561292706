// The long tutorial, cell by cell: parameters, mixing and splitting, a pipeline, two heads built by hand, shapes, strides, the
// module, a loop over heads, and a causal mask.

import {
  type Attention,
  type AttentionWeights,
  attend,
  attendWithMaps,
  createAttention,
  type Kernels,
  type SeparateWeights,
  scaledDotProductAttention,
  type Tensor,
} from "headwise";
import { drawHeads, drawProjections, drawShapes, drawSplit, shapeTrace, traceAttention } from "headwise/inspect";
import { attendReference, type ReferenceWeights } from "headwise/reference";
import { HAND_HEADS, handWeights, TOKENS } from "./hand-heads.ts";
import {
  commas,
  fourLinears,
  maxAbs,
  meanAbs,
  messageOf,
  minus,
  parameters,
  python,
  type Tutorial,
  zeros,
} from "./layers.ts";
import { drawMixing, runSmall } from "./mixing.ts";
import { contiguousStrides, isContiguous, transpose, view } from "./strides.ts";
import { TorchRandom } from "./torch-random.ts";

type Print = Parameters<Tutorial>[1];

export const run: Tutorial = (kernels, print) => {
  const sections = [countParameters, mixAndSplit, twoHeads, traceShapes, copyBeforeView, useModule, loopAndMask];
  for (const [i, section] of sections.entries()) {
    if (i > 0) print();
    section(kernels, print);
  }
};

const size = (shape: readonly number[]) => `torch.Size([${shape.join(", ")}])`;
const digits = (values: ArrayLike<number>) => Array.from(values, (value) => value.toFixed(4)).join(", ");

/** Reduced head dimensions need as many weights as one head of full width. W_o is not counted, as in the tutorial. */
function countParameters(kernels: Kernels, print: Print): void {
  const [dModel, numHeads] = [512, 8];
  const square = zeros(dModel, dModel);
  const actual = parameters(kernels, { dModel, numHeads }, { wq: square, wk: square, wv: square, wo: square });
  const reduced = numHeads * 3 * dModel * (dModel / numHeads);
  const ofProjections = actual - dModel * dModel;
  print(`d_model=${dModel}, heads=${numHeads}, d_k=${dModel / numHeads}`);
  print(`if full dims: ${commas(numHeads * 3 * dModel * dModel)}`);
  print(`if reduced dims: ${commas(reduced)}`);
  print(`actual (1 big W): ${commas(ofProjections)}`);
  print(`reduced == actual? ${python(reduced === ofProjections)}`);
  print();
  print(drawProjections({ dModel, numHeads }, { format: "text" }));
}

/** Every number of q0 mixes all of x0, before q0 is split among heads. Then the same stream of numbers runs a small layer. */
function mixAndSplit(kernels: Kernels, print: Print): void {
  const mixing = drawMixing();
  const { x0, W, q0 } = mixing;
  const column3 = Array.from({ length: 8 }, (_, row) => W.data[8 * row + 3]!);
  print(`Input vector x0: [${digits(x0.data)}]`);
  print("Mix matrix W:");
  for (let row = 0; row < 8; row++) print(`  [${digits(W.data.subarray(8 * row, 8 * row + 8))}]`);
  print(`Output vector q0 = x0 @ W: [${digits(q0.data)}]`);
  print(`W[:, 3]: [${digits(column3)}]`);
  print(`q0[3] = ${q0.data[3]!.toFixed(4)}`);
  print(`Manual calculation = ${column3.reduce((sum, weight, row) => sum + weight * x0.data[row]!, 0).toFixed(4)}`);

  print();
  print(drawSplit({ dModel: 8, numHeads: 2 }, { format: "text" }));

  const { y, maps } = runSmall(kernels, mixing);
  print();
  print(`Attention weights: ${size(maps.shape)}`);
  print(`Final output: ${size([2, 4, y.length / 8])}`);
  print("Attention weights from batch 0, head 0:");
  for (let row = 0; row < 4; row++) {
    const weights = Array.from(maps.data.subarray(4 * row, 4 * row + 4), scientific);
    print(`  [${weights.join(", ")}]`);
  }
}

/** 4.7919e-01, as PyTorch prints it. */
function scientific(value: number): string {
  return value.toExponential(4).replace(/e([+-])(\d)$/, "e$10$2");
}

/** What the two heads that are built by hand look at. */
function twoHeads(kernels: Kernels, print: Print): void {
  const weights = handWeights(kernels);
  const count = TOKENS.length;
  print(`Tokens: ${count}`);
  for (const [head, { name }] of HAND_HEADS.entries()) {
    print(`Key patterns in ${name}:`);
    for (const [query, token] of TOKENS.entries()) {
      const row = weights.data.subarray((head * count + query) * count, (head * count + query + 1) * count);
      const most = Math.max(...row);
      if (most > 0.5) print(`  '${token}' → '${TOKENS[row.indexOf(most)]}' (${most.toFixed(2)})`);
    }
  }
  print();
  print(drawHeads(weights, { tokens: TOKENS, format: "text" }));
}

/** The shapes that a batch goes through. Here heads are strides, so that views and transpositions move nothing. */
function traceShapes(_: Kernels, print: Print): void {
  const sizes = { batch: 2, seqLen: 10, dModel: 512, numHeads: 8 };
  const shapes = shapeTrace(sizes).map(({ shape }) => size(shape));
  const [x, q, split, reordered, attention, together, flat, out, slice] = shapes;
  print(`x: ${x}`);
  print(`q: ${q}`);
  print(`q_split: ${split}`);
  print(`q_reordered: ${reordered}`);
  print(`attention output: ${attention}`);
  print(`One head slice: ${slice}`);
  print(`heads side by side: ${together}`);
  print(`concatenated: ${flat}`);
  print(`after W_o: ${out}`);
  print();
  print(drawShapes(sizes, { format: "text" }));
}

/** A transposed tensor has the strides of another order, which no flat view can express. */
function copyBeforeView(_: Kernels, print: Print): void {
  const x = { shape: [2, 3, 4], strides: contiguousStrides([2, 3, 4]) };
  const turned = transpose(x, 1, 2);
  print(`x_t: ${size(turned.shape)}, strides (${turned.strides.join(", ")})`);
  print(`x_t.is_contiguous(): ${python(isContiguous(turned))}`);
  try {
    view(turned, [2, 12]);
  } catch (error) {
    print(`view() failed as expected: ${(error as Error).message}`);
  }
  const copied = { shape: turned.shape, strides: contiguousStrides(turned.shape) };
  print(`x_t.contiguous().is_contiguous(): ${python(isContiguous(copied))}`);
  print(`x_t.contiguous().view(2, 12): ${size(view(copied, [2, 12]).shape)}`);
}

/** The tutorial's class: it asserts what `createAttention` refuses with the numbers, unless it is given `headDim`. */
function multiHead(kernels: Kernels, dModel: number, numHeads: number, weights: AttentionWeights): Attention {
  if (dModel % numHeads !== 0) throw new Error("d_model must be divisible by num_heads");
  return createAttention(kernels, { dModel, numHeads }, weights);
}

/** The module with seed 0. */
function useModule(kernels: Kernels, print: Print): void {
  const random = new TorchRandom(0);
  const config = { dModel: 32, numHeads: 4 };
  const weights = fourLinears(random, config.dModel);
  const x = random.randn([2, 5, config.dModel]);
  print(`d_model=32, num_heads=5: ${messageOf(() => multiHead(kernels, 32, 5, weights))}`);
  const attention = multiHead(kernels, config.dModel, config.numHeads, weights);
  const y = attend(attention, x.data, { batch: 2 });
  print(`d_k: ${attention.config.headDim}`);
  attention.release();
  print(`Output: ${size([2, 5, y.length / 10])}`);
  print(`Output differs from input (mean abs diff: ${meanAbs(minus(y, x.data)).toFixed(4)})`);
  const { bq, bk, bv, bo, ...matrices } = weights;
  const [all, ofMatrices] = [weights, matrices].map((each) => parameters(kernels, config, each)) as [number, number];
  print(`Total parameters: ${commas(all)}`);
  for (const name of ["W_q", "W_k", "W_v", "W_o"]) print(`  ${name}: ${commas(ofMatrices / 4)}`);
  print(`Total: ${commas(ofMatrices)} (breakdown of weights), and 4 × 32 = ${all - ofMatrices} biases`);
}

/** One head after the other gives what all heads at once give, and so do loops in float64; and what a causal mask changes. */
function loopAndMask(kernels: Kernels, print: Print): void {
  const random = new TorchRandom(123);
  const config = { dModel: 32, numHeads: 4 };
  const weights = fourLinears(random, config.dModel);
  const x = random.randn([2, 6, config.dModel]).data;
  const attention = multiHead(kernels, config.dModel, config.numHeads, weights);
  const between = headByHead(kernels, attention, x);
  print(`Max absolute diff: ${maxAbs(between).toFixed(10)}`);
  print(`Mean absolute diff: ${meanAbs(between).toFixed(10)}`);
  print(`Results match: ${python(maxAbs(between) < 1e-6)}`);
  const atOnce = attend(attention, x, { batch: 2 });
  const loops = loopsOf(weights);
  const looped = [x.subarray(0, 6 * 32), x.subarray(6 * 32)].flatMap((one) =>
    Array.from(attendReference(attention.config, loops, one).y),
  );
  attention.release();
  const difference = minus(atOnce, Float32Array.from(looped));
  print(
    `Loops over heads, queries and keys, in float64, for the whole layer: within 0.000001: ${python(maxAbs(difference) < 1e-6)}`,
  );

  const next = multiHead(kernels, config.dModel, config.numHeads, fourLinears(random, config.dModel));
  const input = random.randn([2, 6, config.dModel]).data;
  // 0 where a pair is masked.
  const keep = { data: Array.from({ length: 36 }, (_, i) => i % 6 <= Math.floor(i / 6)), shape: [1, 1, 6, 6] };
  print();
  print(`Causal mask shape: ${size(keep.shape)}`);
  for (let row = 0; row < 4; row++)
    print(
      `  [${keep.data
        .slice(6 * row, 6 * row + 4)
        .map(Number)
        .join(", ")}]`,
    );
  const changed = minus(attend(next, input, { batch: 2, keep }), attend(next, input, { batch: 2 }));
  print(`Mean absolute difference: ${meanAbs(changed).toFixed(4)}`);
  // The tutorial puts -1e9 in the place of masked scores. Added, it is all that is left of scores below 32.
  const bias = { data: new Float32Array(36).fill(-1e9), shape: [6, 6] };
  const average = attendWithMaps(next, input, { batch: 2, bias }).maps.data.every(
    (weight) => weight === Math.fround(1 / 6),
  );
  const drop = { data: new Uint8Array(36).fill(1), shape: [6, 6] };
  const nothing = attendWithMaps(next, input, { batch: 2, drop }).maps.data.every((weight) => weight === 0);
  print(`all keys masked by -1e9: weights of 1 / 6: ${python(average)}; by drop: weights of 0: ${python(nothing)}`);
  next.release();
}

/** The outputs of the heads before W_o, each from a call of its own, minus those of the layer. */
function headByHead(kernels: Kernels, attention: Attention, x: Float32Array): Float32Array {
  const stages = traceAttention(attention, x, { batch: 2 });
  const [{ q, k, v }, { z }] = [stages[2]!.tensors, stages[6]!.tensors] as [
    Record<string, Tensor>,
    Record<string, Tensor>,
  ];
  const [batch, numHeads, seqLen, headDim] = z!.shape as [number, number, number, number];
  const one = ({ data }: Tensor, head: number): Tensor => {
    const from = head * seqLen * headDim;
    return { data: data.subarray(from, from + seqLen * headDim), shape: [1, seqLen, headDim] };
  };
  const looped = Array.from({ length: batch * numHeads }, (_, head) => {
    const { output } = scaledDotProductAttention(kernels, one(q!, head), one(k!, head), one(v!, head));
    return Array.from(output.data);
  });
  return minus(z!.data, Float32Array.from(looped.flat()));
}

/** Weights as the loops of `attendReference` read them. */
function loopsOf({ wq, wk, wv, wo, ...biases }: SeparateWeights<Tensor>): ReferenceWeights {
  return { wq: wq.data, wk: wk.data, wv: wv.data, wo: wo.data, ...biases };
}
