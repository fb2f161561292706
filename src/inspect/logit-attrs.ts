import { expectInt, readFields } from "../util/arguments.ts";
import { type CapturedRun, expectRun, expectToken, rowAt } from "./captured-run.ts";
import { decompose } from "./decompose.ts";
import { addPart, type Component, freezeNorm, inOrder, type Part, readNorm } from "./parts.ts";
import { dot, readMatrix, weightRows } from "./read-weights.ts";

/** Which logit to attribute. */
export interface LogitPlace {
  /** The token whose row becomes logits, as an index into `run.ids`. */
  readonly token: number;
  /** The id of the logit. */
  readonly id: number;
  /** Another id: then the difference of both logits is attributed. Default none. */
  readonly minus?: number | undefined;
}

/** A logit by component. */
export interface LogitAttrs {
  /** The logit, or the difference, before the softcap: the sum of `parts`. */
  readonly logit: number;
  /** What wrote to the last residual, and biases of what comes behind it. */
  readonly components: readonly Component[];
  /** What each component gives. */
  readonly parts: Float64Array;
}

/**
 * Direct logit attribution: a logit, or the difference of two, split by what wrote to the last residual: embedding, each head,
 * each MLP, biases. The final norm has the scale of the actual row, with which it is linear; a factor on logits is part of it. A
 * softcap on logits is not: with softcap c the model's logit is c·tanh(logit / c).
 * @throws TypeError or RangeError naming the argument. HeadwiseError `RELEASED`.
 * @example
 * import { loadKernels } from "headwise";
 * import { captureRun, logitAttrs } from "headwise/inspect";
 * import { createSession, loadModel, models } from "headwise/models";
 * const kernels = await loadKernels({ models });
 * using run = captureRun(createSession(await loadModel(kernels, "model")), [3, 1, 4, 3]);
 * const { logit, parts, components } = logitAttrs(run, { token: 3, id: 1 });
 * console.log(Math.abs(logit - run.logits[1]!) < 1e-4, parts.length === components.length); // true true
 * kernels.release();
 */
export function logitAttrs(run: CapturedRun, place: LogitPlace): LogitAttrs {
  const where = "logitAttrs";
  const { token, id, minus } = readFields(where, "place", place, ["token", "id", "minus"]);
  expectRun(where, run);
  const { kernels, spec, weights, dModel, vocabSize } = run.model;
  const row = expectToken(where, "place.token", token, run);
  const ids = [expectInt(where, "place.id", id, 0, vocabSize - 1)];
  if (minus !== undefined) ids.push(expectInt(where, "place.minus", minus, 0, vocabSize - 1));

  const { head, projectOut, finalNorm } = weights;
  const biasOf = (of: { readonly bias: number }, i: number) => kernels.memory.f32(of.bias + 4 * i, 1)[0] as number;
  // logit = direction · norm(x) + constant, in which the second id counts with -1.
  let direction = new Float64Array(head.k);
  let constant = 0;
  for (const [i, each] of ids.entries()) {
    const factor = (i === 0 ? 1 : -1) * spec.head.scale;
    constant += factor * biasOf(head, each);
    const unembed = readMatrix(where, run.model.kernels, head, each, each + 1);
    direction = direction.map((value, d) => value + factor * (unembed[d] as number));
  }
  if (projectOut) {
    const narrow = direction;
    direction = new Float64Array(dModel);
    for (const { first, rows } of weightRows(where, kernels, projectOut, 0, narrow.length))
      for (let r = 0; r * dModel < rows.length; r++) {
        const weight = narrow[first + r] as number;
        constant += weight * biasOf(projectOut, first + r);
        for (let d = 0; d < dModel; d++) direction[d]! += weight * (rows[r * dModel + d] as number);
      }
  }
  const { length } = spec.blocks;
  const actual = rowAt(run, "residPre", length, row);
  const norm = finalNorm && readNorm(kernels, finalNorm, dModel);
  const normed = norm ? freezeNorm(norm, actual) : (x: Float64Array) => x;
  if (norm?.bias) constant += dot(norm.bias, direction);

  const resid = decompose(where, run, [row], length)[0] as Part[];
  const all = resid.map(({ component, row }) => ({ component, row: Float64Array.of(dot(direction, normed(row))) }));
  const withBias = constant === 0 ? all : addPart(all, { kind: "bias", at: "logits" }, Float64Array.of(constant));
  const ordered = inOrder(withBias);
  const parts = Float64Array.from(ordered, ({ row: [value] }) => value as number);
  return {
    logit: parts.reduce((sum, part) => sum + part),
    components: ordered.map(({ component }) => component),
    parts,
  };
}
