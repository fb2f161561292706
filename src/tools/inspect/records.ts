// Inspections with a record of what was asked of which model, and a digest of the results, so that they can be repeated
// elsewhere.

import { STAMP } from "../../../assembly/stamp.ts";
import { expectFlag, expectInt, expectOneOf, expectRecord, readFields, wrongValue } from "../../base/util/arguments.ts";
import { decodeBase64, joinBytes, sha256, toHex } from "../../base/util/bytes.ts";
import { decodeCbor, encodeParts } from "../../base/util/cbor.ts";
import { describe } from "../../base/util/errors.ts";
import { chunksOf } from "../../base/util/rows.ts";
import type { WaitingSteps } from "../../base/util/steps.ts";
import { expectModel, type Model } from "../../models/blocks/model.ts";
import { createSession, type Session, type SessionOptions, type TokenIds } from "../../models/decoder/session.ts";
import { createPace } from "../../models/generate/generate.ts";
import type { Build } from "../../wasm/modules.ts";
import {
  type DecomposedResid,
  decomposeResid,
  explainScore,
  type ResidPlace,
  type ScoreExplanation,
  type ScorePlace,
} from "./decompose.ts";
import { type DetectedHead, type DetectHeadsOptions, detectHeadSteps, type LabelledText } from "./detect-heads.ts";
import { copyingScores } from "./detectors.ts";
import { digestOf, formatsOf, modelDigest, piecesOf } from "./digest.ts";
import {
  type CapturedRun,
  captureSteps,
  type ForwardWithOptions,
  type ForwardWithResult,
  forwardWithSteps,
  passCost,
} from "./forward-with.ts";
import {
  type LogitAttrs,
  type LogitLensOptions,
  type LogitLensResult,
  type LogitPlace,
  logitAttrs,
  logitLensSteps,
} from "./logits.ts";
import { type PatchResult, type PathsRequest, patchPathSteps, patchSiteSteps, type SitesRequest } from "./patching.ts";

// What can be recorded, and how it runs: in steps, between which other code may run.

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
) => WaitingSteps<Inspections[Name]["results"]>;

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
    return yield* detectHeadSteps(model, texts, options, true);
  },
  // biome-ignore lint/correctness/useYield: it reads no tokens.
  *copyingScores(model, request) {
    const [field] = Object.keys(request);
    if (field === undefined) return copyingScores(model);
    throw new TypeError(`copyingScores: request expected no fields, got ${describe(field)}`);
  },
};

const INSPECTIONS: readonly InspectionName[] = Object.keys(RUNNERS) as InspectionName[];

/** Runs a function of a session and its tokens on a new session, which has room for these. `more` is what it costs besides its pass. */
function onSession<Options, Results>(
  run: (session: Session, ids: TokenIds, options: Options) => WaitingSteps<Results>,
  more: (model: Model, length: number) => number = () => 0,
) {
  return function* (model: Model, { ids, format, ...options }: OnSession<Options>): WaitingSteps<Results> {
    const { length } = listOf(ids);
    yield passCost(length) + more(model, length);
    using session = createSession(model, { maxSeqLen: Math.max(1, length), format });
    return yield* run(session, ids, options as Options);
  };
}

/** Runs a function of a captured run on a new one. */
function onRun<Options, Results>(run: (captured: CapturedRun, options: Options) => Results) {
  return onSession(function* (session, ids, options: Options): WaitingSteps<Results> {
    using captured = yield* captureSteps(session, ids, true);
    return run(captured, options);
  });
}

/** A list, or an empty one for what is none, which the inspection refuses. */
const listOf = (given: unknown) => (Array.isArray(given) || ArrayBuffer.isView(given) ? (given as unknown[]) : []);

/** Milliseconds of work between two yields to the event loop. */
const SLICE_MS = 8;

/** Runs an inspection, with yields to the event loop. Throws before the first pass if all passes cost more than `maxTokens`. */
async function runInspection<Name extends InspectionName>(
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
    if (!step.done && (step.value as number) > maxTokens) {
      const got = `${Math.ceil(step.value as number)}: options.maxTokens allows more`;
      throw new RangeError(`${where}: record.request expected at most ${maxTokens} tokens in all passes, got ${got}`);
    }
    for (; !step.done; step = steps.next()) {
      // At once, since a read that fails before somebody waits for it would end a process.
      if (typeof step.value !== "number") await step.value;
      await pace();
      expectModel(where, model);
    }
    return step.value;
  } finally {
    steps.return(undefined as never);
  }
}

