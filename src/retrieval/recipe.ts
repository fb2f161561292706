// What the files of a model ask for: how texts become tokens, and what becomes of the rows that the model gives for them. Folders of
// sentence-transformers say it in modules.json and the files that it names, others by the name of their architecture.

import { describe, HeadwiseError } from "../base/util/errors.ts";
import { parseJson } from "../base/util/strings.ts";
import type { GgufFile } from "../files/gguf.ts";
import type { Pooling } from "../models/encoder/encode.ts";
import { DECODERS } from "../models/families/index.ts";
import type { Activation, ScoreFunction, ScoreRule } from "./scores.ts";

/** What models that read texts can be asked: the methods of TextTasks. */
export type TextTask = "embed" | "embedSparse" | "embedTokens" | "rank" | "classify" | "entities" | "answer" | "fill";
export const TEXT_TASKS: readonly TextTask[] = [
  ...(["embed", "embedSparse", "embedTokens", "rank"] as const),
  ...(["classify", "entities", "answer", "fill"] as const),
];

/** What texts become: a vector, weights of the vocabulary, a vector of each token, scores of labels, and what is read of these. */
type Gives = "vector" | "sparse" | "tokens" | "labels" | "score" | "entities" | "answer" | "fill";

/** A step on rows. Tensors are those of model.safetensors in `folder`, of which "" is the model's own. */
export type Stage =
  | { readonly kind: "pool"; readonly modes: readonly Pooling[] }
  | {
      readonly kind: "dense";
      readonly folder: string;
      readonly weight: string;
      readonly bias?: string | undefined;
      readonly activation: Activation;
      /** What is added to its outputs: the inputs, or their product with this matrix. Default nothing. */
      readonly residual?: "inputs" | { readonly weight: string } | undefined;
      /** Rows of the matrix. Default all. */
      readonly rows?: readonly number[] | undefined;
    }
  | {
      readonly kind: "norm";
      readonly folder: string;
      readonly gain: string;
      readonly bias?: string;
      readonly eps: number;
    }
  | { readonly kind: "unit" }
  /** The head for a task, which the names of the model's tensors tell: `headStages`. */
  | { readonly kind: "head"; readonly of: "sequence" | "token" | "answer" | "gguf" };

/** How texts become tokens. */
interface TextRules {
  /** What is put before texts, by name. */
  readonly prompts: Readonly<Record<string, string>>;
  /** The name of the prompt of texts without a task. */
  readonly defaultPrompt: string | undefined;
  /** Whether a prompt's rows are pooled too. */
  readonly includePrompt: boolean;
  /** Tokens of the longest text, special ones included: what is longer is cut. */
  readonly maxTokens: number | undefined;
  /** Whether texts are written in lower case first. */
  readonly lowercase: boolean;
  /** Whether the types of tokens are given to the model: which of two texts they belong to. */
  readonly types: boolean;
}

/** Vectors of tokens: how queries and documents differ. */
interface LateRules {
  /** Tokens of a query, and whether shorter ones are filled with masks, longer ones cut, and masks attended. */
  readonly query: {
    readonly length: number | undefined;
    readonly fills: boolean;
    readonly longest: number | undefined;
    readonly attends: boolean;
    /** What fills them instead of masks. */
    readonly filler: string | undefined;
  };
  /** Tokens of the longest document. */
  readonly documentLength: number | undefined;
  /** Tokens whose rows are left out, of queries and of documents. */
  readonly skipped: { readonly query: readonly string[]; readonly document: readonly string[] };
  /** Tokens whose rows alone documents keep. */
  readonly kept: readonly number[] | undefined;
}

/** How a text becomes a vector by the rows or weights of its tokens, without a model that runs. */
export interface StaticRules {
  readonly folder: string;
  /** `sparse`: a weight of each token. `model2vec`: unknown tokens are left out, and texts are cut. */
  readonly kind: "plain" | "model2vec" | "sparse";
}

