// Whether a model fits into the bytes that a host allows, before its tensors are read.

import type { WeightFormat } from "../linear/formats.ts";
import type { ModelSpec } from "../models/decoder/spec.ts";
import { HeadwiseError } from "../util/errors.ts";
import { CHUNK_ROWS } from "../util/rows.ts";
import { allParts, type PackedFormats } from "./model-formats.ts";
import { type ModelPlan, planSpec } from "./plan-model.ts";
import { uniformFormats } from "./stored-formats.ts";

/** What is proposed where a model does not fit, the most exact first. */
const SMALLER: readonly WeightFormat[] = ["f16", "q8", "q4"];

/** A model as it would be loaded, with one session. */
interface Wanted {
  readonly weights: PackedFormats;
  readonly maxSeqLen: number;
}

type Plan = (wanted: Wanted) => ModelPlan;

/** Throws `OUT_OF_MEMORY` with the bytes and with what would fit, if the model, a session and its calls take more than `most`. */
export function expectFit(where: string, spec: ModelSpec, wanted: Wanted, most: number): void {
  // No call has more rows than the session has tokens.
  const plan: Plan = ({ weights, maxSeqLen }) =>
    planSpec(where, spec, weights, { maxSeqLen, rows: Math.min(CHUNK_ROWS, maxSeqLen) });
  const { weights, sessions, scratch, total } = plan(wanted);
  if (total <= most) return;
  const parts = `${weights} of weights, ${sessions} of a session of ${wanted.maxSeqLen} tokens, ${scratch} of calls`;
  const text = `${where}: options.maxBytes expected ${total} or more (${parts}), got ${most}`;
  const all = (format: WeightFormat) => uniformFormats(spec, allParts(format));
  throw new HeadwiseError("OUT_OF_MEMORY", `${text}; what fits: ${proposals(plan, wanted, most, all)}`);
}

/** Smaller formats and shorter sessions that fit, in words. */
function proposals(plan: Plan, wanted: Wanted, most: number, all: (format: WeightFormat) => PackedFormats): string {
  const found = SMALLER.filter((weights) => plan({ ...wanted, weights: all(weights) }).total <= most).map(
    (weights) => `weights "${weights}"`,
  );
  const length = longest(plan, wanted, most);
  if (length > 0) found.push(`maxSeqLen ${length}`);
  if (found.length > 0) return found.join(", or ");
  const shorter = longest(plan, { ...wanted, weights: all("q4") }, most);
  return shorter > 0 ? `weights "q4" with maxSeqLen ${shorter}` : "no format";
}

/** The most tokens of a session that fits; 0 if none does. */
function longest(plan: Plan, { weights, maxSeqLen }: Wanted, most: number): number {
  let [fits, exceeds] = [0, maxSeqLen + 1];
  while (exceeds - fits > 1) {
    const middle = Math.floor((fits + exceeds) / 2);
    if (plan({ weights, maxSeqLen: middle }).total <= most) fits = middle;
    else exceeds = middle;
  }
  return fits;
}