/** What identifies kernels. */
export interface RecordedKernels {
  /** Their build. */
  readonly build: Build;
  /** Whether they fuse multiply and add. */
  readonly fused: boolean;
  /** A hash of their sources: those of another version may give other bits. */
  readonly stamp: number;
}

/** What identifies an inspection, so that it can be repeated bit for bit. */
export interface InspectionRecord<Name extends InspectionName = InspectionName> {
  /** Of this form of records. */
  readonly version: 1;
  /** `modelDigest` of the model. */
  readonly model: string;
  /** The formats of its matrices, each once, with a space between them. */
  readonly formats: string;
  /** The kernels that ran it. */
  readonly kernels: RecordedKernels;
  /** What was run. */
  readonly inspect: Name;
  /** What was asked of it. */
  readonly request: Inspections[Name]["request"];
  /** A digest of all results, 64 hexadecimal digits. */
  readonly results: string;
}

const FIELDS = [...(["version", "model", "formats", "kernels", "inspect", "request", "results"] as const)] as const;

/** A record of any inspection; `inspect` says which. */
export type AnyRecord = { [Name in InspectionName]: InspectionRecord<Name> }[InspectionName];

/** What `inspect` gives. */
export interface Inspected<Name extends InspectionName = InspectionName> {
  /** What the inspection gives. */
  results: Inspections[Name]["results"];
  /** What identifies it. */
  record: InspectionRecord<Name>;
}

/** What `replay` gives. */
export interface Replayed<Name extends InspectionName = InspectionName> extends Inspected<Name> {
  /** Whether all results have the bits that were recorded. */
  same: boolean;
}

/** Options of `replay`. */
export interface ReplayOptions {
  /**
   * The most tokens that all passes of the inspection read together, those of a pass of n > 256 tokens counted n/256 times, since they
   * read each other. Default 65,536: 256 passes of 256 tokens, or one of 4,096, seconds on a model of some million weights. A
   * record may come from anyone, and a short one may ask for hours.
   */
  readonly maxTokens?: number | undefined;
}

const MOST_TOKENS = 2 ** 16;

/**
 * Runs an inspection on a session of its own, and makes a record of it. `encodeRecord` makes a link of that, and `replay` repeats it.
 *
 * A single call stands for any calls in turn: logits, rows and patterns of a token do not depend on the calls it came in. Passes yield
 * to the event loop, and wait for rows of tables that are in files.
 * @throws TypeError or RangeError naming the argument, and what the function of that name throws.
 * @example
 * import { loadKernels } from "headwise";
 * import { encodeRecord, decodeRecord, inspect, replay } from "headwise/inspect";
 * import { loadModel, models } from "headwise/models";
 * const kernels = await loadKernels({ models });
 * const model = await loadModel(kernels, "model");
 * const edits = [{ at: "z", layer: 0, head: 1, set: 0 }] as const;
 * const { results, record } = await inspect(model, "forward", { ids: [3, 1, 4], edits });
 * const link = encodeRecord(record); // about 250 characters, for the part of an address behind #
 * const again = await replay(model, decodeRecord(link));
 * console.log(again.same, results.logits.length === model.vocabSize); // true true
 * kernels.release();
 */
export async function inspect<Name extends InspectionName>(
  model: Model,
  name: Name,
  request: Inspections[Name]["request"],
): Promise<Inspected<Name>> {
  const where = "inspect";
  expectModel(where, model);
  expectOneOf(where, "name", name, INSPECTIONS);
  expectRecord(where, "request", request);
  return run(where, model, name, request, Infinity);
}

/**
 * Repeats what a record names: on the same model in the same formats, with kernels of the same build.
 * @returns The results with a record of them, and `same`: whether they have the bits that were recorded.
 * @throws TypeError or RangeError naming the argument: for a record that is none, for another model, format or build, and for one
 * whose passes read more than `maxTokens`.
 * @example
 * import { loadKernels } from "headwise";
 * import { inspect, replay } from "headwise/inspect";
 * import { loadModel, models } from "headwise/models";
 * const kernels = await loadKernels({ models });
 * const model = await loadModel(kernels, "model");
 * const { record } = await inspect(model, "logitLens", { ids: [3, 1, 4], top: 1 });
 * console.log((await replay(model, record)).same); // true
 * kernels.release();
 */
