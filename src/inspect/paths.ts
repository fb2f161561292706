// Path patching: the effect of one part of a model on another, apart from all that lies between them.

import { expectModel, type Model } from "../decoder/model.ts";
import type { Tensor } from "../tensor/tensor.ts";
import { expectFlag, expectOneOf, readFields } from "../util/arguments.ts";
import { finish, type Steps } from "../util/steps.ts";
import { passCost } from "./forward-with.ts";
import {
  PATCH_FIELDS,
  type PatchRequest,
  type PatchResult,
  patchFacts,
  patchOf,
  readRuns,
  readSites,
} from "./patching.ts";
import type { Site } from "./sites.ts";

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
export function* patchPathSteps(model: Model, request: PathsRequest, sliced = false): Steps<PatchResult> {
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
