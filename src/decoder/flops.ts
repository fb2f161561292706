// About how many operations a pass takes: its products.

import { linearsIn } from "./mlp.ts";
import type { Model, ModelHalf } from "./model.ts";
import type { PackedBlock, PackedMlp } from "./packed.ts";
import { flopsOf } from "./rows.ts";

/** Of all tokens of these calls, and the logits of those that have any. */
export function passFlops(
  model: Model,
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
