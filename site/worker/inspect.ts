// The inspector: attention of every head for a text. A text that goes on is read on; only what is after a change is read again.

import { detectHeads, nextTokens, type ReferencePair, sitesOf } from "headwise/inspect";
import type { Model } from "headwise/models";
import { type HeadMaps, mapOf, shrink } from "./inspect-maps.ts";
import { type Changes, digestOf, PLAIN, type Reading, readText, release } from "./inspect-runs.ts";
import { type Unknown, unknownIn } from "./inspect-text.ts";
import { loadedModel, modelAs, onRelease, replaced } from "./load.ts";

/** What is asked for: a text, what is changed, and which head is large. */
export interface AttendRequest {
  readonly text: string;
  readonly changes: Changes;
  readonly layer: number;
  readonly head: number;
}

/** A token that may come next: its probability, and that without the changes. */
export interface Guess {
  readonly id: number;
  readonly word: string;
  readonly probability: number;
  readonly before?: number;
}

/** What the page shows of a text. */
export interface Attended {
  readonly words: readonly string[];
  /** Tokens of the text that are not shown, because the maps of all heads would not fit. */
  readonly cut: number;
  readonly unknown: Unknown | undefined;
  /** Heads of queries, and of keys and values, by layer. */
  readonly heads: readonly number[];
  readonly kvHeads: readonly number[];
  /** Small maps [all heads, side, side], the largest weight of each field. */
  readonly small: Float32Array;
  readonly side: number;
  /** The head that is large: those asked for, or the nearest that the model has. */
  readonly layer: number;
  readonly head: number;
  /** Its weights [tokens, tokens], and the same without the changes, if there are any. */
  readonly weights: Float32Array;
  readonly before?: Float32Array;
  readonly guesses: readonly Guess[];
  /** Tokens that were read for this, and how long it took. */
  readonly read: number;
  readonly ms: number;
}

/** What a head does in the text that is shown. */
export interface HeadAbout {
  readonly kind: string;
  /** Of the kind, from 0 to 1, and the tokens that it is a mean of; of "mixed", 0. */
  readonly score: number;
  readonly tokens: number;
  /** How far back, of the kind "offset". */
  readonly by: number;
}

/** A token that asks for something, and the place of it. */
export type Answer = ReferencePair;

/** What takes longer than a view: asked for when the text has not changed for a while. */
export interface Studied {
  /** Layer by layer; none where `reason` says why. */
  readonly heads: readonly HeadAbout[];
  readonly reason: string;
  /** What heads were looked for that find it. */
  readonly answer: Answer | undefined;
  /** Of all weights of all heads and the logits. */
  readonly digest: string;
}

/** Pixels of a small map, and tokens that the kinds of heads are found by. */
const [SIDE, STUDIED] = [48, 256];
/** Next tokens that are shown. */
const GUESSES = 8;

let shown: Reading | undefined;
/** The logits of the same text without changes. */
let plainLogits: Reading["logits"] = new Float32Array(0);
let studied: { readonly ids: Reading["ids"]; readonly about: string | undefined; readonly result: Studied } | undefined;
onRelease(() => {
  shown = undefined;
  studied = undefined;
});

/** The pass that the page shows. */
export function shownReading(): Reading {
  if (!shown) throw new Error("No text was read.");
  return shown;
}

