import { readIds, type TokenIds } from "../decoder/forward.ts";
import { expectModel, type Model } from "../decoder/model.ts";
import { expectSession, type Session } from "../decoder/session.ts";
import type { Tensor } from "../tensor/tensor.ts";
import { expectInt } from "../util/arguments.ts";
import { expectMade, type Handle, makeHandle, type Releasable } from "../util/lifetime.ts";
import { finish, type Steps } from "../util/steps.ts";
import { forwardWithSteps } from "./forward-with.ts";
import type { Site } from "./sites.ts";

/**
 * What a pass computed inside, at every site: what `explainScore`, `logitAttrs`, `logitLens` and `decomposeResid` read. It holds
 * arrays of JavaScript until `release()`, and no memory of the kernels.
 */
export interface CapturedRun extends Releasable, Handle {
  /** The model that ran. */
  readonly model: Model;
  /** The tokens. Others below are named by their place in here. */
  readonly ids: readonly number[];
  /** Tokens that the session had read before. */
  readonly past: number;
  /** The logits [vocabSize] of the last token. */
  readonly logits: Float32Array;
  /** Whether `release()` was called. */
  readonly released: boolean;
  /** @internal The rows [ids.length, width] at each site that the model has. */
  readonly rows: ReadonlyMap<string, Tensor>;
}

/** Residuals, which every layer has but `residMid`, are [dModel]. */
const SITES = ["residPre", "q", "k", "z", "residMid", "mlpOut", "residPost"] as const;
type RunSite = (typeof SITES)[number];

const keyOf = (at: Site["at"], layer: number) => `${at} ${layer}`;

/** The sites of a run: the residual behind a layer is that before the next one. */
function runSites({ spec: { blocks } }: Model): Site[] {
  return blocks.flatMap(({ parallel, mlp }, layer) =>
    SITES.filter((at) => {
      if (at === "residMid") return !parallel;
      if (at === "mlpOut") return mlp !== undefined;
      return at !== "residPost" || layer === blocks.length - 1;
    }).map((at) => ({ at, layer })),
  );
}

/**
 * `forward` that keeps the rows of every site, for explanations: the session has then read the tokens. A token takes some
 * 4·layers·(3·dModel + 3·numHeads·headDim) bytes.
 * @param session Of a decoder: a model with an encoder is refused.
 * @param ids Tokens, 1 or more.
 * @throws What `forward` throws. HeadwiseError `OUT_OF_MEMORY` if the rows do not fit. The session is then unchanged.
 * @example
 * import { loadKernels } from "headwise";
 * import { captureRun, explainScore } from "headwise/inspect";
 * import { createSession, loadModel, models } from "headwise/models";
 * const kernels = await loadKernels({ models });
 * using session = createSession(await loadModel(kernels, "model"));
 * using run = captureRun(session, [3, 1, 4, 3]);
 * const { score, components } = explainScore(run, { layer: 1, head: 0, query: 3, key: 1 });
 * console.log(Number.isFinite(score), components.query.length); // true 6: embed, 4 heads, rounding
 * kernels.release();
 */
export function captureRun(session: Session, ids: TokenIds): CapturedRun {
  return finish(captureSteps(session, ids));
}

/** `captureRun` in steps, as `forwardWithSteps`. */
export function* captureSteps(session: Session, ids: TokenIds, sliced = false): Steps<CapturedRun> {
  const where = "captureRun";
  expectSession(where, session);
  if (session.source) throw new TypeError(`${where}: session expected one without an encoder, got one of readSource`);
  const { model, length: past } = session;
  const read = Array.from(readIds(where, "ids", ids, model.vocabSize, session.maxSeqLen));
  const capture = runSites(model);
  const { logits, captured } = yield* forwardWithSteps(session, read, { capture }, sliced);
  const rows = new Map(capture.map(({ at, layer = 0 }, i) => [keyOf(at, layer), captured[i] as Tensor]));
  return makeHandle<CapturedRun>(
    "CapturedRun",
    where,
    { model, ids: Object.freeze(read), past, logits, rows },
    ["model", "rows"],
    () => rows.clear(),
    false,
  );
}

/** Throws unless `run` came from captureRun, and neither it nor its model was released. */
export function expectRun(where: string, run: CapturedRun): void {
  expectMade(where, "run", run, "captureRun");
  expectModel(where, run.model);
}

/** A token of a run. */
export const expectToken = (where: string, name: string, token: unknown, { ids }: CapturedRun): number =>
  expectInt(where, name, token, 0, ids.length - 1);

/** The row of a token at a site that the model has; `layer` may be the number of layers at `residPre`. */
export function rowAt({ model, rows }: CapturedRun, at: RunSite, layer: number, token: number): Float32Array {
  const { length } = model.spec.blocks;
  let key = keyOf(at, layer);
  if (at === "residPre" && layer === length) key = keyOf("residPost", length - 1);
  if (at === "residPost" && layer < length - 1) key = keyOf("residPre", layer + 1);
  const { data, shape } = rows.get(key) as Tensor;
  const [, width] = shape as [number, number];
  return data.subarray(token * width, (token + 1) * width);
}
