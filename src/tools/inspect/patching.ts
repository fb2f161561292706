// Which sites and paths of a model carry the difference between two texts: rows of one run are patched into another, and logits
// compared.

import type { Tensor } from "../../base/tensor/tensor.ts";
import { expectFlag, expectOneOf, LARGEST_INT, readFields, readList } from "../../base/util/arguments.ts";
import { finish, type WaitingSteps } from "../../base/util/steps.ts";
import { expectModel, type Model } from "../../models/blocks/model.ts";
import { createSession, readIds, type SessionOptions, type TokenIds } from "../../models/decoder/session.ts";
import { forwardWithSteps, passCost } from "./forward-with.ts";
import { checkSite, type Edit, listSites, MOST_SITES, readTokens, SITE_FIELDS, type Site } from "./sites.ts";

/** What `patchSites` and `patchPaths` are asked. */
export interface PatchRequest {
  /** The text that the runs read. */
  readonly ids: TokenIds;
  /** The text whose rows are patched in: as many tokens. */
  readonly from: TokenIds;
  /** Two tokens: the result of a run is the logit of the first less that of the second, behind the last token of the text. */
  readonly answers: TokenIds;
  /** Tokens whose rows are patched, as indices into `ids`. Default all. */
  readonly tokens?: readonly number[] | undefined;
  /** Format of the sessions' caches, as in `createSession`. */
  readonly format?: SessionOptions["format"];
}

/** What `patchSites` is asked. */
export interface SitesRequest extends PatchRequest {
  /** What to patch, one site in a run; a name stands for `sitesOf` it. */
  readonly sites: readonly Site[] | Site["at"];
  /** Patch one token in a run, instead of all of `tokens`. */
  readonly eachToken?: boolean | undefined;
}

/** A site whose rows are patched, and which of its tokens; without `tokens` all. */
export interface Patch extends Site {
  /** Indices into `ids`. */
  readonly tokens?: readonly number[];
}

/** What runs with patches give. */
export interface PatchResult {
  /** The difference of the answers' logits behind `ids`, without a patch. */
  clean: number;
  /** The same behind the other text. */
  other: number;
  /** What was patched in each run. */
  patches: Patch[];
  /** The difference in each of these runs. (patched - clean) / (other - clean) is the share of the difference that it carries. */
  patched: number[];
}

/**
 * Activation patching: reads `ids` once for each site, with the site's rows replaced by those of the text `from`.
 * @throws TypeError or RangeError naming the argument, and what `createSession` and `forward` throw.
 * @example
 * import { loadKernels } from "headwise";
 * import { patchSites } from "headwise/inspect";
 * import { loadModel, models } from "headwise/models";
 * const kernels = await loadKernels({ models });
 * const model = await loadModel(kernels, "model");
 * const texts = { ids: [3, 1, 4, 1], from: [3, 1, 5, 1], answers: [4, 5] };
 * const { patched, other } = patchSites(model, { ...texts, sites: "residPre" });
 * console.log(patched.length === model.layers, patched[0] === other); // true true: the first layer reads all of the text
 * kernels.release();
 */
export function patchSites(model: Model, request: SitesRequest): PatchResult {
  return finish(patchSiteSteps(model, request));
}

/** `patchSites` in steps, of which the first is the cost of all runs, before any begins; others as `forwardWithSteps`. */
export function* patchSiteSteps(model: Model, request: SitesRequest, sliced = false): WaitingSteps<PatchResult> {
  const where = "patchSites";
  expectModel(where, model);
  const given = readFields(where, "request", request, [...PATCH_FIELDS, "sites", "eachToken"]);
  const sites = readSites(where, "request.sites", given.sites, model);
  const eachToken = expectFlag(where, "request.eachToken", given.eachToken);
  const { ids, from, tokens, score, capture } = readRuns(where, model, given, sliced);
  const apart = eachToken ? (tokens ?? [...ids.keys()]).map((token) => [token]) : [tokens];
  yield (2 + sites.length * apart.length) * passCost(ids.length);
  const clean = yield* score(ids);
  const { score: other, rows } = yield* capture(from, sites);
  const patches: Patch[] = [];
  const patched: number[] = [];
  for (const [i, site] of sites.entries())
    for (const tokens of apart) {
      const edit = patchOf(site, rows[i] as Tensor, tokens);
      patches.push(patchFacts(edit));
      patched.push(yield* score(ids, [edit]));
    }
  return { clean, other, patches, patched };
}

const PATCH_FIELDS = ["ids", "from", "answers", "tokens", "format"] as const;