/** How a reranker that writes is asked, and which tokens it answers with. */
interface Question {
  /** By the chat template, with the roles query and document, or as Qwen3-Reranker is. */
  readonly template: "chat" | "qwen";
  /** Tokens of "no" and "yes", whose logits are compared, or of "yes" alone; undefined where a head gives the scores. */
  readonly answers?: readonly [no: number, yes: number] | readonly [yes: number] | undefined;
}

type Answers = NonNullable<Question["answers"]>;

/** What a model's files ask for. */
export interface Recipe {
  readonly gives: Gives;
  /** The folder of the encoder, "" for that of all files; undefined for vectors without an encoder. */
  readonly base: string | undefined;
  /** Rows of tokens, from which those of `lookup` come; undefined for models with an encoder. */
  readonly lookup: StaticRules | undefined;
  /** What queries alone become, where that differs. */
  readonly queryLookup: StaticRules | undefined;
  readonly texts: TextRules;
  readonly stages: readonly Stage[];
  /** Of sparse vectors: how rows become one, and how often log(1 + x) is taken. */
  readonly sparse: { readonly strategy: "max" | "sum"; readonly logs: 1 | 2 } | undefined;
  readonly late: LateRules | undefined;
  /** Floats of vectors that are kept. Default all. */
  readonly dimensions: number | undefined;
  /** How vectors are compared. */
  readonly similarity: ScoreFunction;
  /** Names of labels. */
  readonly labels: readonly string[];
  /** What scores are made of logits by; "softmax" over all labels. */
  readonly scores: ScoreRule;
  /** Of rerankers that are asked in words: how, and the tokens of "no" and "yes", where the files say them. */
  readonly asks: Question | undefined;
  /** The token of padding, which a head that reads the last token leaves out at the end of texts. */
  readonly padding?: number | undefined;
}

type Fields = Readonly<Record<string, unknown>>;
/** Reads texts of files in a folder of the model's. */
type ReadFiles = (folder: string, names: readonly string[]) => Promise<ReadonlyMap<string, string>>;

export const CONFIG = "config.json";
export const MODULES = "modules.json";
const SENTENCES = "config_sentence_transformers.json";
const [TOKENIZER_CONFIG, ROUTER] = ["tokenizer_config.json", "router_config.json"] as const;
const TRANSFORMER = "sentence_bert_config.json";
/** What it is called in some older folders. */
const OLD_TRANSFORMERS: readonly string[] = [
  "roberta",
  "distilbert",
  "camembert",
  "albert",
  "xlm-roberta",
  "xlnet",
].map((type) => `sentence_${type}_config.json`);
/** Files of the model's folder that `readRecipe` looks at. */
export const RECIPE_FILES: readonly string[] = [CONFIG, MODULES, SENTENCES, TOKENIZER_CONFIG, TRANSFORMER];

/** Classes of tokenizers that give no types of tokens by default. */
const PLAIN_TOKENIZERS: readonly unknown[] = ["TokenizersBackend", "PreTrainedTokenizerFast"];

/** A module of modules.json. */
interface Module {
  readonly kind: string;
  readonly folder: string;
}

/** What is collected while modules are read. */
type Draft = { -readonly [Name in keyof Recipe]: Recipe[Name] };

export const countOf = (value: unknown): number | undefined =>
  Number.isSafeInteger(value) && (value as number) > 0 ? (value as number) : undefined;
const textsIn = (value: unknown): string[] =>
  Array.isArray(value) ? value.filter((each): each is string => typeof each === "string") : [];

