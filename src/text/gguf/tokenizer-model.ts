/** The parts of tokenizer.json that depend on the kind of vocabulary, and what is added to a text where the file does not say. */
export interface TokenizerModel {
  readonly model: object;
  readonly normalizer: object | null;
  readonly pre_tokenizer: object | null;
  readonly decoder: object;
  readonly addBos: boolean;
  readonly addEos: boolean;
  readonly addSep: boolean;
}