/** Sites of an argument: a list of them, or a name for `sitesOf` it. */
function readSites(where: string, name: string, given: readonly Site[] | Site["at"], model: Model): Site[] {
  if (typeof given === "string") return listSites(where, name, given, model);
  const sites = Array.from(
    readList(where, name, given, MOST_SITES, (each, i) => {
      const site = readFields(where, `${name}[${i}]`, each as Site, SITE_FIELDS);
      checkSite(where, `${name}[${i}]`, site, model);
      return site;
    }),
  );
  if (sites.length > 0) return sites;
  throw new RangeError(`${where}: ${name} expected 1 or more sites, got none`);
}

/** The runs of a call, each in a session of its own. */
interface Runs {
  readonly ids: readonly number[];
  readonly from: readonly number[];
  /** Tokens to patch; undefined for all. */
  readonly tokens: readonly number[] | undefined;
  /** The difference of the answers' logits. */
  score(ids: readonly number[], edits?: readonly Edit[]): WaitingSteps<number>;
  /** The same, and the rows at sites. */
  capture(
    ids: readonly number[],
    sites: readonly Site[],
    edits?: readonly Edit[],
  ): WaitingSteps<{ score: number; rows: Tensor[] }>;
}

/** Checks what all runs have in common. */
function readRuns(where: string, model: Model, request: PatchRequest, sliced: boolean): Runs {
  const read = (name: "ids" | "from" | "answers") =>
    Array.from(readIds(where, `request.${name}`, request[name], model.vocabSize, LARGEST_INT));
  const [ids, from, answers] = [read("ids"), read("from"), read("answers")];
  if (ids.length === 0) throw new RangeError(`${where}: request.ids expected 1 or more tokens, got none`);
  if (from.length !== ids.length)
    throw new RangeError(`${where}: request.from expected ${ids.length} tokens, as many as ids, got ${from.length}`);
  if (answers.length !== 2) throw new RangeError(`${where}: request.answers expected 2 tokens, got ${answers.length}`);
  const { tokens, format } = request;
  const [first, second] = answers as [number, number];
  const capture: Runs["capture"] = function* (ids, sites, edits) {
    using session = createSession(model, { maxSeqLen: ids.length, format });
    const { logits, captured } = yield* forwardWithSteps(session, ids, { edits, capture: sites }, sliced);
    return { score: (logits[first] as number) - (logits[second] as number), rows: captured };
  };
  return {
    ...{ ids, from, capture },
    tokens: tokens && readTokens(where, "request.tokens", tokens, ids.length),
    *score(ids, edits) {
      return (yield* capture(ids, [], edits)).score;
    },
  };
}

/** The edit that sets tokens of a site, by default all, to their rows of another run. */
function patchOf(site: Site, { data, shape }: Tensor, tokens?: readonly number[]): Edit {
  if (!tokens) return { ...site, set: { data, shape } };
  const width = shape[1] as number;
  const rows = new Float32Array(tokens.length * width);
  for (const [i, token] of tokens.entries()) rows.set(data.subarray(token * width, (token + 1) * width), i * width);
  return { ...site, tokens, set: { data: rows, shape: [tokens.length, width] } };
}

/** What an edit patches. */
const patchFacts = ({ set: _, scale: __, add: ___, tokens, ...site }: Edit): Patch => ({
  ...site,
  ...(tokens && { tokens }),
});

// Path patching: the effect of one part of a model on another, apart from all that lies between them.

/** What `patchPaths` is asked. */
export interface PathsRequest extends PatchRequest {
  /**
   * Where paths begin, one in a run: `z`, what attention or an MLP adds, the residual, or `embed`. A name stands for all of these
   * before a receiver.
   */
  readonly senders: readonly Site[] | Site["at"];
  /**
   * Where they end: `q`, `k` or `v`, `attnIn`, `mlpIn`, or the residual, of which that of the last layer leads to the logits alone. A
   * name stands for all of these behind a sender.
   */
  readonly receivers: readonly Site[] | Site["at"];
  /**
   * Hold attention alone, so that paths may lead through MLPs, as in Wang et al. 2022. Default false: MLPs are held, too, as in
   * Goldowsky-Dill et al. 2023.
   */
  readonly throughMlps?: boolean | undefined;
}

/**
 * Path patching: the effect of a sender on receivers alone, by the paths between them that go through nothing that is held. For each
 * sender, one run reads `ids` with the sender's rows of the text `from`, and the outputs of all attention and MLPs behind it held at
 * what they are without a patch; what the receivers then read is patched into another run, which computes the rest.
 * @throws TypeError or RangeError naming the argument, also for a receiver that is not behind a sender, and what `createSession` and
 * `forward` throw.
 * @example
 * import { loadKernels } from "headwise";
 * import { patchPaths } from "headwise/inspect";
 * import { loadModel, models } from "headwise/models";
 * const kernels = await loadKernels({ models });
 * const model = await loadModel(kernels, "model");
 * const texts = { ids: [3, 1, 4, 1], from: [3, 1, 5, 1], answers: [4, 5] };
 * const receivers = [{ at: "residPost", layer: model.layers - 1 }] as const;
 * const { patches, patched } = patchPaths(model, { ...texts, senders: "z", receivers });
 * console.log(patched.length === patches.length, patches[0]); // true { at: 'z', layer: 0, head: 0 }
 * kernels.release();
 */