/** Reads what the files ask for: `found` are those of `RECIPE_FILES` that the model's folder has. */
export async function readRecipe(where: string, found: ReadonlyMap<string, string>, read: ReadFiles): Promise<Recipe> {
  const fieldsIn = (texts: ReadonlyMap<string, string>, file: string): Fields =>
    Object(parseJson(where, file, texts.get(file) ?? "{}"));
  const refusal = (file: string, rule: string, got: unknown) => {
    const text = typeof got === "string" ? got : describe(got);
    return new HeadwiseError("BAD_FILE", `${where}: ${file} expected ${rule}, got ${text}`);
  };
  const refuse = (...given: Parameters<typeof refusal>): never => {
    throw refusal(...given);
  };
  const config = fieldsIn(found, CONFIG);
  const sentences = fieldsIn(found, SENTENCES);
  const draft: Draft = { ...emptyRecipe(config), ...sentenceRules(config, sentences) };
  const readTransformer = async (folder: string): Promise<Fields> => {
    const own = folder === "" ? found : await read(folder, RECIPE_FILES);
    const isOld = found.has(MODULES) && !own.has(TRANSFORMER);
    const named = isOld ? await read(folder, OLD_TRANSFORMERS) : own;
    const fields = fieldsIn(named, OLD_TRANSFORMERS.find((name) => named.has(name)) ?? TRANSFORMER);
    const { model_max_length, model_input_names: inputs, tokenizer_class } = fieldsIn(own, TOKENIZER_CONFIG);
    const longest = countOf(fields.max_seq_length) ?? countOf(model_max_length);
    const types = Array.isArray(inputs)
      ? inputs.includes("token_type_ids")
      : !PLAIN_TOKENIZERS.includes(tokenizer_class);
    draft.base = folder;
    draft.texts = { ...draft.texts, maxTokens: longest, lowercase: fields.do_lower_case === true, types };
    return fields;
  };
  if (!found.has(MODULES)) {
    await readTransformer("");
    draft.stages = [{ kind: "pool", modes: ["mean"] }];
    ofArchitecture(draft, config, refusal);
    return draft;
  }
  const list = parseJson(where, MODULES, found.get(MODULES) as string);
  const modules = moduleList(Array.isArray(list) ? list : refuse(MODULES, "a list of modules", list));
  const configOf = async ({ folder }: Module): Promise<Fields> =>
    fieldsIn(folder === "" ? found : await read(folder, [CONFIG]), CONFIG);
  const stages: Stage[] = [];
  let words: Fields = {};
  const readModule = async (module: Module): Promise<void> => {
    const { kind, folder } = module;
    const file = folder === "" ? CONFIG : `${folder}/${CONFIG}`;
    switch (kind) {
      case "Transformer":
      case "MLMTransformer":
        words = await readTransformer(folder);
        if (words.transformer_task === "sequence-classification" || sentences.model_type === "CrossEncoder")
          Object.assign(draft, sequenceRules(config, sentences, refusal));
        // Texts as messages of a conversation.
        if (Object(words.modality_config).message !== undefined && words.transformer_task !== "text-generation") {
          if (sentences.model_type !== "CrossEncoder")
            refuse(
              TRANSFORMER,
              "no modality message, of which cross encoders alone are supported",
              words.modality_config,
            );
          draft.asks = { template: "chat" };
        }
        return;
      case "Pooling": {
        const fields = await configOf(module);
        stages.push({ kind: "pool", modes: poolingOf(fields) ?? refuse(file, POOLING_RULE, poolingGot(fields)) });
        draft.texts = { ...draft.texts, includePrompt: fields.include_prompt !== false };
        return;
      }
      case "Dense": {
        const { bias, activation_function, use_residual, in_features, out_features } = await configOf(module);
        const activation =
          activationOf(activation_function ?? "Tanh") ?? refuse(file, ACTIVATION_RULE, describe(activation_function));
        const tensors = { weight: "linear.weight", bias: bias === false ? undefined : "linear.bias" };
        const added = in_features === out_features ? "inputs" : { weight: "residual.weight" };
        stages.push({
          kind: "dense",
          folder,
          ...tensors,
          activation,
          ...(use_residual === true && { residual: added }),
        });
        return;
      }
      case "LayerNorm":
        stages.push({ kind: "norm", folder, gain: "norm.weight", bias: "norm.bias", eps: 1e-5 });
        return;
      case "Normalize":
        stages.push({ kind: "unit" });
        return;
      case "Dropout":
        return;
      case "SpladePooling": {
        const { pooling_strategy: strategy = "max", activation_function: activation = "relu" } = await configOf(module);
        if (strategy !== "max" && strategy !== "sum")
          refuse(file, 'pooling_strategy "max" or "sum"', describe(strategy));
        if (activation !== "relu" && activation !== "log1p_relu")
          refuse(file, 'activation_function "relu" or "log1p_relu"', describe(activation));
        draft.gives = "sparse";
        draft.sparse = { strategy: strategy as "max" | "sum", logs: activation === "relu" ? 1 : 2 };
        return;
      }
      case "StaticEmbedding":
        draft.lookup = { folder, kind: found.has(CONFIG) && !found.has(SENTENCES) ? "model2vec" : "plain" };
        return;
      case "MultiVectorMask": {
        const fields = await configOf(module);
        const tasks = fields.skiplist_tasks === undefined ? ["document"] : textsIn(fields.skiplist_tasks);
        draft.gives = "tokens";
        draft.late = {
          ...lateRules(words),
          skipped: {
            query: tasks.includes("query") ? textsIn(fields.skiplist_words) : [],
            document: tasks.includes("document") ? textsIn(fields.skiplist_words) : [],
          },
          kept: Array.isArray(fields.keep_only_token_ids) ? (fields.keep_only_token_ids as number[]) : undefined,
        };
        return;
      }
      case "LogitScore": {
        const { true_token_id: yes, false_token_id: no } = await configOf(module);
        if (!Number.isSafeInteger(yes) || !Number.isSafeInteger(no ?? 0))
          refuse(file, "true_token_id, and false_token_id or null", `${describe(yes)} and ${describe(no)}`);
        draft.gives = "score";
        draft.asks = { template: "chat", answers: [...(no == null ? [] : [no]), yes] as unknown as Answers };
        stages.splice(0, stages.length, { kind: "pool", modes: ["last"] });
        return;
      }
      case "Router":
        await readRoutes(await read(folder, [ROUTER]));
        return;
      default:
        refuse(MODULES, `modules of these kinds: ${KINDS}`, kind);
    }
  };
  /** Queries by a look-up, documents by an encoder, or both in one way. */
  const readRoutes = async (texts: ReadonlyMap<string, string>): Promise<void> => {
    const { types, structure } = fieldsIn(texts, ROUTER);
    const routes = Object.entries(Object(structure) as Record<string, unknown>).map(
      ([name, folders]) =>
        [name, textsIn(folders).map((folder) => ({ folder, kind: kindOf(Object(types)[folder]) }))] as const,
    );
    for (const [name, modules] of routes) {
      const [first, ...rest] = modules;
      if (name === "query" && first?.kind === "SparseStaticEmbedding" && rest.length === 0)
        draft.queryLookup = { folder: first.folder, kind: "sparse" };
      else if (name === "document") for (const module of modules) await readModule(module);
      else
        refuse(
          ROUTER,
          "a route for documents, and one for queries of SparseStaticEmbedding",
          `${name}: ${modules.map(({ kind }) => kind)}`,
        );
    }
  };
  for (const module of modules) await readModule(module);
  if (draft.base === undefined && draft.lookup === undefined)
    refuse(MODULES, "a Transformer or a StaticEmbedding", modules.map(({ kind }) => kind).join(", ") || "none");
  draft.stages = draft.gives === "labels" ? draft.stages : stages;
  if (sentences.model_type === "ColBERT") {
    draft.gives = "tokens";
    draft.late = pylateRules(sentences);
    draft.stages = [...stages, { kind: "unit" }];
  }
  return draft;
}

