// The kinds of heads that the gallery shows, and which head shows each.

import type { DetectedHead, KindScore } from "headwise/inspect";
import type { Shipped } from "../../worker/gallery.ts";

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
  /** What the baseline is. */
  readonly baseline: string;
  score(head: DetectedHead): Score | undefined;
  isOf(head: DetectedHead): boolean;
}

export const MODEL_NAMES: Readonly<Record<Shipped, string>> = { induction: "induction", "stories.gguf": "stories" };

const EVEN = "a head without preference";

/** A kind of `detectHeads`. */
const detected = (name: string, title: string, does: string, why: string): Kind => ({
  ...{ name, title, does, why, baseline: EVEN },
  score: ({ scores }) => scores[name],
  isOf: ({ kind }) => kind === name,
});

export const KINDS: readonly Kind[] = [
  detected(
    "previous",
    "Previous token",
    "looks at the token before",
    "What it writes says which token that was: one half of an induction circuit.",
  ),
  detected("current", "Own token", "looks at its own token", "What it writes hardly depends on the text around it."),
  detected("local", "Local", "looks at the last four tokens", "It sees the neighbourhood, whatever the tokens are."),
  {
    ...detected(
      "uniform",
      "Uniform",
      "looks at all tokens nearly alike",
      "What it writes is close to the mean of the text so far.",
    ),
    baseline: "a head that sees one token only",
  },
  detected(
    "first",
    "First token",
    "looks at the first token",
    "In large models heads rest there when there is nothing to look for.",
  ),
  detected(
    "duplicate",
    "Duplicate token",
    "looks at earlier places of the same token",
    "It would say that a word has been there before.",
  ),
  detected(
    "induction",
    "Induction",
    "looks at what followed the same token earlier",
    "It reads what should come next if the text repeats itself.",
  ),
  {
    ...detected("reference", "Name mover", "looks from the place before an answer at the word that answers", ""),
    why: "It copies that word to where it has to be said.",
    isOf: ({ kind }) => kind === "name mover",
  },
  {
    name: "copying",
    title: "Copying",
    does: "makes more likely what it reads",
    why: "Positive eigenvalues of the path from embedding to logits show that, whatever the head looks at.",
    baseline: "a head of random weights, on average,",
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

/** What a head does, with its score. */
export function caption(kind: Kind, { model, about }: Entry, isKind: boolean, all: number): string {
  const { score, baseline, tokens } = kind.score(about) as Score;
  const name = `${nameOf(about)} of ${MODEL_NAMES[model]}`;
  const rests =
    tokens === undefined
      ? "It comes from the weights alone, without any text."
      : `It is a mean over ${tokens.toLocaleString("en")} tokens that have anywhere to look.`;
  const copies =
    about.kind === "name mover" && kind.name === "reference"
      ? ` Of the words that it looks at, ${percent(about.copies ?? 0)} are among the five likeliest by what it writes alone.`
      : "";
  const measured = `Its score is ${digits(score)}, that of ${kind.baseline} ${digits(baseline)}. ${rests}${copies}`;
  if (isKind) return `${capital(name)} ${kind.does}. ${kind.why} ${measured}`;
  return `None of the ${all} heads ${kind.does} for most of its attention. ${kind.why} The nearest is ${name}. ${measured}`;
}

export const digits = (value: number): string => value.toFixed(2).replace("-", "−");
export const percent = (share: number): string => `${(100 * share).toFixed(0)} %`;
const capital = (text: string): string => text.charAt(0).toUpperCase() + text.slice(1);
