// What the files of a model are, from those that describe it.

import type { Global } from "../base/util/arguments.ts";
import { describe, HeadwiseError } from "../base/util/errors.ts";
import { parseJson } from "../base/util/strings.ts";
import { type GgufFile, readGgufMetadata } from "../files/gguf.ts";
import { readTexts } from "../files/model-files.ts";
import type { ModelStore } from "../files/store.ts";
import type { Pooling } from "../models/encoder/encode.ts";
import { DECODERS, ENCODERS, GGUF_DECODERS, GGUF_ENCODERS, HALVES } from "../models/families/index.ts";
import { needsOf } from "../models/mixers/mixers.ts";
import { readGgufDecoder } from "../models/spec/read-gguf.ts";
import { readDecoder } from "../models/spec/read-spec.ts";
import type { Place } from "./source.ts";

/** How texts become vectors, as the files say it; undefined where they do not. */
export interface EmbedRules {
  readonly pooling: Pooling | undefined;
  readonly normalize: boolean | undefined;
  /** Tokens of the longest text: what is longer is cut. */
  readonly maxTokens: number | undefined;
  readonly lowercase: boolean;
}

/** What a model is. */
export interface Description {
  readonly kind: "decoder" | "encoder" | "halves";
  /** `model_type` of config.json, or `general.architecture` of a GGUF file. */
  readonly type: string;
  /** Whether its attention is latent, and needs kernels of its own. */
  readonly isLatent: boolean;
  /** Whether its matrices are stored in 16 or 32 bits. */
  readonly isFloat: boolean;
  /** Tokens of the longest sequence that it was made for, where the files say it. */
  readonly longest: number | undefined;
  /** Files with weights. */
  readonly files: number;
  /** Whether the files say that it was made for vectors. */
  readonly isEmbedder: boolean;
  readonly embedding: EmbedRules;
  /** The metadata of a GGUF file. */
  readonly metadata: GgufFile["metadata"] | undefined;
}

type Fields = Readonly<Record<string, unknown>>;

const [CONFIG, MODULES, SENTENCES] = ["config.json", "modules.json", "sentence_bert_config.json"] as const;
const INDEX = "model.safetensors.index.json";

/** Reads what the files say of themselves. */
export async function recognise(
  where: string,
  { source, name }: Place,
  signal: Global<"AbortSignal"> | undefined,
  store: ModelStore,
): Promise<Description> {
  const read = (...names: string[]) => readTexts(where, source, names, readGgufMetadata, signal, store);
  const found = await read(CONFIG, MODULES, SENTENCES, INDEX);
  if ("metadata" in found) return ofGguf(where, found.metadata);
  const config = found.get(CONFIG);
  if (config === undefined) {
    const rule = "a folder with config.json and safetensors, or a GGUF file, whose name ends in .gguf";
    throw new HeadwiseError("BAD_FILE", `${where}: source expected ${rule}, got ${describe(name)} without config.json`);
  }
  const pooling = poolingFile(where, found.get(MODULES));
  const own = pooling === undefined ? undefined : await read(pooling.path);
  const poolingText = own && "metadata" in own ? undefined : own?.get(pooling?.path ?? "");
  const fields = (file: string, text = found.get(file)) => objectOf(where, file, text);
  const sentences = fields(SENTENCES);
  return {
    ...ofConfig(where, config),
    files: new Set(Object.values(Object(fields(INDEX).weight_map))).size || 1,
    isEmbedder: pooling !== undefined,
    embedding: {
      pooling: pooling && poolingOf(where, pooling.path, fields(pooling.path, poolingText)),
      normalize: pooling?.normalize,
      maxTokens: countOf(sentences.max_seq_length),
      lowercase: sentences.do_lower_case === true,
    },
  };
}

function objectOf(where: string, file: string, text = "{}"): Fields {
  return Object(parseJson(where, file, text));
}

const countOf = (value: unknown) =>
  Number.isSafeInteger(value) && (value as number) > 0 ? (value as number) : undefined;

/** The kind of a model with config.json; throws, with the names that are near, for one that is not known. */
function ofConfig(
  where: string,
  config: string,
): Pick<Description, "kind" | "type" | "isLatent" | "isFloat" | "longest" | "metadata"> {
  const whole = objectOf(where, CONFIG, config);
  const known = [whole.model_type, Object(whole.text_config).model_type].find((type) => kindOf(type));
  const kind = kindOf(known);
  if (kind === undefined) {
    readDecoder(where, config, undefined, new Map([...DECODERS, ...ENCODERS, ...HALVES]));
    throw new HeadwiseError("BAD_FILE", `${where}: config.json expected a model that is known, got ${describe(known)}`);
  }
  const text = { ...whole, ...Object(whole.text_config) } as Fields;
  const longest = countOf(text.max_position_embeddings ?? text.n_positions ?? text.max_sequence_length);
  return {
    kind,
    type: known as string,
    isLatent: needsOf(DECODERS.get(known)?.attention) !== undefined,
    isFloat: true,
    longest,
    metadata: undefined,
  };
}

