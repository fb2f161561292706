// A layer of a decoder on rows in linear memory.

import type { Steps } from "../../base/util/steps.ts";
import type { Rows } from "../../layers/linear/products.ts";
import type { RunRows, Runs } from "../../layers/mixer/mixer.ts";
import { pointer } from "../../wasm/memory.ts";
import type { NormRole } from "../spec/spec.ts";
import { runMlp, runMoe } from "./mlp.ts";
import type { PackedBlock } from "./places.ts";
import { addRows, type LayerSite, normRows, type RowWork } from "./rows.ts";
import type { PassPlan } from "./scratch.ts";

/** The rows of a chunk between layers. */
export interface BlockRows {
  readonly residual: Rows;
  readonly normed: Rows;
  readonly branch: Rows;
}

/** The rows of a plan in scratch at `base`. */
export function blockRows(
  { residual, normed, branch, stride }: Pick<PassPlan, keyof BlockRows | "stride">,
  base: number,
): BlockRows {
  const rows = (place: number): Rows => ({ at: pointer.f32(base + place), stride });
  return { residual: rows(residual), normed: rows(normed), branch: rows(branch) };
}

/** Runs a layer: attention and MLP, each of which is added to the residual, with the layer's norms. */
export function* runBlock<Call>(
  work: RowWork,
  block: PackedBlock,
  plan: Pick<PassPlan, "inner" | "moe">,
  attend: RunRows<Call>,
  runs: Runs<Call>,
  rows: BlockRows,
  count: number,
  attendCross?: (rows: { readonly x: Rows; readonly out: Rows }) => Steps,
): Steps {
  const { residual, normed, branch } = rows;
  const { norms, parallel, addsToNormed, scale, mlp, moe } = block;
  const { tap, maps, measure } = work;
  const width = block.attention.config.dModel;
  /** Applies a norm where the layer has it; else what it would have written is what it would have read. */
  const norm = (role: NormRole, to: Rows, from: Rows): Rows => {
    const own = norms[role];
    if (!own) return from;
    normRows(work, own, to, from, width, count);
    return to;
  };
  const add = (read: Rows, after: NormRole) => {
    addRows(work, residual, addsToNormed ? read : residual, branch, scale, count);
    norm(after, residual, residual);
  };

  /**
   * Shows the tap what a branch reads. These rows may be those of the residual, or be read again: what is returned undoes the tap's
   * changes, and is called behind the branch.
   */
  const show = (site: LayerSite, { at, stride }: Rows): (() => void) | undefined => {
    if (!tap) return undefined;
    const { memory } = work.kernels;
    const kept = memory.f32(at, count * stride).slice();
    tap(site, { at, stride });
    return () => memory.f32(at, kept.length).set(kept);
  };

  tap?.("residPre", residual);
  let read = norm("attentionPre", normed, residual);
  let undo = show("attnIn", read);
  yield* attend(work.base, work.stepFlops, runs, { x: read, out: branch, tap, maps, measure });
  undo?.();
  norm("attentionPost", branch, branch);
  tap?.("attnOut", branch);
  // In parallel layers the MLP reads what was before attention: by a norm of its own, or what attention read.
  if (parallel && norms.mlpPre) read = norm("mlpPre", normed, residual);
  add(read, "attentionAfter");
  if (attendCross) {
    read = norm("crossPre", normed, residual);
    yield* attendCross({ x: read, out: branch });
    add(read, "crossAfter");
  }
  if (!parallel) tap?.("residMid", residual);
  if (mlp || moe) {
    if (!parallel) read = norm("mlpPre", normed, residual);
    undo = show("mlpIn", read);
    if (mlp) yield* runMlp(work, mlp, plan.inner, branch, read, count);
    if (moe) yield* runMoe(work, moe, plan.moe, plan.inner, branch, read, count);
    undo?.();
    norm("mlpPost", branch, branch);
    tap?.("mlpOut", branch);
    add(read, "mlpAfter");
  }
  tap?.("residPost", residual);
}