export async function replay<Name extends InspectionName>(
  model: Model,
  record: InspectionRecord<Name>,
  options: ReplayOptions = {},
): Promise<Replayed<Name>> {
  const where = "replay";
  expectModel(where, model);
  const { maxTokens = MOST_TOKENS } = readFields(where, "options", options, ["maxTokens"]);
  expectInt(where, "options.maxTokens", maxTokens, 1, Number.MAX_SAFE_INTEGER);
  const given = checkRecord(where, "record", record);
  const here = await identify(model);
  expectSame("formats", here.formats, given.formats);
  expectSame("model", here.model, given.model);
  const hint = given.kernels.build === "simd" ? ": loadKernels({ deterministic: true }) runs that" : "";
  expectSame("kernels.build", here.kernels.build, given.kernels.build, hint);
  expectSame("kernels.fused", here.kernels.fused, given.kernels.fused);
  const inspected = await run(where, model, given.inspect, given.request, maxTokens);
  return { ...inspected, same: inspected.record.results === given.results };
}

function expectSame(name: string, here: unknown, given: unknown, hint = ""): void {
  if (here === given) return;
  throw new RangeError(
    `replay: record.${name} expected ${describe(here)}, that of the model given, got ${describe(given)}${hint}`,
  );
}

/** Runs an inspection on a copy of the request, which is what the record has. */
async function run<Name extends InspectionName>(
  where: string,
  model: Model,
  name: Name,
  given: Inspections[Name]["request"],
  maxTokens: number,
): Promise<Inspected<Name>> {
  const bytes = joinBytes([...encodeParts(where, "request", given)]);
  const request = decodeCbor(where, "request", bytes) as Inspections[Name]["request"];
  const results = await runInspection(where, model, name, request, maxTokens);
  const [identity, digest] = [await identify(model), await digestOf(piecesOfResults(where, results))];
  return { results, record: { version: 1, ...identity, inspect: name, request, results: digest } };
}

/**
 * The bytes of results. Empty lists are left out, so that what a later version can give besides does not change the digest where it is
 * not asked for.
 */
function* piecesOfResults(where: string, results: object): Generator<Uint8Array, void> {
  const given = Object.entries(results).filter(([, value]) => !Array.isArray(value) || value.length > 0);
  for (const part of encodeParts(where, "results", Object.fromEntries(given)))
    yield* piecesOf(part.length, (begin, end) => part.subarray(begin, end));
}

/** What a record says of a model and its kernels. */
async function identify(model: Model): Promise<Pick<InspectionRecord, "model" | "formats" | "kernels">> {
  const { build, fused } = model.kernels;
  return {
    model: await modelDigest(model),
    formats: formatsOf(model).join(" "),
    kernels: { build, fused, stamp: STAMP },
  };
}

/** Checks a record, but for its request, which the inspection checks. */
function checkRecord<Name extends InspectionName>(
  where: string,
  name: string,
  record: InspectionRecord<Name>,
): InspectionRecord<Name> {
  const { version, model, formats, kernels, inspect, request, results } = readFields(where, name, record, FIELDS);
  expectOneOf(where, `${name}.version`, version, [1]);
  const { build, fused, stamp } = readFields(where, `${name}.kernels`, kernels, ["build", "fused", "stamp"]);
  expectOneOf(where, `${name}.kernels.build`, build, ["simd", "relaxed"]);
  expectOneOf(where, `${name}.inspect`, inspect, INSPECTIONS);
  expectRecord(where, `${name}.request`, request);
  if (typeof formats !== "string") throw wrongValue(where, `${name}.formats`, "a string", formats, "string");
  return {
    ...{ version, formats, inspect, request },
    model: expectDigest(where, `${name}.model`, model),
    kernels: {
      build,
      fused: expectFlag(where, `${name}.kernels.fused`, fused),
      stamp: expectInt(where, `${name}.kernels.stamp`, stamp, 0),
    },
    results: expectDigest(where, `${name}.results`, results),
  };
}

function expectDigest(where: string, name: string, value: unknown): string {
  if (typeof value === "string" && /^[0-9a-f]{64}$/.test(value)) return value;
  throw wrongValue(where, name, "64 hexadecimal digits", value, "string");
}

// Records as text for addresses: base64url of CBOR and of a checksum. It is not compressed: deflate saves nothing
// where ids or floats fill the text, a third of a list of edits that are alike, and is not at hand in every runtime without waiting.

/** Characters of the longest text. */
const MOST_CHARACTERS = 2 ** 24;
/** Bytes of SHA-256 behind a record, by which text that was cut or mistyped is known. */
const CHECKSUM = 4;

