// What heads write for the token that they read: their OV circuits, from embedding to logits (Elhage et al. 2021).

import { underName } from "../../base/util/errors.ts";
import { eigenvaluesOf } from "../../base/util/linear-algebra.ts";
import { chunksOf } from "../../base/util/rows.ts";
import {
  expectModel,
  type Model,
  type PackedBlock,
  type PackedNorm,
  type PackedTable,
} from "../../models/blocks/model.ts";
import type { Kernels } from "../../wasm/kernels.ts";
import { kvHeadOf, multiply, outputsOf, type PackedRows, readMatrix, scaleRows } from "./parts.ts";
import { headsOf, type LayerHeads, viewOf } from "./views.ts";

/** Tokens whose rows are multiplied at a time. */
const BLOCK_TOKENS = 1024;

/**
 * How much each head copies the token that it reads: Σ λ / Σ |λ| over the eigenvalues of W_E·W_V·W_O·W_U, which leads from a token
 * in to the logits that the head adds for it (Elhage et al. 2021, TransformerLens' copying score). 1 if the head raises the logits
 * of what it reads, -1 if it lowers them. A head of random weights scores 0 on average, because with the values reversed it scores
 * the opposite.
 *
 * Norms before the head, of its output and before the logits are folded into the matrices: their gains, and the centring of layer
 * norms. What rows are divided by, biases, positions, and whatever other layers and norms do to the residual in between are left
 * out, so that scores of late layers mean less.
 *
 * The eigenvalues are those of W_V·(W_Eᵀ·W_U)·W_O [valueDim, valueDim] and zeros, so that the vocabulary is read once. The time is
 * about that of vocabSize·dModel² multiplications and additions, in one go. Weights may have any format, and attention may be latent.
 * @returns Scores [layers][heads]; none for recurrent layers.
 * @throws TypeError, or HeadwiseError `OUT_OF_MEMORY` or `RELEASED`.
 * @example
 * import { loadKernels } from "headwise";
 * import { copyingScores } from "headwise/inspect";
 * import { loadModel, models } from "headwise/models";
 * const kernels = await loadKernels({ models });
 * const model = await loadModel(kernels, "model");
 * console.log(copyingScores(model)[1]?.every((score) => score > 0.8)); // true: induction heads copy
 * kernels.release();
 */
export function copyingScores(model: Model): number[][] {
  const where = "copyingScores";
  expectModel(where, model);
  return underName(where, () => {
    const ends = multiplyEnds(where, model);
    return model.weights.blocks.map((block) => layerScores(where, model, block, ends));
  });
}

function layerScores(where: string, model: Model, block: PackedBlock, ends: Float32Array): number[] {
  const { kernels, dModel } = model;
  const heads = headsOf(block.attention);
  if (!heads) return [];
  const { config } = heads.layer;
  const { numHeads, valueDim } = config;
  const size = valueDim * dModel;
  const read = multiply(kernels, readValues(where, model, block, heads), ends, dModel, "in-out");
  const written = readOutputs(where, model, block, heads);
  return Array.from({ length: numHeads }, (_, head) => {
    const group = kvHeadOf(config, head);
    const own = read.subarray(group * size, (group + 1) * size);
    const outputs = written.subarray(head * size, (head + 1) * size);
    return positiveShare(multiply(kernels, own, outputs, dModel, "out-in"), valueDim);
  });
}

/** Σ λ / Σ |λ| of the eigenvalues of a square matrix; 0 if all are 0. */
function positiveShare(matrix: Float32Array, size: number): number {
  const { real, imaginary } = eigenvaluesOf(matrix, size);
  let [sum, sizes] = [0, 0];
  for (const [i, a] of real.entries()) {
    const b = imaginary[i] as number;
    sum += a;
    sizes += Math.sqrt(a * a + b * b);
  }
  return sizes === 0 ? 0 : sum / sizes;
}

