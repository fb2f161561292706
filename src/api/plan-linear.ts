import { placeLinearCall } from "../forward/linear.ts";
import { linearLayout } from "../linear/create-linear.ts";
import type { WeightFormat } from "../linear/formats.ts";
import { expectFormat } from "../linear/options.ts";
import { expectInt, readFields } from "../util/arguments.ts";
import { aligned } from "../wasm/memory.ts";

/** The sizes of a layer to plan memory for. */
export interface LinearSizes {
  /** Floats of a row of y. */
  readonly outputs: number;
  /** Floats of a row of x. */
  readonly inputs: number;
}

/** The largest call to plan memory for, and the format of the weights. */
export interface LinearPlanOptions {
  /** Rows of the longest call. Default 1. */
  readonly rows?: number;
  /** Format of the weights, as `createLinear` takes it. Default "f32". */
  readonly weights?: WeightFormat;
}

/** Exact bytes of linear memory: how much `kernels.usedBytes` grows on one thread. */
export interface LinearPlan {
  /** Bytes that the Linear holds. */
  readonly weights: number;
  /**
   * Bytes that all calls on the same kernels share. They are kept at their largest size, which does not grow beyond 256 rows.
   * A running `linearAsync` takes as much again.
   */
  readonly scratch: number;
  /** The sum of the two. */
  readonly total: number;
}

/**
 * The memory that a linear layer and a call will take, computed before anything is allocated.
 * @throws TypeError or RangeError naming the argument.
 * @example
 * import { planLinear } from "headwise";
 * const { weights } = planLinear({ outputs: 32_000, inputs: 2048 }, { weights: "q8" });
 * console.log(weights); // 77952000: 32 000 x 2048 bytes, six more for each 32 of them, and the biases
 */
export function planLinear(sizes: LinearSizes, options: LinearPlanOptions = {}): LinearPlan {
  const where = "planLinear";
  const { outputs, inputs } = readFields(where, "sizes", sizes, ["outputs", "inputs"]);
  const { rows = 1, weights: given = "f32" } = readFields(where, "options", options, ["rows", "weights"]);
  const size = { n: expectInt(where, "outputs", outputs), k: expectInt(where, "inputs", inputs) };
  expectInt(where, "rows", rows);
  const format = expectFormat(where, "weights", given);
  const weights = aligned(linearLayout(size, format).bytes);
  const { bytes: scratch } = placeLinearCall({ outputs, inputs, format }, rows);
  return { weights, scratch, total: weights + scratch };
}
