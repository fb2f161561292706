// Whether a model fits into the bytes that a host allows, before its tensors are read.

import type { WeightFormat } from "../linear/formats.ts";
import type { Decoder } from "../models/decoder/read-spec.ts";
import { HeadwiseError } from "../util/errors.ts";
import { CHUNK_ROWS } from "../util/rows.ts";
import { allParts, type PackedFormats, uniformFormats } from "./model-formats.ts";
import { planSpec } from "./plan-model.ts";

/** What is proposed where a model does not fit, the most exact first. */
const SMALLER: readonly WeightFormat[] = ["f16", "q8", "q4"];

/** A model as it would be loaded: the formats of a half of it, or of all, and the tokens of its longest sequence. */
interface Wanted {
  weights(half: Decoder): PackedFormats;
  readonly maxSeqLen: number;
}

/** The bytes that a model and its calls take, and what they are for, in words. */
type Plan = (wanted: Wanted) => { readonly total: number; readonly text: string };

/** The plans of a kind of models. */
export type PlanKind = (where: string, model: Decoder) => Plan;

/** A decoder with one session. */
export const planDecoder: PlanKind =
  (where, decoder) =>
  ({ weights, maxSeqLen }) => {
    // No call has more rows than the session has tokens.
    const bytes = planSpec(where, decoder.spec, weights(decoder), { maxSeqLen, rows: Math.min(CHUNK_ROWS, maxSeqLen) });
    const sessions = `${bytes.sessions} of a session of ${maxSeqLen} tokens`;
    return { total: bytes.total, text: `${bytes.weights} of weights, ${sessions}, ${bytes.scratch} of calls` };
  };

/** Throws `OUT_OF_MEMORY` with the bytes and with what would fit, if `plan` gives more than `most`. */
export function expectFit(where: string, plan: Plan, wanted: Wanted, most: number): void {
  const { total, text } = plan(wanted);
  if (total <= most) return;
  const rule = `options.maxBytes expected ${total} or more (${text})`;
  throw new HeadwiseError(
    "OUT_OF_MEMORY",
    `${where}: ${rule}, got ${most}; what fits: ${proposals(plan, wanted, most)}`,
  );
}

/** One format for all matrices. */
const all =
  (format: WeightFormat): Wanted["weights"] =>
  ({ spec }) =>
    uniformFormats(spec, allParts(format));

/** Smaller formats and shorter sequences that fit, in words. */
function proposals(plan: Plan, wanted: Wanted, most: number): string {
  const found = SMALLER.filter((format) => plan({ ...wanted, weights: all(format) }).total <= most).map(
    (weights) => `weights "${weights}"`,
  );
  const length = longest(plan, wanted, most);
  if (length > 0) found.push(`maxSeqLen ${length}`);
  if (found.length > 0) return found.join(", or ");
  const shorter = longest(plan, { ...wanted, weights: all("q4") }, most);
  return shorter > 0 ? `weights "q4" with maxSeqLen ${shorter}` : "no format";
}

/** The most tokens of a sequence that fits; 0 if none does. */
function longest(plan: Plan, { weights, maxSeqLen }: Wanted, most: number): number {
  let [fits, exceeds] = [0, maxSeqLen + 1];
  while (exceeds - fits > 1) {
    const middle = Math.floor((fits + exceeds) / 2);
    if (plan({ weights, maxSeqLen: middle }).total <= most) fits = middle;
    else exceeds = middle;
  }
  return fits;
}
