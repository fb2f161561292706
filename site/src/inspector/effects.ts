// What comes next, one word of which is chosen, and what each head carries of it.

import { visible } from "../../../src/base/util/strings.ts";
import type { Attended, Guess } from "../../worker/inspect.ts";
import type { HeadEffects } from "../../worker/inspect-effects.ts";
import type { HeadEdit } from "../../worker/inspect-runs.ts";
import { make, showMessage } from "../dom.ts";
import { createEffectsGrid } from "../effects-grid.ts";
import { signed } from "../story/say.ts";
import { guessRows } from "./bars.ts";
import { isAblated, readEdits } from "./edits.ts";
import type { Place } from "./heads-grid.ts";

/** Heads · tokens · bytes of the model from which the effects are measured on request only: some seconds of a processor. */
const MOST_UNASKED = 1e10;

export interface EffectsView {
  readonly element: HTMLElement;
  /** Shows what comes next; the effects of another text or token go until they are measured. */
  show(view: Attended, edits: string, token: number): void;
  /** Measures the effects of what is shown, if that does not take long. */
  measure(modelBytes: number): Promise<void>;
  /** Forgets what was measured, and stops what is being measured. */
  clear(): void;
}

type Measure = (token: number, onProgress: (share: number) => void, signal: AbortSignal) => Promise<HeadEffects>;

/** `list` gets the words that may come next, as buttons that choose one. */
export function createEffectsView(
  list: HTMLElement,
  measure: Measure,
  { onToken, onEdits }: { onToken(id: number): void; onEdits(edits: readonly HeadEdit[]): void },
): EffectsView {
  let shown: { readonly view: Attended; readonly edits: string; readonly token: number } | undefined;
  let found: { readonly of: string; readonly effects: HeadEffects } | undefined;
  let abort: AbortController | undefined;
  const about = make("p", { className: "quiet small about" });
  const ask = make("button", { type: "button", textContent: "Measure", hidden: true });
  const grid = createEffectsGrid(
    make("div", { role: "group", ariaLabel: "What each head carries" }),
    () => false,
    (places, goes) => {
      const isOf = (edit: Place) => places.some(({ layer, head }) => layer === edit.layer && head === edit.head);
      const rest = readEdits(shown?.edits ?? "").filter((edit) => !isOf(edit));
      onEdits(goes ? [...rest, ...places.map((place) => ({ ...place, scale: 0 }))] : rest);
    },
  );
  const element = make("div", {}, grid.element, about, ask);
  /** What effects belong to: they do not depend on what is changed. */
  const keyOf = ({ view, token }: NonNullable<typeof shown>) => JSON.stringify([view.words, token]);

  const sayWord = ({ word, logOdds, id }: HeadEffects): string => {
    const now = shown?.view.guesses.find((guess) => guess.id === id);
    const changed = now?.before === undefined ? "" : `; with your changes, ${signed(logOddsOf(now))}`;
    return `The log-odds of “${visible(word)}” are ${signed(logOdds)}${changed}. A head that a cell takes away lowers them (blue) or raises them (orange).`;
  };
  const draw = (): void => {
    if (!shown) return;
    const { view, edits } = shown;
    const isKnown = found?.of === keyOf(shown);
    const effects = isKnown ? found?.effects : undefined;
    const away = readEdits(edits).filter(isAblated);
    grid.show({
      heads: view.heads.map((count, layer) => effects?.heads[layer] ?? new Array<undefined>(count).fill(undefined)),
      layers: view.heads.map((_, layer) => effects?.layers[layer]),
      isOff: ({ layer, head }) => away.some((edit) => edit.layer === layer && edit.head === head),
    });
    for (const [i, row] of [...list.children].entries())
      row.querySelector("button")?.setAttribute("aria-pressed", String(view.guesses[i]?.id === effects?.id));
    if (effects) showMessage(about, sayWord(effects));
    ask.hidden ||= isKnown;
  };
  const run = async (): Promise<void> => {
    if (!shown) return;
    abort?.abort();
    const own = new AbortController();
    abort = own;
    ask.hidden = true;
    const of = keyOf(shown);
    const onProgress = (share: number) => {
      if (own === abort) showMessage(about, `Taking one head after the other away: ${(100 * share).toFixed(0)} %.`);
    };
    try {
      const effects = await measure(shown.token, onProgress, own.signal);
      if (own !== abort) return;
      found = { of, effects };
      draw();
    } catch (error) {
      if (own === abort && (error as Error).name !== "AbortError") showMessage(about, (error as Error).message, true);
    }
  };
  ask.addEventListener("click", run);

  return {
    element,
    show(view, edits, token) {
      shown = { view, edits, token };
      const focused = [...list.children].findIndex((row) => row.contains(document.activeElement));
      list.replaceChildren(...guessRows(view.guesses, onToken));
      list.children[focused]?.querySelector("button")?.focus();
      if (found?.of !== keyOf(shown)) showMessage(about, "");
      draw();
    },
    async measure(modelBytes) {
      if (!shown || found?.of === keyOf(shown)) return;
      const { heads, words } = shown.view;
      const passes = heads.reduce((sum, count) => sum + count + 1, 0);
      if (passes * words.length * modelBytes <= MOST_UNASKED) return run();
      ask.hidden = false;
      showMessage(about, `What each head carries takes ${passes} passes of this model.`);
    },
    clear() {
      abort?.abort();
      abort = found = undefined;
      ask.hidden = true;
    },
  };
}

/** ln(p / (1 − p)): float64 has no share between 1 − 2⁻⁵³ and 1. */
const logOddsOf = ({ probability: p }: Guess): number => Math.log(p / Math.max(1 - p, 2 ** -53));