function kindOf(type: unknown): Description["kind"] | undefined {
  if (DECODERS.has(type)) return "decoder";
  if (ENCODERS.has(type)) return "encoder";
  return HALVES.has(type) ? "halves" : undefined;
}

/** Numbers of `general.file_type` of files whose matrices are not quantised: F32, F16, BF16. */
const FLOAT_TYPES: readonly unknown[] = [0, 1, 32];
/** Values of `pooling_type`. */
const POOLINGS: Readonly<Record<number, Pooling>> = { 1: "mean", 2: "cls", 3: "last" };

async function ofGguf(where: string, metadata: GgufFile["metadata"]): Promise<Description> {
  const type = metadata.get("general.architecture");
  const isEncoder = GGUF_ENCODERS.has(type);
  if (!isEncoder && !GGUF_DECODERS.has(type)) {
    const read = () => Promise.reject(new Error("no tensor is read of a model that is not known"));
    await readGgufDecoder(where, { metadata, tensors: new Map(), read }, undefined, GGUF_ENCODERS);
  }
  const pooling = Number(metadata.get(`${type}.pooling_type`) ?? 0);
  return {
    kind: isEncoder ? "encoder" : "decoder",
    type: type as string,
    isLatent: needsOf(GGUF_DECODERS.get(type)?.attention) !== undefined,
    isFloat: FLOAT_TYPES.includes(metadata.get("general.file_type")),
    longest: countOf(metadata.get(`${type}.context_length`)),
    files: Number(metadata.get("split.count") ?? 1) || 1,
    isEmbedder: pooling > 0,
    // Files do not say whether vectors have length 1; the programs that write them give such.
    embedding: { pooling: POOLINGS[pooling], normalize: true, maxTokens: undefined, lowercase: false },
    metadata,
  };
}

/** The file that says how a folder of sentence-transformers pools, and whether it normalises. */
function poolingFile(
  where: string,
  modules: string | undefined,
): { readonly path: string; readonly normalize: boolean } | undefined {
  if (modules === undefined) return undefined;
  const list = parseJson(where, MODULES, modules);
  const found = (Array.isArray(list) ? list : []).map((each) => {
    const { type, path } = Object(each) as { readonly type?: unknown; readonly path?: unknown };
    return { kind: String(type).replace(/^.*\./, ""), path: typeof path === "string" ? path : "" };
  });
  const kinds = found.map(({ kind }) => kind);
  const other = kinds.find((kind, i) => kind !== ["Transformer", "Pooling", "Normalize"][i]);
  if (other !== undefined || kinds.length < 2) {
    const rule = "Transformer and Pooling, and Normalize if there is more";
    throw new HeadwiseError("BAD_FILE", `${where}: ${MODULES} expected ${rule}, got ${kinds.join(", ") || "none"}`);
  }
  return { path: `${found[1]?.path}/config.json`, normalize: kinds.length > 2 };
}

/** Fields of the pooling that are known. */
const POOLING_FIELDS: Readonly<Record<string, Pooling>> = {
  pooling_mode_cls_token: "cls",
  pooling_mode_mean_tokens: "mean",
  pooling_mode_lasttoken: "last",
};
const POOLING_WORDS: Readonly<Record<string, Pooling>> = { cls: "cls", mean: "mean", lasttoken: "last" };

function poolingOf(where: string, path: string, fields: Fields): Pooling {
  const asked = Object.entries(fields).filter(([name, value]) => /^pooling_mode_/.test(name) && value === true);
  const word = fields.pooling_mode;
  const found = typeof word === "string" ? POOLING_WORDS[word] : POOLING_FIELDS[asked[0]?.[0] ?? ""];
  if (found !== undefined && asked.length <= 1) return found;
  const got = asked.length > 0 ? asked.map(([name]) => name).join(", ") : describe(word);
  const rule = `one of ${Object.keys(POOLING_FIELDS).join(", ")}`;
  throw new HeadwiseError("BAD_FILE", `${where}: ${path} expected ${rule}, got ${got}`);
}
