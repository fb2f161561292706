// The order of kinds in lists of heads.

/** The kinds of `detectHeads`, from the most specific to "mixed". */
export const KIND_ORDER: readonly string[] = [
  "name mover",
  "reference",
  "previous",
  "induction",
  "duplicate",
  "offset",
  "current",
  "first",
  "local",
  "uniform",
  "mixed",
];