const KINDS =
  "Transformer, Pooling, Dense, LayerNorm, Normalize, SpladePooling, StaticEmbedding, MultiVectorMask, LogitScore, Router";

/** A model of which the files say nothing else. */
function emptyRecipe(config: Fields): Recipe {
  const texts = {
    prompts: {},
    defaultPrompt: undefined,
    includePrompt: true,
    maxTokens: undefined,
    lowercase: false,
    types: true,
  };
  return {
    ...{ gives: "vector", base: undefined, lookup: undefined, queryLookup: undefined, texts, stages: [] },
    ...{ sparse: undefined, late: undefined, dimensions: undefined, similarity: "cosine", asks: undefined },
    ...{ labels: labelsOf(config), scores: "softmax" },
  };
}

/** What a model can do by what its rows are. */
export function tasksOf({ gives, labels }: Recipe): TextTask[] {
  switch (gives) {
    case "vector":
      return ["embed", "rank"];
    case "sparse":
      return ["embedSparse", "rank"];
    case "tokens":
      return ["embedTokens", "rank"];
    case "labels":
      return labels.length === 1 ? ["rank", "classify"] : ["classify"];
    case "score":
      return ["rank"];
    case "fill":
      return ["fill", "embed", "rank"];
    default:
      return [gives];
  }
}

