// The rows that tokens begin with: those of the table, and what is added to them.

import { widthOfRows } from "../models/decoder/spec.ts";
import { copyRows, type RowRun } from "../util/rows.ts";
import type { Steps } from "../util/steps.ts";
import type { BlockRows } from "./block.ts";
import type { Model } from "./model.ts";
import { addRows, embedRows, normRows, projectRows, type RowWork } from "./rows.ts";
import type { PassPlan } from "./scratch.ts";

/** Tokens, of which the first has `past` others before it, and their types, by default 0. */
export interface EmbeddedTokens {
  readonly ids: Int32Array;
  readonly past: number;
  readonly types?: Int32Array | undefined;
  /** Rows [ids.length, dModel] instead of those of the table. */
  readonly rows?: Float32Array | undefined;
}

/** residual = the rows of a chunk's tokens. */
export function* embedTokens(
  work: RowWork,
  { spec, weights }: Pick<Model, "spec" | "weights">,
  plan: Pick<PassPlan, "ids" | "positions">,
  { residual, branch, normed }: BlockRows,
  runs: readonly RowRun<EmbeddedTokens>[],
  count: number,
): Steps {
  const { embed, embedNorm, positions, types, projectIn } = weights;
  const [ids, numbers] = [work.base + plan.ids, work.base + plan.positions];
  const write = (at: number, from: (of: EmbeddedTokens, token: number) => number) => {
    const to = work.kernels.memory.u32(at, count);
    for (const { of, begin, end, at } of runs)
      for (let token = begin; token < end; token++) to[at + token - begin] = from(of, token);
  };
  write(ids, (of, token) => of.ids[token] as number);
  const narrow = { at: branch.at, stride: embed.dim };
  const { projectLast, positions: { offset = 0 } = {} } = spec.embed;
  // What positions and types are added to.
  const rows = projectIn && projectLast ? narrow : residual;
  const added = projectIn && projectLast ? { at: normed.at, stride: embed.dim } : branch;
  if (runs[0]?.of.rows) {
    const { dModel } = spec;
    const to = work.kernels.memory.f32(residual.at, count * residual.stride);
    for (const { of, begin, end, at } of runs)
      copyRows(
        to,
        at * residual.stride,
        residual.stride,
        (of.rows as Float32Array).subarray(begin * dModel, end * dModel),
        dModel,
        dModel,
      );
  } else if (projectIn && !projectLast) {
    embedRows(work, embed, ids, narrow, spec.embed.scale, count);
    yield* projectRows(work, [projectIn], residual, narrow, count);
  } else embedRows(work, embed, ids, rows, spec.embed.scale, count);
  for (const [table, numberOf] of [
    [positions, ({ past }: EmbeddedTokens, token: number) => past + token + offset],
    [types, (of: EmbeddedTokens, token: number) => of.types?.[token] ?? 0],
  ] as const) {
    if (!table) continue;
    write(numbers, numberOf);
    embedRows(work, table, numbers, added, 1, count);
    addRows(work, rows, rows, added, 1, count);
  }
  if (embedNorm) normRows(work, embedNorm, rows, rows, widthOfRows(spec), count);
  if (projectIn && projectLast) yield* projectRows(work, [projectIn], residual, narrow, count);
}
