// What one sees in the positional lab, in words: what each scheme is, and what its numbers say now.

import {
  HEAD_DIM,
  type Pattern,
  reach,
  type Scheme,
  type Setting,
  scalingOf,
  unseenPairs,
} from "./position-schemes.ts";

export const ABOUT: Readonly<Record<Scheme, { readonly name: string; readonly about: string }>> = {
  sinusoidal: {
    name: "Sinusoidal",
    about: "A vector of waves is added to each token. Vectors of near positions are alike.",
  },
  learned: {
    name: "Learned",
    about: "A row of a table is added: here random rows, as before training. That 4 is near 5 must be learned.",
  },
  rope: {
    name: "RoPE",
    about: "Queries and keys are turned, pair by pair, by angles that grow with the position. Only differences count.",
  },
  scaled: {
    name: "RoPE, scaled",
    about: "Slower turns, so that a longer context stays within the angles of training.",
  },
  alibi: {
    name: "ALiBi",
    about: "Each score is lowered by the distance times the slope of the head.",
  },
  nope: {
    name: "NoPE",
    about: "No positions: only the causal mask says what is earlier.",
  },
};

const percent = (share: number): string => `${(100 * share).toFixed(share < 0.1 ? 1 : 0)} %`;
const nearest = (count: number): string => (count === 1 ? "itself" : `the ${count} nearest`);

/** LongRoPE has factors that are found by search for each model, which this page's heads are not. */
const MADE_UP = "The factors are made up for this page: a model's own are found by search.";

/** What the numbers say. */
export function sentence(scheme: Scheme, setting: Setting, pattern: Pattern): string {
  const says = sentenceOf(scheme, setting, pattern);
  return scheme === "scaled" && setting.scaling === "longrope" ? `${says} ${MADE_UP}` : says;
}

function sentenceOf(scheme: Scheme, setting: Setting, pattern: Pattern): string {
  const { trained, context } = setting;
  const { half, far } = reach(pattern, trained);
  const last = `Half of the last token's weight is on ${nearest(half)}`;
  if (context <= trained) return `${last}. All is within the trained length.`;
  const reaching = `${last}, ${percent(far)} on those ${trained} or more back.`;
  switch (scheme) {
    case "sinusoidal":
      return `${reaching} Vectors from ${trained} on exist, but training has shown none.`;
    case "learned":
      return `The table ends: position ${trained} has no row, and ${context - trained} of ${context} tokens cannot be read.`;
    case "rope":
    case "scaled":
      return `${reaching} ${unseen(scheme, setting)}`;
    case "alibi":
      return `${reaching} What is further back only loses more.`;
    case "nope":
      return `${reaching} Nothing marks them as far: the longer the context, the thinner the weight.`;
  }
}

function unseen(scheme: "rope" | "scaled", setting: Setting): string {
  const { count, times } = unseenPairs(scheme, setting);
  const { kind } = scalingOf(setting);
  const raises = scheme === "scaled" && (kind === "yarn" || kind === "factors") ? " All scores are raised, too." : "";
  if (count === 0) return `No pair turns further than training has shown.${raises}`;
  return `${count} of ${HEAD_DIM / 2} pairs turn further than training has shown, up to ${times.toFixed(1)} times as far.${raises}`;
}
