// The scratch of a pass through a decoder, and how each layer's attention uses it.

import type { RunRows } from "../forward/forward.ts";
import { planRows } from "../forward/row-pass.ts";
import { wholePanels } from "../linear/formats.ts";
import { type LinearScratch, placeLinearScratch } from "../linear/linear.ts";
import { Layout } from "../wasm/memory.ts";
import { type MoePlaces, placeMoeRows } from "./experts.ts";
import { linearsIn, placeInner } from "./mlp.ts";
import type { Model } from "./model.ts";
import { ROW_SHAPE_BYTES } from "./rows.ts";

/** The scratch of a pass with chunks of up to `rows` rows. Offsets; rows lie `stride` floats apart. */
export interface PassPlan {
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
  readonly linear: LinearScratch;
  /** What runs the attention of each layer. */
  readonly attention: readonly RunRows[];
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

/** Plans a pass of up to `rows` rows a chunk, of which up to `outputs` become logits, with pages of these formats. */
export function planPass({ spec, weights }: Model, rows: number, outputs: number, formats: number): PassPlan {
  const { blocks, head, projectIn, projectOut, embed } = weights;
  const stride = wholePanels(spec.dModel);
  const vocabulary = 8 * head.panels;
  const headRows = Math.min(outputs, Math.max(1, Math.floor(LOGIT_FLOATS / vocabulary)));
  const common = new Layout();
  const mlps = blocks.flatMap(({ mlp, moe }) => [mlp, moe?.shared, ...(moe?.experts ?? [])].filter((each) => !!each));
  const moes = blocks.flatMap(({ moe }) => moe ?? []);
  const linears = [
    ...[head, projectIn, projectOut].filter((each) => !!each),
    ...mlps.flatMap(linearsIn),
    ...moes.flatMap(({ gate, sharedGate }) => (sharedGate ? [gate, sharedGate] : [gate])),
  ];
  const places = {
    ids: common.floats(rows),
    positions: common.floats(rows),
    residual: common.floats(rows * stride),
    normed: common.floats(rows * stride),
    branch: common.floats(rows * Math.max(stride, embed.dim)),
    shape: common.take(ROW_SHAPE_BYTES),
    linear: placeLinearScratch(common, linears, rows),
  };
  const layouts: Layout[] = [];
  // What a branch works in is not needed by the next one, so that all of them lie at the same place.
  const next = () => {
    const layout = new Layout();
    layout.bytes = common.bytes;
    layouts.push(layout);
    return layout;
  };
  const attention = blocks.map((block) => planRows(block.attention, next(), rows, formats));
  const [mlpLayout, headLayout] = [next(), next()];
  const plan = {
    ...{ rows, stride, headRows, attention },
    ...places,
    inner: placeInner(mlpLayout, mlps, rows),
    moe: placeMoeRows(mlpLayout, moes, rows, stride),
    narrow: headLayout.floats(headRows * Math.max(embed.dim, projectOut ? 8 * projectOut.panels : 0)),
    logits: headLayout.floats(headRows * vocabulary),
    topValues: headLayout.floats(MOST_TOP),
    topIds: headLayout.floats(MOST_TOP),
  };
  return { ...plan, bytes: Math.max(...layouts.map(({ bytes }) => bytes)) };
}
