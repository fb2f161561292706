/** Token ids 0..94 are the printable ASCII characters 32..126; 95 is the newline. */
export const vocabulary: string = `${Array.from({ length: 95 }, (_, id) => String.fromCharCode(32 + id)).join("")}\n`;

export const vocabSize: number = vocabulary.length;

export function encode(text: string): number[] {
  return Array.from(text, (character) => {
    const id = vocabulary.indexOf(character);
    if (id < 0)
      throw new RangeError(`encode: text expected printable ASCII or newline, got ${JSON.stringify(character)}`);
    return id;
  });
}

export function decode(tokens: Iterable<number>): string {
  return Array.from(tokens, (id) => vocabulary[id] ?? "?").join("");
}

/** The same as tokenizer.json, in the form of the library tokenizers: each character is a token, and others are refused. */
export const tokenizer = {
  version: "1.0",
  truncation: null,
  padding: null,
  added_tokens: [],
  normalizer: null,
  pre_tokenizer: { type: "Split", pattern: { Regex: "[\\s\\S]" }, behavior: "Isolated", invert: false },
  post_processor: null,
  decoder: { type: "Fuse" },
  model: {
    type: "WordLevel",
    vocab: Object.fromEntries(Array.from(vocabulary, (character, id) => [character, id])),
    unk_token: "",
  },
};
