// Heads that a tutorial built by hand, each beside the learned head that comes nearest to it in the same sentence.

import type { DetectedHead } from "headwise/inspect";
import type { Shipped } from "../../worker/gallery-run.ts";
import type { TutorialFigures } from "../../worker/tutorial.ts";
import { make } from "../dom.ts";
import { type Cell, createHeatmap } from "../heatmap.ts";
import { inspectorLink, mapOf, type Sample, sayLook } from "./card.ts";
import { digits, nameOf } from "./kinds.ts";

/** The model whose heads are compared. */
const MODEL: Shipped = "stories.gguf";

/** What the heads built by hand look at, and "it" at its other candidate: the look that chooses the learned head comes first. */
const LOOKS = [
  { hand: 0, from: "it", to: "mat" },
  { hand: 0, from: "it", to: "cat" },
  { hand: 0, from: "soft", to: "mat" },
  { hand: 1, from: "sat", to: "cat" },
  { hand: 1, from: "cat", to: "sat" },
] as const;

/** A look, by hand and by the learned head that gives it the most weight. */
interface Look {
  readonly hand: number;
  readonly from: string;
  readonly to: string;
  /** In the sentence as the model reads it. */
  readonly cell: Cell;
  readonly byHand: number;
  /** The learned head, which cannot look at what comes later. */
  readonly learned?: { readonly index: number; readonly weight: number };
}

function looksIn({ tokens, handWeights }: TutorialFigures, sentence: Sample, heads: number): Look[] {
  const [n, count] = [tokens.length, sentence.words.length];
  const before = count - n; // the model puts <s> before the text
  return LOOKS.map(({ hand, from, to }) => {
    const [query, key] = [tokens.indexOf(from), tokens.indexOf(to)];
    const cell = { query: query + before, key: key + before };
    const byHand = handWeights[(hand * n + query) * n + key] as number;
    const of = (index: number) => mapOf(sentence, index)[cell.query * count + cell.key] as number;
    const index = Array.from({ length: heads }, (_, i) => i).reduce((best, i) => (of(i) > of(best) ? i : best));
    return { hand, from, to, cell, byHand, ...(key <= query && { learned: { index, weight: of(index) } }) };
  });
}

export interface PairMaps {
  readonly elements: readonly HTMLElement[];
  /** Moves the cursor of a pair to a cell of the sentence as the model reads it. */
  point(pair: number, cell: Cell): void;
}

/** Two maps for each head that was built by hand: it, and the learned one. Both have one cursor. */
export function pairMaps(
  figures: TutorialFigures,
  sentence: Sample,
  heads: readonly DetectedHead[],
  onMove: (pair: number, cell: Cell) => void,
): PairMaps {
  const { tokens, handHeads, handWeights } = figures;
  const { words } = sentence;
  const before = words.length - tokens.length;
  const looks = looksIn(figures, sentence, heads.length);
  let isShowing = true;
  const pairs = handHeads.map((name, hand) => {
    const look = looks.find((each) => each.hand === hand) as Look & Required<Pick<Look, "learned">>;
    const weights = handWeights.subarray(hand * tokens.length ** 2, (hand + 1) * tokens.length ** 2);
    const learned = mapOf(sentence, look.learned.index);
    const about = heads[look.learned.index] as DetectedHead;
    const link = make("a", { textContent: "Inspect this head" });
    const move = (cell: Cell) => {
      link.href = inspectorLink(MODEL, sentence.text, about, cell);
      if (isShowing) return;
      point(cell);
      onMove(hand, cell);
    };
    const byHand = createHeatmap(({ query, key }) => move({ query: query + before, key: key + before }));
    const byTraining = createHeatmap(move);
    const point = (cell: Cell): void => {
      const wasShowing = isShowing;
      isShowing = true;
      if (cell.query >= before && cell.key >= before)
        byHand.point({ query: cell.query - before, key: cell.key - before });
      byTraining.point(cell);
      isShowing = wasShowing;
    };
    byHand.show({
      ...{ name: `${name}, by hand`, weights, queries: tokens, keys: tokens },
      say: ({ query, key }) => {
        const weight = digits(weights[query * tokens.length + key] as number);
        return `“${tokens[query]}” looks at ${query === key ? "itself" : `“${tokens[key]}”`}: ${weight}`;
      },
    });
    byTraining.show({
      ...{ name: `Learned, ${nameOf(about)}`, weights: learned, queries: words, keys: words },
      say: (cell) => sayLook(words, learned, cell),
    });
    point(look.cell);
    const title = `By hand: ${name.replace("Head", "head")}`;
    const foot = make("p", { className: "small" }, link);
    return {
      point,
      elements: [panel(title, byHand.element), panel(`Learned: ${nameOf(about)}`, byTraining.element, foot)],
    };
  });
  isShowing = false;
  return {
    elements: pairs.flatMap(({ elements }) => elements),
    point: (pair, cell) => pairs[pair]?.point(cell),
  };
}

