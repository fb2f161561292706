// Which sites of a model carry the difference between two texts: rows of one run patched into another, and logits compared.

import { readIds, type TokenIds } from "../decoder/forward.ts";
import { expectModel, type Model } from "../decoder/model.ts";
import { createSession, type SessionOptions } from "../decoder/session.ts";
import type { Tensor } from "../tensor/tensor.ts";
import { expectFlag, LARGEST_INT, readFields, readList } from "../util/arguments.ts";
import { finish, type Steps } from "../util/steps.ts";
import { type Edit, readTokens } from "./edits.ts";
import { forwardWithSteps, passCost } from "./forward-with.ts";
import { checkSite, listSites, MOST_SITES, SITE_FIELDS, type Site } from "./sites.ts";

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
export function* patchSiteSteps(model: Model, request: SitesRequest, sliced = false): Steps<PatchResult> {
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

export const PATCH_FIELDS = ["ids", "from", "answers", "tokens", "format"] as const;

/** Sites of an argument: a list of them, or a name for `sitesOf` it. */
export function readSites(where: string, name: string, given: readonly Site[] | Site["at"], model: Model): Site[] {
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
export interface Runs {
  readonly ids: readonly number[];
  readonly from: readonly number[];
  /** Tokens to patch; undefined for all. */
  readonly tokens: readonly number[] | undefined;
  /** The difference of the answers' logits. */
  score(ids: readonly number[], edits?: readonly Edit[]): Steps<number>;
  /** The same, and the rows at sites. */
  capture(
    ids: readonly number[],
    sites: readonly Site[],
    edits?: readonly Edit[],
  ): Steps<{ score: number; rows: Tensor[] }>;
}

/** Checks what all runs have in common. */
export function readRuns(where: string, model: Model, request: PatchRequest, sliced: boolean): Runs {
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
export function patchOf(site: Site, { data, shape }: Tensor, tokens?: readonly number[]): Edit {
  if (!tokens) return { ...site, set: { data, shape } };
  const width = shape[1] as number;
  const rows = new Float32Array(tokens.length * width);
  for (const [i, token] of tokens.entries()) rows.set(data.subarray(token * width, (token + 1) * width), i * width);
  return { ...site, tokens, set: { data: rows, shape: [tokens.length, width] } };
}

/** What an edit patches. */
export const patchFacts = ({ set: _, scale: __, add: ___, tokens, ...site }: Edit): Patch => ({
  ...site,
  ...(tokens && { tokens }),
});