/**
 * A record as text of letters, digits, "-" and "_", for the part of an address behind #. Floats keep their bits, at five
 * characters and a third each: a patch from another text is shorter by that text's ids (`patchSites`) than by captured rows.
 * @throws TypeError or RangeError naming the argument, also for a record of more than 2^24 characters.
 * @example
 * import { encodeRecord, type InspectionRecord } from "headwise/inspect";
 * const record: InspectionRecord = {
 *   ...{ version: 1, model: "0a".repeat(32), formats: "f32", kernels: { build: "simd", fused: false, stamp: 7 } },
 *   ...{ inspect: "forward", request: { ids: [3, 1, 4] }, results: "0b".repeat(32) },
 * };
 * console.log(encodeRecord(record).length); // 142
 */
export function encodeRecord(record: InspectionRecord): string {
  const where = "encodeRecord";
  const { version, model, formats, kernels, inspect, request, results } = checkRecord(where, "record", record);
  const { build, fused, stamp } = kernels;
  const list = [version, fromHex(model), formats, build, fused, stamp, inspect, request, fromHex(results)];
  const bytes = joinBytes([...encodeParts(where, "record", list)]);
  const text = encodeBase64(joinBytes([bytes, sha256(bytes).subarray(0, CHECKSUM)]));
  if (text.length > MOST_CHARACTERS)
    throw new RangeError(`${where}: record expected at most ${MOST_CHARACTERS} characters of text, got ${text.length}`);
  return asUrl(text);
}

/**
 * The record that `encodeRecord` made a text of. Nothing is run, and no more memory is taken than a small multiple of the text; what
 * the record asks for is checked by `replay`.
 * @throws TypeError or RangeError naming the argument, for any other text.
 * @example
 * import { decodeRecord } from "headwise/inspect";
 * try {
 *   decodeRecord("iAHYQFgg");
 * } catch (error) {
 *   console.log((error as Error).message); // decodeRecord: text expected what encodeRecord gives, got one that was cut or changed
 * }
 */
export function decodeRecord(text: string): AnyRecord {
  const where = "decodeRecord";
  const bytes = checkText(where, text);
  const [body, checksum] = [bytes.subarray(0, -CHECKSUM), bytes.subarray(-CHECKSUM)];
  if (
    sha256(body)
      .subarray(0, CHECKSUM)
      .some((byte, i) => byte !== checksum[i])
  )
    throw damaged(where);
  const list = decodeCbor(where, "text", body);
  if (!Array.isArray(list) || list.length !== PARTS)
    throw new RangeError(`${where}: text expected a record of ${PARTS} parts, got ${describe(list)}`);
  const [version, model, formats, build, fused, stamp, inspect, request, results] = list;
  const record = {
    ...{ version, model: hexOf(model), formats, kernels: { build, fused, stamp } },
    ...{ inspect, request, results: hexOf(results) },
  };
  return checkRecord(where, "record", record as InspectionRecord) as AnyRecord;
}

/** Parts of a record. */
const PARTS = 9;

/** The digits of a digest; what is none stays as it is, to be refused by name. */
const hexOf = (value: unknown) => (value instanceof Uint8Array ? toHex(value) : value);

/** The bytes of a text, of which each has one text only. */
function checkText(where: string, text: string): Uint8Array {
  if (typeof text !== "string") throw new TypeError(`${where}: text expected a string, got ${describe(text)}`);
  if (text.length > MOST_CHARACTERS)
    throw new RangeError(`${where}: text expected at most ${MOST_CHARACTERS} characters, got ${text.length}`);
  if (text.includes("#"))
    throw new RangeError(`${where}: text expected the part of the link behind #, got ${describe(text)}`);
  if (!/^[\w-]*$/.test(text)) throw new RangeError(`${where}: text expected base64url, got ${describe(text)}`);
  // Of four characters, one alone has no byte.
  if (text.length % 4 === 1) throw damaged(where);
  const bytes = decodeBase64(text.replaceAll("-", "+").replaceAll("_", "/"));
  if (asUrl(encodeBase64(bytes)) !== text) throw damaged(where);
  return bytes;
}

const damaged = (where: string) =>
  new RangeError(`${where}: text expected what encodeRecord gives, got one that was cut or changed`);

const asUrl = (base64: string) => base64.replaceAll("+", "-").replaceAll("/", "_").replace(/=+$/, "");

/** Base64 of bytes. */
function encodeBase64(bytes: Uint8Array): string {
  // In pieces: a call takes as many arguments as the stack has room for.
  const text = Array.from(chunksOf(bytes.length, 4096), ([begin, end]) =>
    String.fromCharCode(...bytes.subarray(begin, end)),
  );
  return btoa(text.join(""));
}

/** The bytes of hexadecimal digits. */
const fromHex = (digits: string): Uint8Array =>
  Uint8Array.from({ length: digits.length / 2 }, (_, i) => Number.parseInt(digits.slice(2 * i, 2 * i + 2), 16));
