// A card of the gallery: a kind of heads, and a head that shows it.

import { visible } from "../../../src/base/util/strings.ts";
import type { Patterns } from "../../worker/gallery.ts";
import type { Shipped } from "../../worker/gallery-run.ts";
import { make } from "../dom.ts";
import { type Cell, createHeatmap } from "../heatmap.ts";
import { cellOf } from "../inspector/head.ts";
import { caption, digits, type Entry, headsOf, type Kind, keyOf, MODEL_NAMES, type Score, scoreBar } from "./kinds.ts";

/** A text that a model reads for the gallery. */
export interface Sample extends Patterns {
  readonly text: string;
}

export interface Card {
  readonly element: HTMLElement;
  /** Offers the heads of the kind; while there are models to come, only if there are any. */
  fill(all: readonly Entry[], samples: ReadonlyMap<Shipped, Sample>, isComplete: boolean): void;
  /** Shows a head by its key: by default the first; and the cursor at a cell, by default where its last token looks most. */
  show(key: string | undefined, cell: Cell | undefined): void;
}

export interface CardEvents {
  onChoice(key: string): void;
  onMove(cell: Cell): void;
}

/** A view of the inspector. */
export function inspectorLink(model: Shipped, text: string, { layer, head }: Entry["about"], cell: Cell): string {
  const fields = { model, text, layer, head, ...cell, deterministic: "yes" };
  return `./inspector.html#${new URLSearchParams(Object.entries(fields).map(([name, value]) => [name, String(value)]))}`;
}

/** The weights of one head. */
export function mapOf({ words, weights }: Patterns, index: number): Float32Array {
  const size = words.length ** 2;
  return weights.subarray(index * size, (index + 1) * size);
}

/** “it” looks at “mat”: 0.98. */
export function sayLook(words: readonly string[], weights: Float32Array, { query, key }: Cell): string {
  const word = (i: number) => `“${visible(words[i] as string)}”`;
  const weight = digits(weights[query * words.length + key] as number);
  if (key > query) return `${word(query)} does not see ${word(key)}, which comes later`;
  return `${word(query)} looks at ${query === key ? "itself" : word(key)}: ${weight}`;
}

export function createCard(kind: Kind, { onChoice, onMove }: CardEvents): Card {
  let isShowing = false;
  let shown: { readonly entry: Entry; readonly sample: Sample } | undefined;
  const link = make("a", { textContent: "Inspect this head", href: "./inspector.html" });
  const map = createHeatmap((cell) => {
    if (shown) link.href = inspectorLink(shown.entry.model, shown.sample.text, shown.entry.about, cell);
    if (!isShowing) onMove(cell);
  });
  const about = make("p", { className: "small", textContent: `It ${kind.does}. ${kind.why}` });
  const measure = make("div", { className: "measure" });
  const select = make("select", { disabled: true, ariaLabel: `${kind.title}: which head` });
  select.addEventListener("change", () => onChoice(select.value));
  const element = make("section", { className: "kind" }, make("h3", { textContent: kind.title }), about, measure);
  element.append(map.element, make("div", { className: "chosen" }, select, link));
  element.dataset.kind = kind.name;
  let all: readonly Entry[] = [];
  let samples: ReadonlyMap<Shipped, Sample> = new Map();
  let found: ReturnType<typeof headsOf> = { heads: [], isKind: false };

  return {
    element,
    fill(givenEntries, givenSamples, isComplete) {
      const best = headsOf(kind, givenEntries);
      if (!best.isKind && !isComplete) return;
      [all, samples, found] = [givenEntries, givenSamples, best];
      select.replaceChildren(
        ...found.heads.map((entry) => {
          const { layer, head } = entry.about;
          const score = digits((kind.score(entry.about) as Score).score);
          return new Option(`${MODEL_NAMES[entry.model]} ${layer}.${head}: ${score}`, keyOf(entry));
        }),
      );
      select.disabled = found.heads.length < 2;
    },
    show(key, cell) {
      const entry = found.heads.find((each) => keyOf(each) === key) ?? found.heads[0];
      const sample = entry && samples.get(entry.model);
      if (!entry || !sample) return;
      select.value = keyOf(entry);
      about.textContent = caption(kind, entry, found.isKind, all.length);
      measure.replaceChildren(...scoreBar(kind.score(entry.about) as Score));
      const isNew = shown?.entry !== entry;
      shown = { entry, sample };
      const { words } = sample;
      element.classList.toggle(
        "characters",
        words.every(({ length }) => length === 1),
      );
      const weights = mapOf(sample, entry.index);
      isShowing = true;
      const name = `${kind.title}, layer ${entry.about.layer}, head ${entry.about.head}`;
      const say = (at: Cell) => sayLook(words, weights, at);
      if (isNew) map.show({ name, weights, queries: words, keys: words, say });
      if (isNew || cell) map.point(cell ?? cellOf({ words, weights }, { query: -1, key: -1 }));
      isShowing = false;
    },
  };
}
