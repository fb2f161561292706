// The text of the positional lab: what each scheme is, and what its numbers say now.

import {
  HEAD_DIM,
  type Pattern,
  reach,
  type Scheme,
  type Setting,
  scalingOf,
  unseenPairs,
} from "./position-schemes.ts";

interface About {
  readonly name: string;
  readonly about: string;
  readonly usedBy: string;
}

export const ABOUT: Readonly<Record<Scheme, About>> = {
  sinusoidal: {
    name: "Sinusoidal",
    about: "A vector of sines and cosines of the position is added to each token. Near positions have similar vectors.",
    usedBy: "In the first Transformer, and in Whisper’s encoder.",
  },
  learned: {
    name: "Learned",
    about:
      "A row of a table is added to each token: here random rows, as before training. That 4 is near 5 must be learned.",
    usedBy: "In GPT-2, OPT and BERT.",
  },
  rope: {
    name: "RoPE",
    about:
      "Pairs of components of queries and keys are rotated by angles that grow with the position: a score depends on the distance only.",
    usedBy: "In Llama, Mistral, Qwen and Gemma.",
  },
  scaled: {
    name: "RoPE, scaled",
    about: "RoPE with smaller angles, so that those of a longer context stay within what training has shown.",
    usedBy: "In Llama 3.1, in Qwen2.5 and DeepSeek-V3 for long texts (YaRN), in Phi-3 (LongRoPE).",
  },
  alibi: {
    name: "ALiBi",
    about: "From each score, the distance times the slope of the head is subtracted.",
    usedBy: "In BLOOM and MPT.",
  },
  nope: {
    name: "NoPE",
    about: "No positions are encoded: only the causal mask separates earlier tokens from later ones.",
    usedBy: "In every fourth layer of SmolLM3 and Llama 4.",
  },
};

const percent = (share: number): string => `${(100 * share).toFixed(share < 0.1 ? 1 : 0)} %`;
const nearest = (count: number): string => (count === 1 ? "itself" : `the ${count} nearest tokens`);

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
  if (context <= trained) return `${last}. The context is within the trained length.`;
  const reaching = `${last}, ${percent(far)} on those ${trained} or more back.`;
  switch (scheme) {
    case "sinusoidal":
      return `${reaching} Positions from ${trained} on have vectors, but training has shown none of them.`;
    case "learned":
      return `The table ends: position ${trained} has no row, and ${context - trained} of ${context} tokens have no vector.`;
    case "rope":
    case "scaled":
      return `${reaching} ${unseen(scheme, setting)}`;
    case "alibi":
      return `${reaching} The further back a key is, the more is subtracted.`;
    case "nope":
      return `${reaching} Distance makes no difference: the longer the context, the less weight for each token.`;
  }
}

function unseen(scheme: "rope" | "scaled", setting: Setting): string {
  const { count, times } = unseenPairs(scheme, setting);
  const { kind } = scalingOf(setting);
  const raises =
    scheme === "scaled" && (kind === "yarn" || kind === "factors") ? " All scores are larger by a factor, too." : "";
  if (count === 0) return `No pair is rotated further than training has shown.${raises}`;
  return `${count} of ${HEAD_DIM / 2} pairs are rotated further than training has shown, up to ${times.toFixed(1)} times as far.${raises}`;
}