/** Σ over tokens of what embeds a token and what gives its logit: W_Eᵀ·W_U [dModel, dModel]. */
function multiplyEnds(where: string, model: Model): Float32Array {
  const { kernels, weights, dModel } = model;
  const { dim } = weights.embed;
  const sum = new Float64Array(dim * dim);
  for (const [begin, end] of chunksOf(model.vocabSize, BLOCK_TOKENS)) {
    const rows = transpose(readMatrix(where, kernels, asPanels(weights.embed), begin, end), dim);
    const part = multiply(kernels, rows, readMatrix(where, kernels, weights.head, begin, end), dim, "in-out");
    for (let i = 0; i < sum.length; i++) sum[i] = (sum[i] as number) + (part[i] as number);
  }
  // Tables that are narrower than the model have projections to its width, and from it.
  const { projectIn, projectOut } = weights;
  let ends: Float32Array = Float32Array.from(sum);
  if (projectOut) ends = multiply(kernels, ends, readMatrix(where, kernels, projectOut, 0, dim), dModel, "in-out");
  if (projectIn) ends = multiply(kernels, readMatrix(where, kernels, projectIn, 0, dModel), ends, dModel, "in-out");
  return foldNorm(kernels, ends, weights.finalNorm, dModel);
}

const asPanels = ({ dim: k, at: w, format, mins }: PackedTable): PackedRows => ({ k, w, format, mins });

/** What a layer's values are of its residual: W_V [numKvHeads·valueDim, dModel], of latent attention for each head. */
function readValues(
  where: string,
  { kernels, weights, dModel }: Model,
  { norms }: PackedBlock,
  { layer }: LayerHeads,
): Float32Array {
  const values = viewOf(layer).values(where, layer);
  foldNorm(kernels, values, norms.attentionPre, dModel);
  return foldNorm(kernels, values, weights.embedNorm, dModel);
}

/** What a layer adds to its residual for the outputs of its heads: W_Oᵀ [numHeads·valueDim, dModel]. */
function readOutputs(
  where: string,
  { kernels, dModel }: Model,
  { norms }: PackedBlock,
  { layer, scale }: LayerHeads,
): Float32Array {
  const { numHeads, valueDim } = layer.config;
  const outputs = transpose(readMatrix(where, kernels, outputsOf(layer), 0, dModel), numHeads * valueDim);
  if (scale !== 1) scaleRows(outputs, Float32Array.of(scale));
  // Norms of outputs are RMS norms in all families.
  return foldNorm(kernels, outputs, norms.attentionPost, dModel);
}

/** What a head adds to the residual if its output is each of `values` [n, valueDim]: rows [n, dModel]. */
export function writtenFor(
  where: string,
  model: Model,
  block: PackedBlock,
  heads: LayerHeads,
  head: number,
  values: Float32Array,
): Float32Array {
  const { kernels, dModel } = model;
  const size = heads.layer.config.valueDim * dModel;
  const outputs = readOutputs(where, model, block, heads).subarray(head * size, (head + 1) * size);
  return multiply(kernels, values, outputs, dModel, "in-out");
}

/** Makes rows w, of products w·x, those of w·norm(x), but for the division: w·gain, less its mean for a layer norm. In place. */
function foldNorm({ memory }: Kernels, rows: Float32Array, norm: PackedNorm | undefined, width: number): Float32Array {
  if (!norm) return rows;
  scaleRows(rows, memory.f32(norm.gain, width));
  if (norm.kind === "layer")
    for (let at = 0; at < rows.length; at += width) {
      const row = rows.subarray(at, at + width);
      const mean = row.reduce((sum, value) => sum + value, 0) / width;
      for (let i = 0; i < width; i++) row[i] = (row[i] as number) - mean;
    }
  return rows;
}

/** [columns, rows] of a matrix [rows, columns]. */
function transpose(matrix: Float32Array, columns: number): Float32Array {
  const rows = matrix.length / columns;
  const transposed = new Float32Array(matrix.length);
  for (let r = 0; r < rows; r++)
    for (let c = 0; c < columns; c++) transposed[c * rows + r] = matrix[r * columns + c] as number;
  return transposed;
}
