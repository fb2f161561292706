// The address of what `headwise inspect` shows, on the inspector page of the site (`npm run site`).

import type { CacheFormat } from "../cache/page-layout.ts";
import type { WeightFormat } from "../linear/formats.ts";
import type { HeadPlace, InspectWork } from "./inspect-model.ts";

/** What the address says. */
export interface PageView {
  readonly path: string;
  readonly text: string;
  /** The head that is large. */
  readonly place: HeadPlace | undefined;
  readonly work: Pick<InspectWork, "why" | "without">;
  readonly weights: WeightFormat | undefined;
  readonly cache: CacheFormat | undefined;
  readonly deterministic: boolean;
}

/** Formats of weights that the page can switch to. */
const PAGE_WEIGHTS: readonly string[] = ["f32", "q8", "q4"];

/** The address, relative to that of the site. A page cannot open files by a path: it names the model only if that has a URL. */
export function inspectorAddress({ path, text, place, work, weights, cache, deterministic }: PageView): string {
  const fields = {
    model: /^https?:/.test(path) ? path : undefined,
    ...{ text, layer: place?.layer, head: place?.head, ...work.why },
    edits: work.without.map(({ layer, head }) => `${layer}.${head}*0`).join(),
    weights: PAGE_WEIGHTS.find((format) => format === weights),
    cache,
    deterministic: deterministic ? "yes" : undefined,
  };
  const given = Object.entries(fields).flatMap(([name, value]) =>
    value === undefined || value === "" ? [] : [[name, String(value)] as [string, string]],
  );
  return `inspector.html#${new URLSearchParams(given)}`;
}
