// What layers of attention keep of a sequence: keys and values, or latents, in pages.

import type { LayerState, MixerLayer, Runs, StateMaker, StateOptions, StateRuns } from "../mixer/mixer.ts";
import { forkBytes, forkPages } from "../state/fork.ts";
import {
  type CacheOptions,
  cacheOf,
  checkCacheOptions,
  checkTruncatable,
  expectTruncatable,
  type KvCache,
  makeCache,
} from "../state/kv-cache.ts";
import { checkCacheFormat, createPageLayout, type PageShape } from "../state/pages.ts";
import { leastLength, type Pages, pagesBytes, type Retention, settlePage } from "../state/table.ts";
import type { CheckedConfig } from "./config.ts";
import { seesLater } from "./mask.ts";

/** What the cache of a layer keeps, by the option `truncatable`. */
export function retentionOf(where: string, config: CheckedConfig, truncatable: number | undefined): Retention {
  return {
    left: seesLater(config) ? Infinity : config.window.left,
    truncatable: checkTruncatable(where, truncatable),
  };
}

/** The cache of a layer: its bytes, and the formats of its pages. */
export function planCache(
  where: string,
  shape: PageShape,
  config: CheckedConfig,
  maxSeqLen: number,
  { format, truncatable }: StateOptions,
): { readonly bytes: number; readonly formats: number } {
  const layout = createPageLayout(shape, checkCacheFormat(where, "format", format, shape));
  return {
    bytes: pagesBytes(layout, 1, maxSeqLen, retentionOf(where, config, truncatable)),
    formats: layout.formats,
  };
}

/** The cache of a layer of a model. */
export function layerCache(where: string, { kernels, config, pageShape }: MixerLayer, options: CacheOptions): KvCache {
  const checked = checkCacheOptions(where, pageShape, options);
  const retention = retentionOf(where, config, options.truncatable);
  return makeCache<KvCache>("Cache", "createCache", kernels, pageShape, checked, retention, {});
}

/** Keys and values, or latents, of a sequence. */
export interface KvState extends LayerState {
  readonly cache: KvCache;
  readonly pages: Pages;
}

/** A state as pages. Throws for one without. */
export function expectPages(where: string, state: LayerState): KvState {
  if ("pages" in state) return state as KvState;
  throw new RangeError(`${where}: session expected one whose layers keep pages of tokens, got a layer that keeps none`);
}

/** The state that consists of a cache. */
export function createKvState(cache: KvCache): KvState {
  const { kernels, pages, bytes } = cache;
  return {
    ...{ cache, pages, bytes, formats: pages.layout.formats },
    get forkBytes() {
      return forkBytes(pages);
    },
    begin: cache.begin,
    commit: cache.commit,
    settle: (past) => settlePage(kernels, pages, past),
    nearest: (length, held) => (length < leastLength(pages, held).least ? 0 : length),
    expectTruncatable: (length) => expectTruncatable(pages, length),
    reserve: (length) => pages.sharing?.reserveCut("truncate", kernels, pages, length),
    truncate: cache.truncate,
    fork(where) {
      cache.begin();
      return createKvState(cacheOf("KvCache", "createKvCache", kernels, forkPages(where, kernels, pages), {}));
    },
    release: cache.release,
  };
}

/** Keys and values, or latents, in pages. */
export const KV_STATES: StateMaker<MixerLayer, KvState> = {
  bytes: (where, { pageShape, config }, maxSeqLen, options) =>
    planCache(where, pageShape, config, maxSeqLen, options).bytes,
  create: (where, layer, maxSeqLen, options) => createKvState(layerCache(where, layer, { ...options, maxSeqLen })),
};

/** The runs of tokens of states, with the pages of these. */
export function onPages(runs: StateRuns<KvState>): Runs {
  return runs.map((run) => {
    const { tokens, state } = run.of;
    return { ...run, of: { tokens, pages: state.pages, inStep: state.pages.ages } };
  });
}
