// Vectors of an opened model.

import { readFields } from "../base/util/arguments.ts";
import { describe } from "../base/util/errors.ts";
import { expectAlive } from "../base/util/lifetime.ts";
import type { Tokenizer } from "../text/tokenizer.ts";
import { EMBED_OPTIONS, type EmbedIds } from "./engine.ts";
import type { ModelMethods } from "./model.ts";
import type { EmbedRules } from "./recognise.ts";

/** What vectors are made with. */
export interface EmbeddingParts {
  readonly embedIds: EmbedIds;
  readonly tokenizer: Tokenizer;
  readonly rules: EmbedRules;
  /** Tokens of the longest text. */
  readonly maxTokens: number;
  /** What was released or not. */
  readonly model: { readonly released: boolean };
}

/** Makes the methods of a model that gives vectors. */
export function createEmbedding(parts: EmbeddingParts): Pick<ModelMethods, "embed" | "countTokens"> {
  const { embedIds, tokenizer, rules, maxTokens, model } = parts;
  const written = (text: string) => (rules.lowercase ? text.toLowerCase() : text);
  const idsOf = (text: unknown, name: string): readonly number[] => {
    if (typeof text === "string") return encodeCut(tokenizer, written(text), maxTokens);
    throw new TypeError(`embed: ${name} expected a string, got ${describe(text)}`);
  };
  return {
    async embed(texts, options = {}) {
      const where = "embed";
      const {
        pooling = rules.pooling,
        normalize = rules.normalize,
        ...slices
      } = readFields(where, "options", options, EMBED_OPTIONS);
      expectAlive(where, "model", model);
      const isOne = typeof texts === "string";
      if (!isOne && !Array.isArray(texts))
        throw new TypeError(`${where}: texts expected a text or a list of texts, got ${describe(texts)}`);
      const batch = isOne ? [idsOf(texts, "texts")] : Array.from(texts, (text, i) => idsOf(text, `texts[${i}]`));
      const vectors = await embedIds(batch, { pooling, normalize, ...slices });
      return (isOne ? vectors[0] : vectors) as never;
    },
    async countTokens(input) {
      const where = "countTokens";
      expectAlive(where, "model", model);
      if (typeof input === "string") return tokenizer.encode(written(input)).length;
      const rule = "a text, since the model answers no conversations";
      throw new TypeError(`${where}: input expected ${rule}, got ${describe(input)}`);
    },
  };
}

/** The ids of a text, at most so many: a longer text is cut at its end, before the tokens that the tokenizer puts there. */
function encodeCut(tokenizer: Tokenizer, text: string, most: number): readonly number[] {
  const whole = tokenizer.encode(text);
  if (whole.length <= most) return whole;
  const own = tokenizer.encode(text, { addSpecial: false });
  const isAt = (at: number) => own.every((id, i) => whole[at + i] === id);
  const before = whole.findIndex((_, at) => at <= whole.length - own.length && isAt(at));
  const behind = whole.length - own.length - Math.max(0, before);
  return [...whole.slice(0, Math.max(0, most - behind)), ...whole.slice(whole.length - behind)];
}
