// What the files of a model are, from those that describe it.

import type { Global } from "../base/util/arguments.ts";
import { describe, HeadwiseError } from "../base/util/errors.ts";
import { parseJson } from "../base/util/strings.ts";
import { type GgufFile, readGgufMetadata } from "../files/gguf.ts";
import { folderOf, type ModelSource, readTexts } from "../files/model-files.ts";
import type { ModelStore } from "../files/store.ts";
import { DECODERS, ENCODERS, GGUF_DECODERS, GGUF_ENCODERS, HALVES } from "../models/families/index.ts";
import { needsOf } from "../models/mixers/mixers.ts";
import { readGgufDecoder } from "../models/spec/read-gguf.ts";
import { readDecoder } from "../models/spec/read-spec.ts";
import { CONFIG, countOf, ggufRecipe, MODULES, RECIPE_FILES, type Recipe, readRecipe } from "../retrieval/recipe.ts";
import type { Place } from "./source.ts";

/** What a model is. */
export interface Description {
  readonly kind: "decoder" | "encoder" | "halves" | "lookup";
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
  /** Whether the files say that it was made for vectors, or for another task on texts that it reads. */
  readonly isReader: boolean;
  /** What its files ask for where it reads texts. */
  readonly recipe: Recipe;
  /** The metadata of a GGUF file. */
  readonly metadata: GgufFile["metadata"] | undefined;
}

type Fields = Readonly<Record<string, unknown>>;

const INDEX = "model.safetensors.index.json";

/** Reads what the files say of themselves. */
export async function recognise(
  where: string,
  { source, name }: Place,
  signal: Global<"AbortSignal"> | undefined,
  store: ModelStore,
): Promise<Description> {
  const read = (from: ModelSource, names: readonly string[]) =>
    readTexts(where, from, names, readGgufMetadata, signal, store);
  const found = await read(source, [...RECIPE_FILES, INDEX]);
  if ("metadata" in found) return ofGguf(where, found.metadata);
  if (!found.has(CONFIG) && !found.has(MODULES)) {
    const rule = "a folder with config.json and safetensors, or a GGUF file, whose name ends in .gguf";
    throw new HeadwiseError("BAD_FILE", `${where}: source expected ${rule}, got ${describe(name)} without config.json`);
  }
  const readFiles = async (folder: string, names: readonly string[]) =>
    (await read(folderOf(source, folder), names)) as ReadonlyMap<string, string>;
  const recipe = await readRecipe(where, found, readFiles);
  if (recipe.base === undefined) return ofLookup(found, recipe);
  const own = recipe.base === "" ? found : await readFiles(recipe.base, [CONFIG, INDEX]);
  const config = own.get(CONFIG) ?? "{}";
  return {
    ...ofConfig(where, config),
    files: new Set(Object.values(Object(objectOf(where, INDEX, own.get(INDEX)).weight_map))).size || 1,
    isReader: found.has(MODULES) || (recipe.gives !== "vector" && recipe.gives !== "fill"),
    recipe,
  };
}

/** Vectors by a table of rows alone. */
const ofLookup = (found: ReadonlyMap<string, string>, recipe: Recipe): Description => ({
  ...{ kind: "lookup", type: recipe.lookup?.kind === "model2vec" ? "model2vec" : "static", isLatent: false },
  ...{ isFloat: true, longest: undefined, files: 1, isReader: found.size > 0, recipe, metadata: undefined },
});

function objectOf(where: string, file: string, text = "{}"): Fields {
  return Object(parseJson(where, file, text));
}

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
async function ofGguf(where: string, metadata: GgufFile["metadata"]): Promise<Description> {
  const type = metadata.get("general.architecture");
  const isEncoder = GGUF_ENCODERS.has(type);
  if (!isEncoder && !GGUF_DECODERS.has(type)) {
    const read = () => Promise.reject(new Error("no tensor is read of a model that is not known"));
    await readGgufDecoder(where, { metadata, tensors: new Map(), read }, undefined, GGUF_ENCODERS);
  }
  return {
    kind: isEncoder ? "encoder" : "decoder",
    type: type as string,
    isLatent: needsOf(GGUF_DECODERS.get(type)?.attention) !== undefined,
    isFloat: FLOAT_TYPES.includes(metadata.get("general.file_type")),
    longest: countOf(metadata.get(`${type}.context_length`)),
    files: Number(metadata.get("split.count") ?? 1) || 1,
    isReader: Number(metadata.get(`${type}.pooling_type`) ?? 0) > 0,
    recipe: ggufRecipe(metadata, isEncoder),
    metadata,
  };
}
