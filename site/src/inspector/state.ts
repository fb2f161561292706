// What the address of the inspector says, and which changes of the pass follow from it.

import type { Rules } from "../../worker/inspect-rules.ts";
import type { Changes } from "../../worker/inspect-runs.ts";
import { choice, createState, flag, integer, text } from "../address.ts";
import { readEdits } from "./edits.ts";

export const state = createState({
  model: text("stories.gguf"),
  /** The question and a head of the story on the first page. */
  text: text("the cat sat on the mat because it was soft. what was soft? the"),
  layer: integer(1),
  head: integer(6),
  /** The cell under the cursor; -1 is the last token, and the key that it looks at most. */
  query: integer(-1, -1),
  key: integer(-1, -1),
  /** What the cursor's query asks for, as "16.6"; by default the word that the model says next, where the text has it. */
  answer: text(""),
  /** The id of the next token that heads are measured by; -1 is the likeliest. */
  token: integer(-1, -1),
  view: choice("map", "difference", "lines", "stages", "lens", "statistics"),
  /** Tokens of the statistics. */
  length: integer(1024),
  stage: integer(0, 0, 12),
  sort: choice("layer", "kind"),
  /** Heads that are changed, and the text that they are patched from. */
  edits: text(""),
  from: text("the dog slept on the rug because it was soft. what was soft? the"),
  weights: choice("stored", "f32", "q8", "q4"),
  cache: choice("f32", "f16", "q8", "q4"),
  causal: flag(true),
  window: integer(0),
  first: choice("seen", "kept", "hidden"),
  kv: integer(0),
  deterministic: choice("no", "yes"),
});

export type Values = typeof state.values;

/** The changes of an address. */
export function changesOf({ edits, from, weights, cache, ...values }: Values): Changes {
  const rules = rulesOf(values);
  return { edits: readEdits(edits), from, weights, cache, ...(rules && { rules }) };
}

/** The rules of the layer that is shown, if they are not its own. The first token is kept only from beyond a window. */
function rulesOf({ layer, causal, window, first, kv }: Pick<Values, RuleField>): Rules | undefined {
  const isOwn = causal && window === 0 && first !== "hidden" && kv === 0;
  return isOwn ? undefined : { layer, causal, window, first, kvHeads: kv };
}

type RuleField = "layer" | "causal" | "window" | "first" | "kv";