/** The recipe of vectors by one pooling, as GGUF files and models without further files have it. */
const plainRecipe = (pooling: Pooling | undefined, isUnit: boolean, stages: readonly Stage[] = []): Recipe => ({
  ...emptyRecipe({}),
  base: "",
  stages: [{ kind: "pool", modes: [pooling ?? "mean"] }, ...stages, ...(isUnit ? [{ kind: "unit" } as const] : [])],
});

const SIMILARITIES: readonly unknown[] = ["cosine", "dot", "euclidean", "manhattan"];

/** What config_sentence_transformers.json says of texts and vectors. */
function sentenceRules(config: Fields, fields: Fields): Partial<Recipe> {
  const { prompts, default_prompt_name: name, truncate_dim, similarity_fn_name: similarity } = fields;
  const named = Object.entries(Object(prompts) as Fields).filter(([, text]) => typeof text === "string");
  const { query_prefix, document_prefix } = fields;
  const prefixes = {
    ...(query_prefix ? { query: query_prefix } : {}),
    ...(document_prefix ? { document: document_prefix } : {}),
  };
  return {
    texts: {
      ...emptyRecipe(config).texts,
      prompts: { ...Object.fromEntries(named), ...prefixes } as Record<string, string>,
      defaultPrompt: typeof name === "string" ? name : undefined,
    },
    dimensions: countOf(truncate_dim),
    similarity: SIMILARITIES.includes(similarity) ? (similarity as ScoreFunction) : "cosine",
  };
}

/** Modules in order; "." is the folder of all files. */
function moduleList(list: readonly unknown[]): Module[] {
  return list.map((each) => {
    const { type, path } = Object(each) as Fields;
    return { kind: kindOf(type), folder: typeof path === "string" ? path.replace(/^\.?\/?|\/$/g, "") : "" };
  });
}

const kindOf = (type: unknown) => String(type).replace(/^.*\./, "");

// Pooling.

/** Words of newer files, and what the flags of older ones begin with. */
const POOLING_WORDS: Readonly<Record<string, Pooling>> = {
  cls: "cls",
  max: "max",
  mean: "mean",
  mean_sqrt_len_tokens: "sqrt",
  mean_sqrt_len: "sqrt",
  weightedmean: "weighted",
  lasttoken: "last",
};
const FLAG = /^pooling_mode_(.*?)(?:_tokens?)?$/;
const POOLING_RULE = `pooling modes that are known: ${Object.keys(POOLING_WORDS).join(", ")}`;

const flagsOf = (fields: Fields): string[] =>
  Object.entries(fields).flatMap(([name, value]) => {
    const [, word = ""] = FLAG.exec(name) ?? [];
    return value === true && word !== "" ? [word] : [];
  });

