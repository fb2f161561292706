import type { RopeScaling } from "../../attention/rope-frequencies.ts";
import type { Keys } from "./keys.ts";
import type { RopeFactors } from "./rope-factors.ts";

/**
 * The scaling that the metadata states. `dim` components rotate, `truncate` is that of yarn, and `given` are the factors
 * of the file's tensors, if it has any.
 */
export function readScaling(
  keys: Keys,
  dim: number,
  truncate: boolean,
  given: RopeFactors | undefined,
): RopeScaling | undefined {
  const kind = keys.raw("rope.scaling.type") ?? "linear";
  const isKnown =
    kind === "linear" || kind === "none" || kind === "yarn" || (kind === "longrope" && given !== undefined);
  if (!isKnown) keys.fail("rope.scaling.type", '"none", "linear" or "yarn", since others are unsupported', kind);
  const factor = keys.number("rope.scaling.factor") ?? keys.number("rope.scale_linear") ?? 1;
  const scaled = (kind === "linear" || kind === "yarn") && factor !== 1;
  if (given !== undefined) {
    const { factors, attentionFactor } = given;
    if (scaled) keys.fail("rope.scaling.factor", "1 beside a tensor of factors", factor);
    if (factors.length !== dim / 2)
      keys.fail("rope.dimension_count", `two for each of the ${factors.length} factors`, dim);
    if (attentionFactor !== undefined) return { kind: "factors", factors, attentionFactor };
    return factors.every((each) => each === 1) ? undefined : { kind: "factors", factors };
  }
  if (!scaled) return undefined;
  if (kind === "linear") return { kind, factor };
  const originalMaxSeqLen = keys.count("rope.scaling.original_context_length", keys.count("context_length"));
  const betaFast = keys.number("rope.scaling.yarn_beta_fast");
  const betaSlow = keys.number("rope.scaling.yarn_beta_slow");
  return {
    kind: "yarn",
    factor,
    originalMaxSeqLen,
    ...(betaFast !== undefined && { betaFast }),
    ...(betaSlow !== undefined && { betaSlow }),
    ...(truncate ? {} : { truncate }),
  };
}
