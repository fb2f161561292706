// What can be recorded, and how it runs: in steps, between which other code may run.

import type { TokenIds } from "../decoder/forward.ts";
import { expectModel, type Model } from "../decoder/model.ts";
import { createPace } from "../decoder/pace.ts";
import { createSession, type Session, type SessionOptions } from "../decoder/session.ts";
import { describe } from "../util/errors.ts";
import type { Steps } from "../util/steps.ts";
import { type CapturedRun, captureSteps } from "./captured-run.ts";
import { copyingScores } from "./circuits.ts";
import { type DecomposedResid, decomposeResid, type ResidPlace } from "./decompose.ts";
import { type DetectedHead, type DetectHeadsOptions, detectHeads } from "./detect-heads.ts";
import type { LabelledText } from "./detection-texts.ts";
import { explainScore, type ScoreExplanation, type ScorePlace } from "./explain-score.ts";
import { type ForwardWithOptions, type ForwardWithResult, forwardWithSteps, passCost } from "./forward-with.ts";
import { type LogitAttrs, type LogitPlace, logitAttrs } from "./logit-attrs.ts";
import { type LogitLensOptions, type LogitLensResult, logitLensSteps } from "./logit-lens.ts";
import { type PatchResult, patchSiteSteps, type SitesRequest } from "./patching.ts";
import { type PathsRequest, patchPathSteps } from "./paths.ts";

/** A call on a session of its own: its tokens, the options of the function, and those of the session. */
export type OnSession<Options> = Options & {
  /** The tokens of the call, which are all that the session has. */
  readonly ids: TokenIds;
  /** Format of the session's caches, as in `createSession`. */
  readonly format?: SessionOptions["format"];
};

/** A function that can be recorded: what it is asked, and what it gives. Both are plain data. */
export interface Inspection<Request, Results> {
  /** What it is asked. */
  readonly request: Request;
  /** What it gives. */
  readonly results: Results;
}

/** What can be recorded, by name. */
export interface Inspections {
  /** `forwardWith` on a new session. */
  readonly forward: Inspection<OnSession<ForwardWithOptions>, ForwardWithResult>;
  /** `patchSites`. */
  readonly patchSites: Inspection<SitesRequest, PatchResult>;
  /** `patchPaths`. */
  readonly patchPaths: Inspection<PathsRequest, PatchResult>;
  /** `explainScore` of a new run. */
  readonly explainScore: Inspection<OnSession<ScorePlace>, ScoreExplanation>;
  /** `logitAttrs` of a new run. */
  readonly logitAttrs: Inspection<OnSession<LogitPlace>, LogitAttrs>;
  /** `decomposeResid` of a new run. */
  readonly decomposeResid: Inspection<OnSession<ResidPlace>, DecomposedResid>;
  /** `logitLens` of a new run. */
  readonly logitLens: Inspection<OnSession<LogitLensOptions>, LogitLensResult>;
  /** `detectHeads`; kinds that are functions cannot be recorded. */
  readonly detectHeads: Inspection<
    DetectHeadsOptions & {
      /** What is read. */
      readonly texts: readonly (TokenIds | LabelledText)[];
    },
    DetectedHead[]
  >;
  /** `copyingScores`, which is asked nothing. */
  readonly copyingScores: Inspection<Readonly<Record<string, never>>, number[][]>;
}

/** The name of an inspection. */
export type InspectionName = keyof Inspections;

/** Runs an inspection in steps, of which the first is the cost of all passes, before any begins. */
type Runner<Name extends InspectionName> = (
  model: Model,
  request: Inspections[Name]["request"],
) => Steps<Inspections[Name]["results"]>;

const RUNNERS: { readonly [Name in InspectionName]: Runner<Name> } = {
  forward: onSession((session, ids, options: ForwardWithOptions) => forwardWithSteps(session, ids, options, true)),
  patchSites: (model, request) => patchSiteSteps(model, request, true),
  patchPaths: (model, request) => patchPathSteps(model, request, true),
  explainScore: onRun(explainScore),
  logitAttrs: onRun(logitAttrs),
  decomposeResid: onRun(decomposeResid),
  logitLens: onSession(
    function* (session, ids, options: LogitLensOptions) {
      using captured = yield* captureSteps(session, ids, true);
      return yield* logitLensSteps(captured, options);
    },
    // Each row goes through the head, as a token does.
    ({ layers }, length) => layers * length,
  ),
  *detectHeads(model, { texts, ...options }) {
    const costs = Array.from(listOf(texts), (text) => passCost(listOf(Object(text).tokens ?? text).length));
    yield costs.reduce((sum, cost) => sum + cost, 0);
    return detectHeads(model, texts, options);
  },
  // biome-ignore lint/correctness/useYield: it reads no tokens.
  *copyingScores(model, request) {
    const [field] = Object.keys(request);
    if (field === undefined) return copyingScores(model);
    throw new TypeError(`copyingScores: request expected no fields, got ${describe(field)}`);
  },
};

export const INSPECTIONS: readonly InspectionName[] = Object.keys(RUNNERS) as InspectionName[];

/** Runs a function of a session and its tokens on a new session, which has room for these. `more` is what it costs besides its pass. */
function onSession<Options, Results>(
  run: (session: Session, ids: TokenIds, options: Options) => Steps<Results>,
  more: (model: Model, length: number) => number = () => 0,
) {
  return function* (model: Model, { ids, format, ...options }: OnSession<Options>): Steps<Results> {
    const { length } = listOf(ids);
    yield passCost(length) + more(model, length);
    using session = createSession(model, { maxSeqLen: Math.max(1, length), format });
    return yield* run(session, ids, options as Options);
  };
}

/** Runs a function of a captured run on a new one. */
function onRun<Options, Results>(run: (captured: CapturedRun, options: Options) => Results) {
  return onSession(function* (session, ids, options: Options): Steps<Results> {
    using captured = yield* captureSteps(session, ids, true);
    return run(captured, options);
  });
}

/** A list, or an empty one for what is none, which the inspection refuses. */
const listOf = (given: unknown) => (Array.isArray(given) || ArrayBuffer.isView(given) ? (given as unknown[]) : []);

/** Milliseconds of work between two yields to the event loop. */
const SLICE_MS = 8;

/** Runs an inspection, with yields to the event loop. Throws before the first pass if all passes cost more than `maxTokens`. */
export async function runInspection<Name extends InspectionName>(
  where: string,
  model: Model,
  name: Name,
  request: Inspections[Name]["request"],
  maxTokens: number,
): Promise<Inspections[Name]["results"]> {
  const steps = (RUNNERS[name] as Runner<Name>)(model, request);
  const pace = createPace({ sliceMs: SLICE_MS });
  try {
    let step = steps.next();
    if (!step.done && step.value > maxTokens) {
      const got = `${Math.ceil(step.value)}: options.maxTokens allows more`;
      throw new RangeError(`${where}: record.request expected at most ${maxTokens} tokens in all passes, got ${got}`);
    }
    for (; !step.done; step = steps.next()) {
      await pace();
      expectModel(where, model);
    }
    return step.value;
  } finally {
    steps.return(undefined as never);
  }
}