/** The modes in the order in which they stand side by side, the mean if the file names none; undefined unless all are known. */
function poolingOf(fields: Fields): Pooling[] | undefined {
  const word = fields.pooling_mode ?? undefined;
  const order = Object.keys(POOLING_WORDS);
  const flags = flagsOf(fields).sort((a, b) => order.indexOf(a) - order.indexOf(b));
  const given = word !== undefined ? [word].flat() : flags.length > 0 ? flags : ["mean"];
  const modes = given.map((mode) => POOLING_WORDS[String(mode)]);
  return modes.length > 0 && !modes.includes(undefined) ? (modes as Pooling[]) : undefined;
}

const poolingGot = (fields: Fields) => describe(fields.pooling_mode ?? flagsOf(fields));

// Activations.

const ACTIVATIONS: Readonly<Record<string, Activation>> = {
  Identity: "identity",
  Tanh: "tanh",
  ReLU: "relu",
  GELU: "gelu",
  Sigmoid: "sigmoid",
  SiLU: "silu",
};
const ACTIVATION_RULE = `an activation_function that is known: ${Object.keys(ACTIVATIONS).join(", ")}`;

/** The activation of the name of a class, such as "torch.nn.modules.activation.Tanh". */
const activationOf = (name: unknown): Activation | undefined => ACTIVATIONS[kindOf(name)];

/** Functions of cross encoders. */
const SCORE_RULES: Readonly<Record<string, ScoreRule>> = {
  Identity: "identity",
  Sigmoid: "sigmoid",
  Softmax: "softmax",
  Tanh: "tanh",
  ReLU: "relu",
};
const SCORE_RULE = `an activation_fn that is known: ${Object.keys(SCORE_RULES).join(", ")}`;

// Labels.

function labelsOf(config: Fields): string[] {
  const { id2label } = config;
  const named = Object.entries(Object(id2label) as Fields).sort(([a], [b]) => Number(a) - Number(b));
  return named.map(([, name]) => String(name));
}

/** A head for a sequence, and how its logits become scores. */
function sequenceRules(
  config: Fields,
  sentences: Fields,
  refusal: (file: string, rule: string, got: unknown) => HeadwiseError,
): Partial<Recipe> {
  const labels = labelsOf(config);
  const { problem_type: problem, classifier_pooling: pooling } = config;
  const own = Object(config.sentence_transformers) as Fields;
  const named = sentences.activation_fn ?? own.activation_fn ?? config.sbert_ce_default_activation_function;
  const isOne = labels.length === 1;
  const isCross = sentences.model_type === "CrossEncoder" || named !== undefined;
  // A cross encoder of one label has a sigmoid, of more nothing, unless a function is named.
  const crossed = named === undefined ? (isOne ? "sigmoid" : "identity") : SCORE_RULES[kindOf(named)];
  if (crossed === undefined) throw refusal(SENTENCES, SCORE_RULE, describe(named));
  const plain =
    problem === "regression" ? "identity" : problem === "multi_label_classification" || isOne ? "sigmoid" : "softmax";
  const mode = pooling === "mean" || pooling === "late" ? "mean" : isDecoder(config) ? "last" : "cls";
  const pool: Stage = { kind: "pool", modes: [mode] };
  const head: Stage = { kind: "head", of: "sequence" };
  return {
    gives: "labels",
    stages: pooling === "late" ? [head, pool] : [pool, head],
    scores: isCross ? crossed : plain,
    padding: mode === "last" && Number.isSafeInteger(config.pad_token_id) ? (config.pad_token_id as number) : undefined,
  };
}

/** Whether the head for sequences reads the last token: each has read those before it alone. */
const isDecoder = ({ model_type, use_bidirectional_attention }: Fields) =>
  DECODERS.has(model_type) && use_bidirectional_attention !== true;

