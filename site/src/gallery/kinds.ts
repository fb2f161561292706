// The kinds of heads that the gallery shows, and which head shows each.

import type { DetectedHead, KindScore } from "headwise/inspect";
import type { Shipped } from "../../worker/gallery-run.ts";
import { make } from "../dom.ts";
import { HEAD_KINDS } from "../head-kinds.ts";

/** A head of one of the models. */
export interface Entry {
  readonly model: Shipped;
  readonly about: DetectedHead;
  /** Where its weights are among those of all heads of the model. */
  readonly index: number;
}

/** A score; without `tokens` it comes from the weights of the model alone. */
export type Score = Omit<KindScore, "tokens"> & Partial<Pick<KindScore, "tokens">>;

export interface Kind {
  readonly name: string;
  readonly title: string;
  /** What such a head does, after its name. */
  readonly does: string;
  /** What that is good for. */
  readonly why: string;
  score(head: DetectedHead): Score | undefined;
  isOf(head: DetectedHead): boolean;
}

export const MODEL_NAMES: Readonly<Record<Shipped, string>> = { induction: "induction", "stories.gguf": "stories" };

/** A kind of `detectHeads`. */
const detected = (name: keyof typeof HEAD_KINDS, why: string): Kind => ({
  ...{ name, ...HEAD_KINDS[name], why },
  score: ({ scores }) => scores[name],
  isOf: ({ kind }) => kind === name,
});

export const KINDS: readonly Kind[] = [
  detected("previous", "What it writes says which token that was: one half of an induction circuit."),
  detected("current", "What it writes hardly depends on the text around it."),
  detected("local", "What it writes says which tokens are near."),
  detected(
    "uniform",
    "An even spread would write the mean of the text so far. Here the baseline is a head that sees one token.",
  ),
  detected("first", "Heads of large models look there when they find nothing else."),
  detected("duplicate", "Such a head can say that a word was there before."),
  detected("induction", "It reads what should come next if the text repeats itself."),
  {
    ...detected("reference", "It copies that word to the answer."),
    title: HEAD_KINDS["name mover"].title,
    isOf: ({ kind }) => kind === "name mover",
  },
  {
    name: "copying",
    title: "Copying",
    does: "makes more likely what it reads",
    why: "The eigenvalues of its path from embedding to logits say so, whatever it looks at; random weights have 0 on average.",
    score: ({ copying }) => (copying === undefined ? undefined : { score: copying, baseline: 0 }),
    isOf: ({ copying = 0 }) => copying >= 0.5,
  },
];

/** Heads that are shown where none is of a kind. */
const NEAREST = 3;

/** The heads of a kind, the one with the largest score first; or those that are nearest, if none is. */
export function headsOf({ score, isOf }: Kind, all: readonly Entry[]): { heads: Entry[]; isKind: boolean } {
  const scoreOf = ({ about }: Entry) => score(about)?.score ?? Number.NEGATIVE_INFINITY;
  const sorted = all.filter(({ about }) => score(about)).sort((a, b) => scoreOf(b) - scoreOf(a));
  const heads = sorted.filter(({ about }) => isOf(about));
  return heads.length > 0 ? { heads, isKind: true } : { heads: sorted.slice(0, NEAREST), isKind: false };
}

/** A head in the address. */
export const keyOf = ({ model, about: { layer, head } }: Entry): string => `${MODEL_NAMES[model]}.${layer}.${head}`;

export const nameOf = ({ layer, head }: Pick<DetectedHead, "layer" | "head">): string => `layer ${layer}, head ${head}`;

/** What a head does, and what it is good for. Of `all` heads one is nearest where none is of the kind. */
export function caption(kind: Kind, { model, about }: Entry, isKind: boolean, all: number): string {
  const { does, why } = kind;
  const name = `${nameOf(about)} of ${MODEL_NAMES[model]}`;
  if (!isKind) return `None of the ${all} heads ${does} for most of its attention. ${why} The nearest is ${name}.`;
  const copies =
    kind.name === "reference" && about.copies !== undefined
      ? ` ${percent(about.copies)} of these words are among the five likeliest by what it writes alone.`
      : "";
  return `${name.charAt(0).toUpperCase()}${name.slice(1)} ${does}. ${why}${copies}`;
}

/** A score as a bar, with a mark at the baseline, and what it is a mean of. */
export function scoreBar({ score, baseline, tokens }: Score): HTMLElement[] {
  const fill = make("span", { className: "fill" });
  fill.style.width = `${100 * Math.min(1, Math.max(0, score))}%`;
  const mark = make("span", { className: "mark" });
  mark.style.left = `${100 * baseline}%`;
  const of = tokens === undefined ? "weights alone" : `${tokens.toLocaleString("en")} tokens`;
  return [
    make("strong", { textContent: digits(score) }),
    make("span", { className: "track", ariaHidden: "true" }, fill, mark),
    make("span", { className: "quiet", textContent: `baseline ${digits(baseline)}, ${of}` }),
  ];
}

export const digits = (value: number, count = 2): string => value.toFixed(count).replace("-", "−");
const percent = (share: number): string => `${(100 * share).toFixed(0)} %`;
