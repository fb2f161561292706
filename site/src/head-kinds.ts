// What the pages call the kinds of heads that `detectHeads` finds, and what heads of each do.

export interface HeadKind {
  readonly title: string;
  /** After "it", without a full stop. */
  readonly does: string;
}

/** By the names of `detectHeads`. */
export const HEAD_KINDS = {
  previous: { title: "Previous token", does: "looks at the token before" },
  current: { title: "Own token", does: "looks at its own token" },
  local: { title: "Local", does: "looks at the last four tokens" },
  uniform: { title: "Uniform", does: "spreads its attention over all tokens" },
  first: { title: "First token", does: "looks at the first token" },
  duplicate: { title: "Duplicate token", does: "looks at earlier places of the same token" },
  induction: { title: "Induction", does: "looks at what followed the same token earlier" },
  reference: { title: "Answer", does: "looks from the place before an answer at the word that answers" },
  "name mover": {
    title: "Name mover",
    does: "looks from the place before an answer at the word that answers, and copies it",
  },
  offset: { title: "Fixed distance", does: "looks at a token at a fixed distance" },
  mixed: { title: "Mixed", does: "looks at several things: no kind describes them, or too few tokens show one" },
} satisfies Readonly<Record<string, HeadKind>>;

/** The kind of a name, which may be one that the pages have no words for. */
export const headKind = (name: string): HeadKind =>
  (HEAD_KINDS as Readonly<Record<string, HeadKind>>)[name] ?? { title: name, does: `is of the kind ${name}` };
