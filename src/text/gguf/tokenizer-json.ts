import type { TokenizerFiles } from "../library-tokenizer.ts";
import { byteLevelModel } from "./byte-level.ts";
import { sentencePieceModel, unigramModel } from "./sentencepiece.ts";
import type { TokenizerModel } from "./tokenizer-model.ts";
import { CONTROL, type Token, UNKNOWN, USER_DEFINED, type Vocabulary } from "./vocabulary.ts";
import { wordPieceModel } from "./word-piece.ts";

/** Tokens that end a turn in known models: files seldom name all that do. */
const ENDS = [
  ...["<|eot_id|>", "<|im_end|>", "<|end|>", "<|return|>", "<|call|>", "<end_of_turn>", "<|endoftext|>", "<|eom_id|>"],
  ...["<EOT>", "[EOT]", "[EOS]", "<|end_of_text|>", "<end_of_utterance>", "<\uFF5Cend\u2581of\u2581sentence\uFF5C>"],
];

/** Special tokens of Phi-3 that do not take the spaces behind them, as its others do. Its files do not say so. */
const PHI3_KEEPS = ["<unk>", "<s>", "<|endoftext|>"];

/** tokenizer.json and what else a tokenizer needs, from a vocabulary. */
export function toTokenizerFiles(where: string, vocabulary: Vocabulary): Omit<TokenizerFiles, "chatTemplate"> {
  const { model, normalizer, pre_tokenizer, decoder, ...adds } = modelOf(where, vocabulary);
  const { tokens, byText } = vocabulary;
  const bos = vocabulary.token("bos_token_id") ?? vocabulary.token("cls_token_id");
  const eos = vocabulary.token("eos_token_id");
  // The name has this spelling in files.
  const sep = vocabulary.token("seperator_token_id");
  const first = (vocabulary.flag("add_bos_token") ?? adds.addBos) ? bos : undefined;
  const last = (vocabulary.flag("add_eos_token") ?? adds.addEos) ? eos : undefined;
  const between = (vocabulary.flag("add_sep_token") ?? adds.addSep) ? (sep ?? eos) : undefined;
  const named = { bos, eos, unk: vocabulary.token("unknown_token_id"), sep, pad: vocabulary.token("padding_token_id") };
  const ends = [eos, vocabulary.token("eot_token_id"), vocabulary.token("eom_token_id")];
  const control = (text: string) => (byText.get(text)?.type === CONTROL ? byText.get(text) : undefined);
  // In the format of gpt-oss, this one ends a part of an answer.
  const known = ENDS.filter((text) => text !== "<|end|>" || !control("<|return|>")).map(control);
  const isPhi3 = /phi-?3/i.test(vocabulary.name);
  const isAdded = ({ type }: Token) => [CONTROL, USER_DEFINED, UNKNOWN].includes(type);
  return {
    json: {
      ...{ version: "1.0", truncation: null, padding: null },
      added_tokens: tokens.filter(isAdded).map(({ id, text, type }) => ({
        ...{ id, content: text, special: type !== USER_DEFINED },
        ...{ single_word: false, lstrip: false, normalized: false },
        rstrip: isPhi3 && !PHI3_KEEPS.includes(text),
      })),
      ...{ normalizer, pre_tokenizer, model, decoder },
      post_processor: template(first, between ?? last),
    },
    config: {},
    vocabSize: tokens.length,
    ends: [...ends, ...known].flatMap((token) => (token ? [token.id] : [])),
    specialTokens: Object.fromEntries(
      Object.entries(named).flatMap(([name, token]) => (token ? [[`${name}_token`, token.text]] : [])),
    ),
  };
}

function modelOf(where: string, vocabulary: Vocabulary): TokenizerModel {
  switch (vocabulary.model) {
    case "gpt2":
      return byteLevelModel(where, vocabulary);
    case "llama":
      return sentencePieceModel(vocabulary);
    case "bert":
      return wordPieceModel(vocabulary);
    case "t5":
      return unigramModel(vocabulary);
    default:
      return vocabulary.fail("model", "gpt2, llama, bert or t5", vocabulary.model);
  }
}

/** What is put around a text: a token before it, and one behind it. */
function template(first: Token | undefined, last: Token | undefined): object {
  const special = (token: Token | undefined) => (token ? [{ SpecialToken: { id: token.text, type_id: 0 } }] : []);
  const around = (id: string) => [...special(first), { Sequence: { id, type_id: 0 } }, ...special(last)];
  const used = [first, last].flatMap((token) => (token ? [token] : []));
  return {
    ...{ type: "TemplateProcessing", single: around("A"), pair: [...around("A"), ...around("B")] },
    special_tokens: Object.fromEntries(used.map(({ text, id }) => [text, { id: text, ids: [id], tokens: [text] }])),
  };
}
