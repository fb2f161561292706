// Tokens that the files of Whisper leave out or ask for, as transformers applies them: suppress_tokens, begin_suppress_tokens and
// forced_decoder_ids of generation_config.json, or without that file of config.json.

import { parseJson } from "../../base/util/strings.ts";
import { type Fields, fieldsOf } from "../families/facts.ts";
import type { TokenRules } from "../spec/spec.ts";

/** Reads the rules of a model with `vocabSize` tokens from the text of a file of this name; undefined for one without any. */
export function readTokenRules(where: string, name: string, json: string, vocabSize: number): TokenRules | undefined {
  const file = fieldsOf("JSON", parseJson(where, name, json), `${where}: ${name}`);
  const always = readList(file, "suppress_tokens");
  const atBegin = readList(file, "begin_suppress_tokens");
  const forced = readForced(file, vocabSize);
  if (always.length + atBegin.length + forced.size === 0) return undefined;
  const forcedEnd = Math.max(-1, ...forced.keys()) + 1;
  return (read) => {
    // The first token that is neither read nor forced. Where a session has tokens already, positions are beyond `read`: it goes on.
    const begin = Math.max(read, forcedEnd);
    return ([ids = []], { data: logits }) => {
      const position = ids.length;
      for (const id of position === begin ? [...always, ...atBegin] : always)
        if (id < logits.length) logits[id] = Number.NEGATIVE_INFINITY;
      const id = forced.get(position);
      if (id !== undefined) logits.fill(Number.NEGATIVE_INFINITY)[id] = 0;
    };
  };
}

const isId = (value: unknown): value is number => Number.isInteger(value) && (value as number) >= 0;

/** Ids; those outside the vocabulary have no effect. */
function readList(file: Fields, name: string): readonly number[] {
  const list = file.list(name) ?? [];
  const wrong = list.find((id) => !isId(id));
  if (wrong === undefined && list.every(isId)) return list;
  throw file.refusal(name, "a list of token ids", wrong);
}

/** Ids by the positions that they are forced at: pairs, of which an id may be null for a position that is free. */
function readForced(file: Fields, vocabSize: number): ReadonlyMap<number, number> {
  const forced = new Map<number, number>();
  for (const pair of file.list("forced_decoder_ids") ?? []) {
    const [position, id, ...more] = Array.isArray(pair) ? (pair as unknown[]) : [];
    const isFree = id === null || id === undefined;
    if (!isId(position) || more.length > 0 || !(isFree || (isId(id) && id < vocabSize)))
      throw file.refusal(
        "forced_decoder_ids",
        `pairs of a position and an id below ${vocabSize}`,
        Array.isArray(pair) ? `[${pair.join(", ")}]` : pair,
      );
    if (!isFree) forced.set(position, id as number);
  }
  return forced;
}
