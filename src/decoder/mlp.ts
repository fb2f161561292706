// The MLP of a layer or of an expert, on rows in linear memory.

import { PANEL } from "../../assembly/layout.ts";
import { wholePanels } from "../linear/formats.ts";
import type { PackedLinear, Rows } from "../linear/linear.ts";
import type { Steps } from "../util/steps.ts";
import { NULL } from "../wasm/abi.ts";
import { type Layout, pointer } from "../wasm/memory.ts";
import type { PackedMlp } from "./packed.ts";
import { innerStride, type MlpPlace } from "./places.ts";
import { activateRows, projectRows, type RowWork } from "./rows.ts";

/** Places what the largest of these MLPs computes first, for up to `rows` rows. */
export function placeInner(layout: Layout, mlps: readonly MlpPlace[], rows: number): number {
  return layout.floats(rows * Math.max(0, ...mlps.map(innerStride)));
}

/** to = down(act(gate(from)) · up(from)); `inner` is the offset of what is between. */
export function* runMlp(work: RowWork, mlp: PackedMlp, inner: number, to: Rows, from: Rows, rows: number): Steps {
  const { dim, inputs, gated, activation, down } = mlp;
  const stride = PANEL * inputs.reduce((sum, { panels }) => sum + panels, 0);
  const first = { at: pointer.f32(work.base + inner), stride };
  yield* projectRows(work, inputs, first, from, rows);
  activateRows(work, activation, first, gated ? pointer.f32(first.at + 4 * wholePanels(dim)) : NULL, dim, rows);
  yield* projectRows(work, [down], to, first, rows);
}

/** The projections of an MLP. */
export const linearsIn = ({ inputs, down }: PackedMlp): readonly PackedLinear[] => [...inputs, down];
