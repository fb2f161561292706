// The scratch of a pass through a decoder, and about how many operations it takes.

import { placeRotations } from "../../layers/attention/heads.ts";
import type { RopeWithDim } from "../../layers/attention/rope.ts";
import { wholePanels } from "../../layers/linear/formats/format.ts";
import { type LinearScratch, linearFlops, placeLinearScratch } from "../../layers/linear/products.ts";
import type { RotationPlaces, RunRows, StateCall } from "../../layers/mixer/mixer.ts";
import { Layout } from "../../wasm/memory.ts";
import type { ModelSpec } from "../spec/spec.ts";
import { type MoePlaces, placeInner, placeMoeRows } from "./mlp.ts";
import type { LoadedModel } from "./model.ts";
import type { ModelPlaces } from "./places.ts";
import { ROW_SHAPE_BYTES } from "./rows.ts";

// The scratch of a pass through a decoder, and how each layer's attention uses it.

/** What runs the attention of a layer, and its attention to the outputs of an encoder. */
export interface LayerRun {
  readonly self: RunRows<StateCall>;
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
  /** Tables of rotations, and the first of the layers that have them. */
  readonly rotations: readonly (RotationPlaces & { readonly layer: number })[];
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

/** What a plan is made for. */
interface PlanSizes {
  /** Rows of a chunk at most. */
  readonly rows: number;
  /** Rows that become logits, at most. */
  readonly outputs: number;
  /** What rotates in each layer, where layers share tables. */
  readonly ropes?: readonly (RopeWithDim | undefined)[];
}

/**
 * Plans a pass. `placeAttention` places what the attention of a layer works in for chunks of up to `rows` rows, with tables of
 * rotations that layers share, and returns what runs it.
 */
export function planPass<Run>(
  spec: ModelSpec,
  { products }: Pick<ModelPlaces, "products">,
  { rows, outputs, ropes = [] }: PlanSizes,
  placeAttention: (layer: number, layout: Layout, rotations: RotationPlaces | undefined) => Run,
): PassPlan<Run> {
  const stride = wholePanels(spec.dModel);
  const vocabulary = wholePanels(spec.vocabSize);
  const headRows = Math.min(outputs, Math.max(1, Math.floor(LOGIT_FLOATS / vocabulary)));
  const common = new Layout();
  const moes = spec.blocks.flatMap(({ mlp }) => (mlp?.kind === "moe" ? mlp : []));
  const dense = spec.blocks.flatMap(({ mlp }) => (mlp?.kind === "mlp" ? mlp : []));
  const mlps = [...dense, ...moes.flatMap(({ expert, shared }) => (shared ? [expert, shared.mlp] : expert))];
  const places = {
    ids: common.floats(rows),
    positions: common.floats(rows),
    residual: common.floats(rows * stride),
    normed: common.floats(rows * Math.max(stride, spec.embed.dim)),
    branch: common.floats(rows * Math.max(stride, spec.embed.dim)),
    shape: common.take(ROW_SHAPE_BYTES),
    linear: placeLinearScratch(common, products, rows),
  };
  const rotations = new Map<string | undefined, PassPlan["rotations"][number]>();
  const keys = ropes.map((rope) => JSON.stringify(rope));
  for (const [layer, rope] of ropes.entries())
    if (rope && !rotations.has(keys[layer]))
      rotations.set(keys[layer], { ...placeRotations(common, rope, rows), layer });
  const layouts: Layout[] = [];
  // What a branch works in is not needed by the next one, so that all of them lie at the same place.
  const next = () => {
    const layout = new Layout();
    layout.bytes = common.bytes;
    layouts.push(layout);
    return layout;
  };
  const attention = spec.blocks.map((_, layer) => placeAttention(layer, next(), rotations.get(keys[layer])));
  const [mlpLayout, headLayout] = [next(), next()];
  const plan = {
    ...{ rows, stride, headRows, attention, rotations: [...rotations.values()] },
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
  return rows * model.places.rowFlops + linearFlops(model.weights.head, outputs);
}
