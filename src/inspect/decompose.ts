import type { Model } from "../decoder/model.ts";
import type { PackedBlock } from "../decoder/packed.ts";
import type { NormRole } from "../models/decoder/spec.ts";
import { createFloats, type Tensor } from "../tensor/tensor.ts";
import { expectInt, readFields } from "../util/arguments.ts";
import { type CapturedRun, expectRun, expectToken, rowAt } from "./captured-run.ts";
import { addPart, addRounding, type Component, inOrder, mapParts, normParts, type Part, readNorm } from "./parts.ts";
import { outputsOf, weightRows } from "./read-weights.ts";

/** What `decomposeResid` takes apart. */
export interface ResidPlace {
  /** A token, as an index into `run.ids`. */
  readonly token: number;
  /** The residual before this layer. Default that behind the last one. */
  readonly layer?: number | undefined;
}

/** A residual by component. */
export interface DecomposedResid {
  /** What wrote to the residual. */
  readonly components: readonly Component[];
  /** What each component wrote: [components, dModel]. */
  readonly parts: Tensor;
}

/**
 * The residual of a token as the sum of what the embedding and each earlier head, MLP and bias wrote to it; what a norm did to
 * the sum on the way, where a model has norms there, is done to each part with the norm's scale. Heads write z·W_O, with the numbers
 * that a quantised W_O stands for.
 * @returns Parts whose sum is the row of the pass, within 2^-24 of the sum of their magnitudes; the last one is "rounding".
 * @throws TypeError or RangeError naming the argument. HeadwiseError `RELEASED`.
 * @example
 * import { loadKernels } from "headwise";
 * import { captureRun, decomposeResid } from "headwise/inspect";
 * import { createSession, loadModel, models } from "headwise/models";
 * const kernels = await loadKernels({ models });
 * using run = captureRun(createSession(await loadModel(kernels, "model")), [3, 1, 4]);
 * const { components, parts } = decomposeResid(run, { token: 2, layer: 1 });
 * console.log(components[1], parts.shape); // { kind: 'head', layer: 0, head: 0 } [ 6, 64 ]
 * kernels.release();
 */
export function decomposeResid(run: CapturedRun, place: ResidPlace): DecomposedResid {
  const where = "decomposeResid";
  const { token, layer } = readFields(where, "place", place, ["token", "layer"]);
  expectRun(where, run);
  const { length } = run.model.spec.blocks;
  const row = expectToken(where, "place.token", token, run);
  const before = layer === undefined ? length : expectInt(where, "place.layer", layer, 0, length - 1);
  const parts = inOrder(decompose(where, run, [row], before)[0] as Part[]);
  const { dModel } = run.model;
  const data = createFloats(where, "parts", parts.length * dModel);
  for (const [i, part] of parts.entries()) data.set(part.row, i * dModel);
  return { components: parts.map(({ component }) => component), parts: { data, shape: [parts.length, dModel] } };
}

/** The parts of the residual before layer `layer`, for each of `tokens`. */
export function decompose(where: string, run: CapturedRun, tokens: readonly number[], layer: number): Part[][] {
  let all = tokens.map((token) => embedParts(where, run, token));
  for (let i = 0; i < layer; i++) {
    const heads = headResults(where, run, i, tokens);
    all = all.map((parts, t) => blockParts(run, i, tokens[t] as number, parts, heads[t] as Part[]));
  }
  return all.map((parts, t) => addRounding(parts, rowAt(run, "residPre", layer, tokens[t] as number)));
}

/** What the first layer reads: the token, and its position where the model has a table. */
function embedParts(where: string, run: CapturedRun, token: number): Part[] {
  const { kernels, spec, weights } = run.model;
  const row = Float64Array.from(rowAt(run, "residPre", 0, token));
  const { positions: table } = weights;
  if (!table) return [{ component: { kind: "embed" }, row }];
  const number = run.past + token + (spec.embed.positions?.offset ?? 0);
  const packed = { k: table.dim, format: table.format, w: table.at, mins: table.mins };
  const [read] = [...weightRows(where, kernels, packed, number, number + 1)];
  const position = Float64Array.from(read?.rows ?? []);
  return [
    { component: { kind: "embed" }, row: row.map((value, i) => value - (position[i] as number)) },
    { component: { kind: "posEmbed" }, row: position },
  ];
}

/** What the heads of a layer give to each token, z·W_O, and the bias. */
function headResults(where: string, run: CapturedRun, layer: number, tokens: readonly number[]): Part[][] {
  const { kernels, dModel, weights } = run.model;
  const { attention } = weights.blocks[layer] as PackedBlock;
  const { numHeads, valueDim } = attention.config;
  const o = outputsOf(attention);
  const bias = Float64Array.from(kernels.memory.f32(o.bias, dModel));
  const all = tokens.map(() => Array.from({ length: numHeads }, () => new Float64Array(dModel)));
  for (const { first, rows } of weightRows(where, kernels, o, 0, dModel))
    for (const [t, token] of tokens.entries()) {
      const z = rowAt(run, "z", layer, token);
      for (const [head, out] of (all[t] as Float64Array[]).entries()) {
        const from = head * valueDim;
        for (let at = from, i = first; at < rows.length; at += o.k, i++) {
          let sum = 0;
          for (let d = 0; d < valueDim; d++) sum += (rows[at + d] as number) * (z[from + d] as number);
          out[i] = sum;
        }
      }
    }
  return all.map((heads) => {
    const parts = heads.map((row, head): Part => ({ component: { kind: "head", layer, head }, row }));
    return bias.some((value) => value !== 0) ? addPart(parts, { kind: "bias", at: "attnOut", layer }, bias) : parts;
  });
}

/** The parts of the residual behind a layer, as `runBlock` of decoder/block.ts computes it. */
function blockParts(
  run: CapturedRun,
  layer: number,
  token: number,
  before: readonly Part[],
  heads: readonly Part[],
): Part[] {
  const { kernels, dModel, weights } = run.model;
  const { norms, parallel, addsToNormed, scale, mlp, moe } = weights.blocks[layer] as PackedBlock;
  const scaled = (parts: readonly Part[]) => mapParts(parts, (row) => row.map((value) => scale * value));
  const norm = (role: NormRole, parts: readonly Part[], at: "attnOut" | "residMid" | "residPost") => {
    const own = norms[role];
    return own ? normParts(readNorm(kernels, own, dModel), parts, { kind: "bias", at, layer }) : parts;
  };
  const start = addRounding(before, rowAt(run, "residPre", layer, token));
  const read = addsToNormed ? norm("attentionPre", start, "residMid") : start;
  const middle = norm("attentionAfter", [...read, ...scaled(norm("attentionPost", heads, "attnOut"))], "residMid");
  if (!mlp && !moe) return [...middle];
  const onto = addsToNormed && !parallel ? norm("mlpPre", middle, "residPost") : middle;
  const row = Float64Array.from(rowAt(run, "mlpOut", layer, token));
  const last = norm("mlpAfter", [...onto, ...scaled([{ component: { kind: "mlp", layer }, row }])], "residPost");
  return [...last];
}

/** The parts of what the attention of a layer reads, from those of the residual before it. */
export function readParts(model: Model, layer: number, parts: readonly Part[], component: Component): readonly Part[] {
  const { attentionPre } = (model.weights.blocks[layer] as PackedBlock).norms;
  return attentionPre ? normParts(readNorm(model.kernels, attentionPre, model.dModel), parts, component) : parts;
}