export function patchPaths(model: Model, request: PathsRequest): PatchResult {
  return finish(patchPathSteps(model, request));
}

/** `patchPaths` in steps, as `patchSiteSteps`. */
export function* patchPathSteps(model: Model, request: PathsRequest, sliced = false): WaitingSteps<PatchResult> {
  const where = "patchPaths";
  expectModel(where, model);
  const given = readFields(where, "request", request, [...PATCH_FIELDS, "senders", "receivers", "throughMlps"]);
  const { senders, receivers } = readEnds(where, model, given);
  const throughMlps = expectFlag(where, "request.throughMlps", given.throughMlps);
  const { ids, from, tokens, score, capture } = readRuns(where, model, given, sliced);
  const held = branchesOf(model, throughMlps);
  yield (2 + 2 * senders.length) * passCost(ids.length);
  const { score: clean, rows: kept } = yield* capture(ids, held);
  const { score: other, rows: sent } = yield* capture(from, senders);
  const holds = held.map((site, i) => patchOf(site, kept[i] as Tensor));
  const patches = senders.map((site, i) => patchOf(site, sent[i] as Tensor, tokens));
  const patched: number[] = [];
  for (const patch of patches) {
    const behind = holds.filter((hold) => isBehind(model, hold, patch));
    const { rows } = yield* capture(ids, receivers, [patch, ...behind]);
    const received = receivers.map((site, i) => patchOf(site, rows[i] as Tensor));
    patched.push(yield* score(ids, received));
  }
  return { clean, other, patches: patches.map(patchFacts), patched };
}

/** What attention adds to the residual in each layer, and unless paths may lead through them, MLPs. */
function branchesOf({ spec }: Model, throughMlps: boolean): Site[] {
  return spec.blocks.flatMap(({ mlp }, layer): Site[] => [
    { at: "attnOut", layer },
    ...(mlp && !throughMlps ? [{ at: "mlpOut", layer } as const] : []),
  ]);
}

/** Stages of a layer: what has a higher one is computed from what has a lower one. */
const STAGES: Readonly<Record<Site["at"], number>> = {
  ...{ embed: 0, residPre: 0, attnIn: 1, q: 1, k: 1, v: 1, z: 2, attnOut: 2 },
  ...{ residMid: 3, mlpIn: 4, mlpOut: 5, residPost: 6 },
};

/** Whether a site is computed from another, or would be if attention and MLP of one layer ran one after the other. */
function isBehind({ spec }: Model, site: Site, other: Site): boolean {
  const placeOf = ({ at, layer = 0 }: Site) => {
    const readsBefore = at === "mlpIn" && spec.blocks[layer]?.parallel;
    return layer * 7 + STAGES[readsBefore ? "attnIn" : at];
  };
  return placeOf(site) > placeOf(other);
}

const SENDERS: readonly Site["at"][] = ["embed", "residPre", "z", "attnOut", "residMid", "mlpOut", "residPost"];
const RECEIVERS: readonly Site["at"][] = ["residPre", "attnIn", "q", "k", "v", "residMid", "mlpIn", "residPost"];

/** Where paths begin and end: each sender has a receiver behind it, and each receiver is behind a sender. */
function readEnds(where: string, model: Model, request: PathsRequest): { senders: Site[]; receivers: Site[] } {
  const read = (name: "senders" | "receivers", most: readonly Site["at"][]) => {
    const sites = readSites(where, `request.${name}`, request[name], model);
    for (const [i, { at }] of sites.entries()) expectOneOf(where, `request.${name}[${i}].at`, at, most);
    return sites;
  };
  const [allSenders, allReceivers] = [read("senders", SENDERS), read("receivers", RECEIVERS)];
  const leads = (sender: Site) => allReceivers.some((receiver) => isBehind(model, receiver, sender));
  const isLedTo = (receiver: Site) => allSenders.some((sender) => isBehind(model, receiver, sender));
  const keep = (name: "senders" | "receivers", sites: readonly Site[], fits: (site: Site) => boolean, rule: string) => {
    const kept = sites.filter(fits);
    const lost = sites.find((site) => !fits(site));
    if (!lost || (typeof request[name] === "string" && kept.length > 0)) return kept;
    const { at, layer = 0 } = lost;
    const argument = `request.${name}[${sites.indexOf(lost)}]`;
    throw new RangeError(`${where}: ${argument} expected a site ${rule}, got ${at} of layer ${layer}`);
  };
  const senders = keep("senders", allSenders, leads, "before a receiver");
  const receivers = keep("receivers", allReceivers, isLedTo, "behind a sender");
  return { senders, receivers };
}
