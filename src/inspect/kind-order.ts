// The order in which lists of heads have their kinds.

/** The kinds of `detectHeads`: those first of which a model has few. */
export const KIND_ORDER: readonly string[] = [
  ...["name mover", "reference", "previous", "induction", "duplicate", "offset"],
  ...["current", "first", "local", "uniform", "mixed"],
];
