// Text as tokens: every word and every punctuation mark is one.

/** The fields of tokenizer.json that are read here. */
interface TokenizerFile {
  readonly added_tokens: readonly { readonly id: number; readonly content: string }[];
  readonly model: { readonly vocab: Readonly<Record<string, number>> };
}

export interface Words {
  /** <s> and the words of a text. Throws for a word that the model does not know. */
  encode(text: string): number[];
  /** A token as it is written behind others: with a space before it, unless it is a punctuation mark. */
  decode(id: number): string;
  /** The token at the end of a story. */
  readonly end: number;
}

export function readWords(json: string): Words {
  const { model, added_tokens: added } = JSON.parse(json) as TokenizerFile;
  const special = new Map(added.map(({ content, id }) => [content, id]));
  const words = new Map(Object.entries(model.vocab).filter(([word]) => !special.has(word)));
  const texts = new Map(Array.from(words, ([word, id]) => [id, /\p{P}/u.test(word) ? word : ` ${word}`]));
  return {
    encode(text) {
      const ids = (text.toLowerCase().match(/[\p{L}\p{N}]+|[^\s\p{L}\p{N}]/gu) ?? []).map((word) => {
        const id = words.get(word);
        if (id === undefined) throw new RangeError(`the word ${JSON.stringify(word)}`);
        return id;
      });
      return [special.get("<s>") as number, ...ids];
    },
    decode: (id) => texts.get(id) ?? "",
    end: special.get("</s>") as number,
  };
}
