/** tokenizer.json of a tokenizer whose token N is the word wN. */
export const wordTokenizer = (size: number): object => ({
  model: {
    type: "WordLevel",
    vocab: Object.fromEntries(Array.from({ length: size }, (_, id) => [`w${id}`, id])),
    unk_token: "w0",
  },
  ...{ added_tokens: [], normalizer: null, post_processor: null, decoder: null },
  pre_tokenizer: { type: "WhitespaceSplit" },
});