const panel = (title: string, ...content: readonly HTMLElement[]): HTMLElement =>
  make("section", { className: "pair" }, make("h3", { textContent: title }), ...content);

/** The looks as a table. */
export function looksTable(figures: TutorialFigures, sentence: Sample, heads: readonly DetectedHead[]): HTMLElement {
  const row = (kind: "th" | "td", cells: readonly (string | Node)[]) =>
    make("tr", {}, ...cells.map((cell) => make(kind, {}, cell)));
  const rows = looksIn(figures, sentence, heads.length).map(({ from, to, cell, byHand, learned }) => {
    const look = `“${from}” at “${to}”`;
    if (!learned) return row("td", [look, digits(byHand), digits(0), "none", digits(0)]);
    const about = heads[learned.index] as DetectedHead;
    const href = inspectorLink(MODEL, sentence.text, about, cell);
    const head = make("a", { href, textContent: `${about.layer}.${about.head}`, title: nameOf(about) });
    return row("td", [look, digits(byHand), digits(learned.weight), head, digits(1 / (cell.query + 1))]);
  });
  const caption = `Learned: the largest weight that any of the ${heads.length} heads gives; 0.7 is head 7 of layer 0. Equal: the weight if all tokens so far had the same.`;
  const head = make("thead", {}, row("th", ["Look", "By hand", "Learned", "Head", "Equal"]));
  const table = make("table", {}, make("caption", { textContent: caption }), head, make("tbody", {}, ...rows));
  return make("div", { className: "table" }, table);
}

/** A sentence of the model's grammar whose verb agrees with the farther noun: <s> is its first token. */
const AGREEMENT = "the keys to the box were new";

/** What the learned heads do, and what they do not. */
export function findings(figures: TutorialFigures, sentence: Sample, heads: readonly DetectedHead[]): HTMLElement[] {
  const looks = looksIn(figures, sentence, heads.length);
  const of = (from: string, to: string) => {
    const { learned, byHand } = looks.find((look) => look.from === from && look.to === to) as Look;
    const { index, weight } = learned ?? { index: 0, weight: 0 };
    const about = heads[index] as DetectedHead;
    return { about, byHand, weight: digits(weight), name: nameOf(about) };
  };
  const [mat, cat, subject] = [of("it", "mat"), of("it", "cat"), of("sat", "cat")];
  const scoreOf = (name: string) => (head: DetectedHead) => head.scores[name] ?? { score: 0, baseline: 0, tokens: 0 };
  const bestOf = (score: ReturnType<typeof scoreOf>) =>
    heads.reduce((most, each) => (score(each).score > score(most).score ? each : most));
  const [pronoun, agreement] = [scoreOf("pronoun"), scoreOf("agreement")];
  const [own, best] = [pronoun(mat.about), bestOf(pronoun)];
  const agrees = bestOf(agreement);
  const verbs = agreement(agrees);
  const texts = [
    `No learned head does what the head of meaning does. From “it”, ${mat.name} looks at the mat (${mat.weight}) and ${cat.name} at the cat (${cat.weight}): a decoder reads “it” before “soft”, so it cannot know yet which of the two is meant, and would look the same way before “sleepy”.`,
    `Over ${own.tokens.toLocaleString("en")} pronouns of the held-out stories, ${mat.name} gives the word that is meant ${digits(own.score)} of its attention, the best head, ${nameOf(best)}, ${digits(pronoun(best).score)}; without preference it would be ${digits(own.baseline)}. What “it” was is looked up later, when it is asked for: by the name movers above.`,
    `The head of syntax has half a counterpart: ${subject.name} looks from “sat” at “cat” with ${subject.weight}. The other half, “cat” at “sat”, looks ahead, which no decoder can.`,
  ];
  const syntax = make("p", {
    textContent: `The syntax that training made is agreement. Before “were” in “${AGREEMENT}”, ${nameOf(agrees)} looks past “box” at “keys”: over ${verbs.tokens} such verbs it gives that noun ${digits(verbs.score)} of its attention, where ${digits(verbs.baseline)} would be without preference. `,
  });
  const href = inspectorLink(MODEL, AGREEMENT, agrees, { query: 5, key: 2 });
  syntax.append(make("a", { href, textContent: "Inspect this look" }), ".");
  return [...texts.map((textContent) => make("p", { textContent })), syntax];
}
