// The scratch of a pass through a decoder, and about how many operations it takes.

import { wholePanels } from "../../layers/linear/formats/format.ts";
import { type LinearScratch, placeLinearScratch } from "../../layers/linear/products.ts";
import type { RunRows } from "../../layers/pass/forward.ts";
import { Layout } from "../../wasm/memory.ts";
import type { ModelSpec } from "../spec/spec.ts";
import { linearsIn, type MoePlaces, placeInner, placeMoeRows } from "./mlp.ts";
import type { LoadedModel, ModelHalf } from "./model.ts";
import { linearsOf, type ModelPlaces, mlpsIn, type PackedBlock, type PackedMlp } from "./places.ts";
import { flopsOf, ROW_SHAPE_BYTES } from "./rows.ts";

// The scratch of a pass through a decoder, and how each layer's attention uses it.

/** What runs the attention of a layer, and its attention to the outputs of an encoder. */
export interface LayerRun {
  readonly self: RunRows;
  readonly cross?: RunRows;
}

/** The scratch of a pass with chunks of up to `rows` rows. Offsets; rows lie `stride` floats apart. */
export interface PassPlan<Run = LayerRun> {
  readonly rows: number;
  readonly stride: number;
  /** Ids of the chunk's tokens, and their rows in the table of positions. */
  readonly ids: number;
  readonly positions: number;
  /** The residual; what a branch reads, after its norm; what it computes. */
  readonly residual: number;
  readonly normed: number;
  readonly branch: number;
  readonly shape: number;
  /** In chunks of a single row, room for what its kernel calls share: token-calls.ts. */
  readonly token: number;
  readonly linear: LinearScratch;
  /** What runs the attention of each layer. */
  readonly attention: readonly Run[];
  readonly inner: number;
  readonly moe: MoePlaces;
  /** Narrowed rows before the head, [headRows, dim]; logits [headRows, vocabulary in whole panels]; chosen ones. */
  readonly narrow: number;
  readonly logits: number;
  readonly headRows: number;
  readonly topValues: number;
  readonly topIds: number;
  readonly bytes: number;
}

/** About how many floats of logits are computed at a time. */
const LOGIT_FLOATS = 2 ** 22;

/** The most logits of a row that a call can ask for. */
export const MOST_TOP = 1024;

/** Bytes for the shapes and tables of a single token's calls, most of which layers share. */
export const TOKEN_BYTES = 16_384;

/** What a plan is made for. */
interface PlanSizes {
  /** Rows of a chunk at most. */
  readonly rows: number;
  /** Rows that become logits, at most. */
  readonly outputs: number;
}

/**
 * Plans a pass. `placeAttention` places what the attention of a layer works in for chunks of up to `rows` rows, and returns what
 * runs it.
 */
export function planPass<Run>(
  spec: ModelSpec,
  { ends, blocks }: ModelPlaces,
  { rows, outputs }: PlanSizes,
  placeAttention: (layer: number, layout: Layout) => Run,
): PassPlan<Run> {
  const { projectIn, projectOut, transform, head = ends.embed } = ends;
  const stride = wholePanels(spec.dModel);
  const vocabulary = wholePanels(spec.vocabSize);
  const headRows = Math.min(outputs, Math.max(1, Math.floor(LOGIT_FLOATS / vocabulary)));
  const common = new Layout();
  const mlps = blocks.flatMap(({ place }) => mlpsIn(place));
  const moes = blocks.flatMap(({ place }) => place.moe ?? []);
  const linears = [head, projectIn, projectOut, transform?.dense].filter((each) => each !== undefined);
  const places = {
    ids: common.floats(rows),
    positions: common.floats(rows),
    residual: common.floats(rows * stride),
    normed: common.floats(rows * Math.max(stride, spec.embed.dim)),
    branch: common.floats(rows * Math.max(stride, spec.embed.dim)),
    shape: common.take(ROW_SHAPE_BYTES),
    token: common.take(rows === 1 ? TOKEN_BYTES : 0),
    linear: placeLinearScratch(common, [...linears, ...blocks.flatMap(({ place }) => linearsOf(place))], rows),
  };
  const layouts: Layout[] = [];
  // What a branch works in is not needed by the next one, so that all of them lie at the same place.
  const next = () => {
    const layout = new Layout();
    layout.bytes = common.bytes;
    layouts.push(layout);
    return layout;
  };
  const attention = blocks.map((_, layer) => placeAttention(layer, next()));
  const [mlpLayout, headLayout] = [next(), next()];
  const plan = {
    ...{ rows, stride, headRows, attention },
    ...places,
    inner: placeInner(mlpLayout, mlps, rows),
    moe: placeMoeRows(mlpLayout, moes, rows, stride),
    narrow: headLayout.floats(headRows * wholePanels(spec.embed.dim)),
    logits: headLayout.floats(headRows * vocabulary),
    topValues: headLayout.floats(MOST_TOP),
    topIds: headLayout.floats(MOST_TOP),
  };
  return { ...plan, bytes: Math.max(...layouts.map(({ bytes }) => bytes)) };
}

// About how many operations a pass takes: its products.

/** Of all tokens of these calls, and the logits of those that have any. */
export function passFlops(
  model: LoadedModel,
  calls: readonly { readonly ids: ArrayLike<number>; readonly outputs: number }[],
): number {
  const rows = calls.reduce((sum, { ids }) => sum + ids.length, 0);
  const outputs = calls.reduce((sum, each) => sum + each.outputs, 0);
  return rows * rowFlops(model) + flopsOf([model.weights.head], outputs);
}

/** Of a row through all layers. */
export function rowFlops({ spec, weights: { blocks } }: ModelHalf): number {
  const order = spec.order ?? blocks.keys();
  return Array.from(order, (i) => blockFlops(blocks[i] as PackedBlock)).reduce((sum, flops) => sum + flops, 0);
}

function blockFlops({ attention, mlp, moe }: PackedBlock): number {
  const own = Object.values(attention.layer?.linears ?? {}).filter((each) => !!each);
  const experts = moe ? moe.topK * flopsOf(linearsIn(moe.experts[0] as PackedMlp), 1) : 0;
  const shared = [mlp, moe?.shared].reduce((sum, each) => sum + (each ? flopsOf(linearsIn(each), 1) : 0), 0);
  return flopsOf(own, 1) + experts + shared;
}
