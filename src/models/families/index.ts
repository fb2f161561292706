// The families of models: one line in each list that a family has a part in. Lists are apart, so that a bundler leaves whole models
// out of programs that read single layers, and encoders out of those that read decoders.

import * as afmoe from "./afmoe.ts";
import * as apertus from "./apertus.ts";
import * as arcee from "./arcee.ts";
import type { AttentionRules, LatentRules } from "./attention-rules.ts";
import * as bart from "./bart.ts";
import * as bert from "./bert.ts";
import * as bitnet from "./bitnet.ts";
import * as bloom from "./bloom.ts";
import * as cohere from "./cohere.ts";
import * as deepseek from "./deepseek.ts";
import * as diffllama from "./diffllama.ts";
import * as dots1 from "./dots1.ts";
import * as ernie from "./ernie.ts";
import * as exaone from "./exaone.ts";
import * as falcon from "./falcon.ts";
import * as falconH1 from "./falcon-h1.ts";
import type { Family } from "./family.ts";
import * as gemma from "./gemma.ts";
import * as glm from "./glm.ts";
import * as gptNeo from "./gpt-neo.ts";
import * as gptNeox from "./gpt-neox.ts";
import * as gptOss from "./gpt-oss.ts";
import * as gpt2 from "./gpt2.ts";
import * as granite from "./granite.ts";
import * as helium from "./helium.ts";
import * as hunyuan from "./hunyuan.ts";
import * as internlm from "./internlm.ts";
import * as jamba from "./jamba.ts";
import * as kimiLinear from "./kimi-linear.ts";
import * as lfm2 from "./lfm2.ts";
import * as llama from "./llama.ts";
import * as llama4 from "./llama4.ts";
import * as mamba from "./mamba.ts";
import * as minicpm3 from "./minicpm3.ts";
import * as minimax from "./minimax.ts";
import * as mistral from "./mistral.ts";
import * as modernbert from "./modernbert.ts";
import * as mpt from "./mpt.ts";
import * as nanochat from "./nanochat.ts";
import * as nemotron from "./nemotron.ts";
import * as nemotronH from "./nemotron-h.ts";
import * as nomicBert from "./nomic-bert.ts";
import * as olmo from "./olmo.ts";
import * as olmoHybrid from "./olmo-hybrid.ts";
import * as opt from "./opt.ts";
import * as otherLayers from "./other-layers.ts";
import * as persimmon from "./persimmon.ts";
import * as phi from "./phi.ts";
import * as qwen from "./qwen.ts";
import * as qwenNext from "./qwen-next.ts";
import * as recurrentGemma from "./recurrent-gemma.ts";
import * as seedOss from "./seed-oss.ts";
import * as smollm3 from "./smollm3.ts";
import * as stablelm from "./stablelm.ts";
import * as starcoder2 from "./starcoder2.ts";
import * as t5 from "./t5.ts";
import * as xglm from "./xglm.ts";
import * as youtu from "./youtu.ts";

/** Attention with keys and values of heads. */
const layerLists = (): (readonly AttentionRules[])[] => [
  apertus.layers,
  arcee.layers,
  bart.layers,
  bert.layers,
  bloom.layers,
  cohere.layers,
  dots1.layers,
  ernie.layers,
  exaone.layers,
  falcon.layers,
  gemma.layers,
  glm.layers,
  gpt2.layers,
  gptNeo.layers,
  gptNeox.layers,
  gptOss.layers,
  granite.layers,
  lfm2.layers,
  helium.layers,
  internlm.layers,
  llama.layers,
  minimax.layers,
  mistral.layers,
  modernbert.layers,
  mpt.layers,
  nemotron.layers,
  nomicBert.layers,
  olmo.layers,
  opt.layers,
  otherLayers.layers,
  phi.layers,
  qwen.layers,
  seedOss.layers,
  smollm3.layers,
  stablelm.layers,
  starcoder2.layers,
  t5.layers,
  xglm.layers,
];

/** Latent attention. */
const latentLists = (): (readonly LatentRules[])[] => [deepseek.latents, glm.latents, youtu.latents];

