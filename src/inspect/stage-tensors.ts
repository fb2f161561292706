// What the stages of all kinds of attention have in common.

import type { LayerParts } from "../attention/attention.ts";
import type { ScoreStage } from "../forward/attend-segment.ts";
import type { AttendCall } from "../forward/call.ts";
import { forward } from "../forward/forward.ts";
import { createFloats, type Tensor } from "../tensor/tensor.ts";
import { copyRows } from "../util/rows.ts";
import { finish } from "../util/steps.ts";
import type { StageName } from "./formulas.ts";

/** A stage, with shapes of one sequence: the data has those of all, one behind the other. */
export type Stage = readonly [name: StageName, tensors: Readonly<Record<string, Tensor>>];

/** From raw scores to weights on `columns` keys. */
export function* scoreStages(parts: LayerParts, call: AttendCall, columns: number): Generator<Stage, void, void> {
  const { numHeads, softcap } = parts.config;
  const scoresAt = (stage: ScoreStage): Tensor => {
    const { maps } = finish(forward(parts, [call], { where: call.where, maps: true, stage }));
    return { data: maps, shape: [numHeads, call.qLen, columns] };
  };
  yield ["scores", { scores: scoresAt(0) }];
  if (softcap > 0) yield ["softcap", { scores: scoresAt(1) }];
  yield ["mask", { scores: scoresAt(2) }];
  yield ["softmax", { weights: scoresAt(3) }];
}

/** [batch, a, b, dim] -> [batch, b, a, dim]. */
export function swapAxes(
  where: string,
  x: Float32Array,
  batch: number,
  a: number,
  b: number,
  dim: number,
): Float32Array {
  const out = createFloats(where, "stage", x.length);
  for (let n = 0; n < batch; n++)
    for (let i = 0; i < a; i++)
      for (let j = 0; j < b; j++) {
        const from = ((n * a + i) * b + j) * dim;
        out.set(x.subarray(from, from + dim), ((n * b + j) * a + i) * dim);
      }
  return out;
}

/** `rows` rows of each part, side by side. */
export function sideBySide(where: string, rows: number, parts: readonly Float32Array[]): Float32Array {
  const out = createFloats(
    where,
    "stage",
    parts.reduce((sum, { length }) => sum + length, 0),
  );
  let at = 0;
  for (const part of parts) {
    const width = part.length / rows;
    copyRows(out, at, out.length / rows, part, width, width);
    at += width;
  }
  return out;
}