/** Reads a text, with and without changes. */
export async function attendTask({ text, changes, layer, head }: AttendRequest): Promise<Attended> {
  const { edits, weights, cache, rules } = changes;
  const changed = await modelAs(weights);
  const { model, tokenizer } = loadedModel();
  const heads = headsOf(model, "z");
  const at = { layer: within(layer, heads.length), head: within(head, heads[within(layer, heads.length)] as number) };
  const begin = performance.now();
  const plain = readText("plain", model, text, PLAIN);
  const isChanged = edits.length > 0 || weights !== PLAIN.weights || cache !== PLAIN.cache || rules !== undefined;
  if (!isChanged) release("edited");
  const given = { ...changes, rules: rules && { ...rules, layer: at.layer } };
  const edited = isChanged ? readText("edited", changed, text, given) : undefined;
  shown = edited ?? plain;
  plainLogits = plain.logits;
  const { ids, patterns, cut } = shown;
  const n = ids.length;
  const large = (reading: Reading) => mapOf(reading.patterns[at.layer] as HeadMaps, at.head, n);
  const side = Math.min(SIDE, n);
  return {
    ...{ words: ids.map((id) => tokenizer.decode([id], { keepSpecial: true })), cut, unknown: unknownIn(text, ids) },
    ...{ heads, kvHeads: headsOf(model, "k") },
    ...{ small: shrink(patterns, n, side), side, ...at, weights: large(shown) },
    ...(edited && { before: large(plain) }),
    guesses: guess(shown.logits, edited && plain.logits),
    read: plain.read + (edited?.read ?? 0),
    ms: performance.now() - begin,
  };
}

/**
 * What each head does in the text that was read last, and the digest of its maps. `answer` is a cell whose key is what its query asks
 * for: heads that find it are named by that. Where none is given, it is the last place of the word that the model says next.
 */
export async function studyTask({ answer: given }: { readonly answer: Answer | undefined }): Promise<Studied> {
  const { model } = loadedModel();
  const reading = shownReading();
  const { ids } = reading;
  const answer = given && given.key <= given.query && given.query < ids.length ? given : answerIn(ids);
  const about = JSON.stringify(answer);
  if (studied?.ids === ids && studied.about === about) return studied.result;
  const digest = await digestOf(reading);
  if (shown?.ids !== ids) throw replaced();
  const result = { ...study(model, ids, answer), digest, answer };
  studied = { ids, about, result };
  return result;
}

/** The last place of the token that is likeliest without changes, if the text has it, as what the last token asks for. */
function answerIn(ids: readonly number[]): Answer | undefined {
  const key = ids.lastIndexOf(nextTokens(plainLogits, 1)[0]?.id as number);
  return key < 0 ? undefined : { query: ids.length - 1, key };
}

function study(model: Model, ids: readonly number[], answer: Answer | undefined): Pick<Studied, "heads" | "reason"> {
  const tokens = ids.slice(0, STUDIED);
  const text = answer && answer.query < tokens.length ? { tokens, pairs: [answer] } : tokens;
  try {
    const found = detectHeads(model, [text], { copying: false });
    const heads = found.map(({ kind, scores, offset }): HeadAbout => {
      const own = kind === "offset" ? offset : scores[kind === "name mover" ? "reference" : kind];
      return { kind, by: offset.by, score: own?.score ?? 0, tokens: own?.tokens ?? 0 };
    });
    return { heads, reason: "" };
  } catch (error) {
    return { heads: [], reason: (error as Error).message };
  }
}

const within = (i: number, count: number): number => Math.min(count - 1, Math.max(0, i));

/** Heads by layer: of queries, or of keys and values; in latent attention all queries share one latent. */
function headsOf(model: Model, at: "z" | "k"): number[] {
  const counts = new Array<number>(model.layers).fill(0);
  for (const { layer = 0 } of sitesOf(model, at)) counts[layer]!++;
  return counts;
}

/** The likeliest next tokens: of two passes, those that are likeliest in either. */
function guess(logits: Float32Array, before: Float32Array | undefined): Guess[] {
  const { tokenizer } = loadedModel();
  const likeliest = [logits, ...(before ? [before] : [])].flatMap((each) => nextTokens(each, GUESSES));
  const ids = Array.from(new Set(likeliest.map(({ id }) => id)));
  const then = before && nextTokens(before, ids);
  const found = nextTokens(logits, ids).map(({ id, probability }, i): Guess => {
    const word = tokenizer.decode([id], { keepSpecial: true });
    return { id, word, probability, ...(then && { before: then[i]?.probability }) };
  });
  const most = ({ probability, before = 0 }: Guess) => Math.max(probability, before);
  const kept = found.sort((a, b) => most(b) - most(a)).slice(0, GUESSES);
  return kept.sort((a, b) => b.probability - a.probability);
}