/** Whole decoders. */
const decoderLists = (): (readonly Family[])[] => [
  afmoe.decoders(),
  apertus.decoders(),
  arcee.decoders(),
  bitnet.decoders(),
  bloom.decoders(),
  cohere.decoders(),
  deepseek.decoders(),
  diffllama.decoders(),
  dots1.decoders(),
  ernie.decoders(),
  exaone.decoders(),
  falcon.decoders(),
  falconH1.decoders(),
  gemma.decoders(),
  glm.decoders(),
  gpt2.decoders(),
  gptNeo.decoders(),
  gptNeox.decoders(),
  gptOss.decoders(),
  granite.decoders(),
  lfm2.decoders(),
  llama.decoders(),
  llama4.decoders(),
  mamba.decoders(),
  nemotronH.decoders(),
  helium.decoders(),
  hunyuan.decoders(),
  internlm.decoders(),
  jamba.decoders(),
  kimiLinear.decoders(),
  minicpm3.decoders(),
  minimax.decoders(),
  mistral.decoders(),
  mpt.decoders(),
  nanochat.decoders(),
  nemotron.decoders(),
  olmo.decoders(),
  olmoHybrid.decoders(),
  opt.decoders(),
  persimmon.decoders(),
  phi.decoders(),
  qwen.decoders(),
  qwenNext.decoders(),
  recurrentGemma.decoders(),
  seedOss.decoders(),
  smollm3.decoders(),
  stablelm.decoders(),
  starcoder2.decoders(),
  xglm.decoders(),
  youtu.decoders(),
];

/** Whole encoders. */
const encoderLists = (): (readonly Family[])[] => [
  bert.encoders(),
  gemma.encoders(),
  modernbert.encoders(),
  nomicBert.encoders(),
];

/** Models with two halves. */
const halvesLists = (): (readonly Family[])[] => [bart.halves(), t5.halves()];

/** Records by name. */
type Table<Entry> = ReadonlyMap<unknown, Entry>;

/** What stands in lists, by each of its names, in their order. */
function tableOf<Entry>(
  lists: () => readonly (readonly Entry[])[],
  namesOf: (entry: Entry) => string | undefined,
): Table<Entry> {
  const named = lists().flatMap((list) =>
    list.flatMap((entry) => (namesOf(entry)?.split(" ") ?? []).map((name): [string, Entry] => [name, entry])),
  );
  return new Map(named.sort(([a], [b]) => (a < b ? -1 : 1)));
}

type Named = AttentionRules | LatentRules;
const typesOf = ({ types }: Named) => types;
const architecturesOf = ({ types, gguf }: Named) => gguf && (gguf.names ?? types);
const typesOfWhole = ({ attention, gguf }: Family) => (gguf?.alone ? undefined : attention.types);
const architecturesOfWhole = ({ attention, gguf }: Family) => gguf && architecturesOf(attention);

/** The attention of single layers by `model_type`, and by `general.architecture` of GGUF files. */
export const LAYERS: Table<AttentionRules> = /* @__PURE__ */ tableOf(layerLists, typesOf);
export const GGUF_LAYERS: Table<AttentionRules> = /* @__PURE__ */ tableOf(layerLists, architecturesOf);
export const LATENTS: Table<LatentRules> = /* @__PURE__ */ tableOf(latentLists, typesOf);
export const GGUF_LATENTS: Table<LatentRules> = /* @__PURE__ */ tableOf(latentLists, architecturesOf);

/** Whole models by name. */
export type Families = Table<Family>;

/** Whole models by `model_type`, and by `general.architecture`. */
export const DECODERS: Families = /* @__PURE__ */ tableOf(decoderLists, typesOfWhole);
export const ENCODERS: Families = /* @__PURE__ */ tableOf(encoderLists, typesOfWhole);
export const HALVES: Families = /* @__PURE__ */ tableOf(halvesLists, typesOfWhole);
export const GGUF_DECODERS: Families = /* @__PURE__ */ tableOf(decoderLists, architecturesOfWhole);
export const GGUF_ENCODERS: Families = /* @__PURE__ */ tableOf(encoderLists, architecturesOfWhole);