/** What a model without modules.json was made for. */
function ofArchitecture(draft: Draft, config: Fields, refusal: Parameters<typeof sequenceRules>[2]): void {
  const [architecture = ""] = textsIn(config.architectures);
  if (config.model_type === "model2vec" || architecture === "StaticModel") {
    draft.base = undefined;
    draft.lookup = { folder: "", kind: "model2vec" };
    draft.stages = config.normalize === true ? [{ kind: "unit" }] : [];
    return;
  }
  const head = (gives: Gives, of: "token" | "answer") =>
    Object.assign(draft, { gives, stages: [{ kind: "head", of }] satisfies Stage[] });
  if (/ForSequenceClassification$/.test(architecture)) Object.assign(draft, sequenceRules(config, {}, refusal));
  else if (/ForTokenClassification$/.test(architecture)) head("entities", "token");
  else if (/ForQuestionAnswering$/.test(architecture)) head("answer", "answer");
  else if (/ForMaskedLM$/.test(architecture)) draft.gives = "fill";
}

/** A recipe for a task that the files do not name: vectors of any model, ranks by one that writes "yes" or "no". */
export function recipeFor(
  { recipe, kind, isReader }: { readonly recipe: Recipe; readonly kind: string; readonly isReader: boolean },
  task: string | undefined,
  answersOf: () => Question["answers"],
): Recipe {
  const isVector = recipe.gives === "vector";
  if (task === "embed" && !isVector)
    return { ...recipe, ...plainRecipe(undefined, false), base: recipe.base, texts: recipe.texts };
  if (task !== "rank" || kind !== "decoder" || isReader) return recipe;
  const asks: Question = { template: "qwen", answers: answersOf() };
  return { ...recipe, gives: "score", asks, scores: "sigmoid", stages: [{ kind: "pool", modes: ["last"] }] };
}

// Vectors of tokens.

function lateRules(words: Fields): LateRules {
  const { query_length, document_length } = words;
  const { strategy, attend, length, token } = Object(words.query_expansion) as Fields;
  const fills = strategy === "fixed" || strategy === "min";
  return {
    query: {
      length: countOf(length) ?? countOf(query_length),
      fills,
      // "min" fills queries alone that are shorter.
      longest: strategy === "min" ? countOf(query_length) : (countOf(length) ?? countOf(query_length)),
      attends: attend === true,
      filler: typeof token === "string" ? token : undefined,
    },
    documentLength: countOf(document_length),
    skipped: { query: [], document: [] },
    kept: undefined,
  };
}

function pylateRules(fields: Fields): LateRules {
  const { query_length, document_length, do_query_expansion, attend_to_expansion_tokens, skiplist_words } = fields;
  const fills = do_query_expansion !== false;
  const words = textsIn(skiplist_words);
  const length = countOf(query_length) ?? 32;
  return {
    query: { length, longest: length, fills, attends: attend_to_expansion_tokens === true, filler: undefined },
    documentLength: countOf(document_length) ?? 180,
    // Without a list, or with an empty one, these are the marks of ASCII.
    skipped: { query: [], document: words.length > 0 ? words : Array.from("!\"#$%&'()*+,-./:;<=>?@[\\]^_`{|}~") },
    kept: undefined,
  };
}

// GGUF files.

/** Values of `pooling_type`; 4 is for ranks. */
const POOLING_TYPES: Readonly<Record<number, Pooling>> = { 1: "mean", 2: "cls", 3: "last" };

/** What a GGUF file asks for: vectors, by the mean where it says nothing, or ranks. */
export function ggufRecipe(metadata: GgufFile["metadata"], isEncoder: boolean): Recipe {
  const type = metadata.get("general.architecture");
  const pooling = Number(metadata.get(`${type}.pooling_type`) ?? 0);
  const head: Stage = { kind: "head", of: "gguf" };
  if (pooling !== 4) return plainRecipe(POOLING_TYPES[pooling], true, [head]);
  const recipe = plainRecipe(isEncoder ? "cls" : "last", false, [head]);
  const named = textsIn(metadata.get(`${type}.classifier.output_labels`));
  const labels = named.length > 0 ? named : ["LABEL_0"];
  if (isEncoder) return { ...recipe, gives: "labels", labels, scores: labels.length > 1 ? "softmax" : "sigmoid" };
  return { ...recipe, gives: "score", asks: { template: "qwen" }, scores: "sigmoid" };
}
