import { type FileHandle, readdir, stat } from "node:fs/promises";
import { dirname, join } from "node:path";
import { fileSource, readRange } from "../files/byte-source.ts";
import { type GgufFile, openGguf } from "../files/gguf/gguf.ts";
import { openSafetensorsIndex } from "../files/safetensors/model-index.ts";
import { openSafetensors } from "../files/safetensors/safetensors.ts";
import { LATENT_ARCHITECTURE } from "../models/gguf/architectures.ts";
import { readGgufLatentLayer } from "../models/gguf/latent-layer.ts";
import { readGgufLayer } from "../models/gguf/layer.ts";
import { latentRoots } from "../models/hf/latent-weights.ts";
import { type HfPart, layerOfPrefix, partOfPrefix } from "../models/hf/part.ts";
import { FAMILIES } from "../models/hf/tensor-names.ts";
import { HeadwiseError } from "../util/errors.ts";
import { FileError, readCount, UsageError } from "./args.ts";
import { aboutFile, interpretFile, openFile, readText, withFile } from "./files.ts";
import { type Layer, type LayerRules, layerNames, readRulesOf, readWeights } from "./layer.ts";

/** The rules of a layer, and where they were found. */
interface Described {
  /** What the names of its tensors begin with. */
  readonly prefix: string;
  readonly rules: LayerRules;
  /** Whether its keys come from an encoder. */
  readonly cross: boolean;
}

/** A layer that was read from a file. */
interface FileLayer extends Omit<Described, "rules"> {
  /** The file itself, also if its folder was given. */
  readonly path: string;
  readonly layer: Layer;
}

/** Which layer of a file, and what the file does not contain. */
interface LayerChoice {
  /** Default: the number in the prefix, else 0. */
  readonly layer?: number;
  /** Which attention of an encoder-decoder model. */
  readonly part?: HfPart;
  readonly prefix?: string;
  /** Path of the config.json; default the one beside the model. */
  readonly config?: string;
}

/** The file to read in the folder of a model: the first of these that exists. */
const IN_FOLDER = ["model.safetensors.index.json", "model.safetensors"];

/**
 * Reads one layer of a GGUF file, a safetensors file, the index of several, or a folder with one of the last two. Only the
 * bytes of that layer are read.
 */
export async function readLayer(command: string, given: string, choice: LayerChoice): Promise<FileLayer> {
  const path = await modelIn(command, given);
  if (path.endsWith(".json")) return readIndexed(command, path, choice);
  return withFile(command, "MODEL", path, async (source) => {
    const magic = await readRange(command, source, 0, Math.min(4, source.size));
    if (String.fromCharCode(...magic) === "GGUF") {
      const number = choice.layer ?? 0;
      const layer = await readGguf(await openGguf(source), number).catch((error) => {
        throw aboutLayer(command, error);
      });
      return { path, prefix: `blk.${number}.attn_`, cross: false, layer };
    }
    const { tensors, metadata, readAll } = await openSafetensors(source);
    const names = [...tensors.keys()];
    const { prefix, rules, cross } = await describeLayer(command, path, names, choice);
    const file = { metadata, tensors: await readAll(namesOf(command, path, names, prefix, rules)) };
    return { path, prefix, cross, layer: readWeights(file, prefix, rules) };
  });
}

/** A layer of a GGUF file, by its architecture. */
async function readGguf(file: GgufFile, layer: number): Promise<Layer> {
  if (file.metadata.get("general.architecture") === LATENT_ARCHITECTURE)
    return { ofLatents: true, ...(await readGgufLatentLayer(file, layer)) };
  return { ofLatents: false, ...(await readGgufLayer(file, layer)) };
}

async function modelIn(command: string, given: string): Promise<string> {
  const inside = await readdir(given).catch(() => undefined);
  if (inside === undefined) return given;
  const name = IN_FOLDER.find((each) => inside.includes(each));
  if (name !== undefined) return join(given, name);
  const got = inside.length === 0 ? "an empty one" : `one with ${inside.sort().slice(0, 6).join(", ")}`;
  throw new HeadwiseError("BAD_FILE", `${command}: MODEL expected a folder with ${IN_FOLDER.join(" or ")}, got ${got}`);
}

/** The names of the layer's own tensors. Others with the same prefix, such as further layers, are not read. */
function namesOf(command: string, path: string, names: readonly string[], prefix: string, rules: LayerRules): string[] {
  const own = interpretFile(command, path, () => layerNames(command, names, prefix, rules));
  return names.filter((name) => own.has(name));
}

/** Reads a layer of a model in several files, by the index: only files with tensors of the layer are opened. */
async function readIndexed(command: string, path: string, choice: LayerChoice): Promise<FileLayer> {
  const json = await readText(command, "MODEL", path);
  const handles: FileHandle[] = [];
  const open = async (file: string) => {
    const handle = await openFile(command, "MODEL", join(dirname(path), file));
    handles.push(handle);
    return fileSource(handle);
  };
  try {
    const { metadata, tensors: files, readAll } = await openSafetensorsIndex(json, open);
    const names = [...files.keys()];
    const { prefix, rules, cross } = await describeLayer(command, path, names, choice);
    const tensors = await readAll(namesOf(command, path, names, prefix, rules));
    return { path, prefix, cross, layer: readWeights({ metadata, tensors }, prefix, rules) };
  } catch (error) {
    // What `open` throws is about its own file.
    const { cause } = Object(error) as { cause?: unknown };
    throw cause instanceof FileError ? cause : aboutFile(command, path, error);
  } finally {
    for (const handle of handles) await handle.close();
  }
}

async function describeLayer(
  command: string,
  path: string,
  names: readonly string[],
  { layer, part, prefix, config }: LayerChoice,
): Promise<Described> {
  const beside = join(dirname(path), "config.json");
  const found =
    config ??
    (await stat(beside).then(
      () => beside,
      () => undefined,
    ));
  if (found === undefined)
    throw new UsageError(
      `${command}: --config expected a file, since there is no config.json beside ${path}, got none`,
    );
  const json = await readText(command, "--config", found);
  const prefixes = prefix === undefined ? findPrefixes(names, layer ?? 0, part) : [prefix];
  const [start, ...more] = prefixes;
  try {
    // Without one prefix, the configuration may be the reason: layers without attention, or parts to choose from.
    const only = start !== undefined && more.length === 0 ? start : undefined;
    const read = readRules(command, json, only, layer, part);
    if (only !== undefined) return { prefix: only, ...read };
  } catch (error) {
    throw aboutFile(command, found, error);
  }
  const shown = prefixes.length > 0 ? prefixes : findPrefixes(names, undefined, undefined);
  const such = shown.slice(0, 6).join(", ");
  throw new UsageError(
    `${command}: --prefix expected the start of the names of the layer${such && `, such as ${such}`}, got none`,
  );
}

const MOST_LAYERS = 2 ** 20;

/** The option --layer, if it is given. */
export function readLayerNumber(command: string, text: string | undefined): number | undefined {
  return text === undefined ? undefined : readCount(command, "--layer", text, 0, MOST_LAYERS);
}

/** An error of the library about the index of the layer as one about the option. Others are returned as they are. */
function aboutLayer(command: string, error: unknown): unknown {
  const [, fault] = /^\w+: layer (expected .*)$/s.exec((error as Error).message) ?? [];
  return fault === undefined ? error : new UsageError(`${command}: --layer ${fault}`);
}

/** The configuration of the layer whose names begin with `prefix`, by its file, and whether it is cross-attention. */
export function readRules(
  command: string,
  json: string,
  prefix: string | undefined,
  layer: number | undefined,
  part: HfPart | undefined,
): Pick<Described, "rules" | "cross"> {
  const number = prefix === undefined ? undefined : layerOfPrefix(prefix);
  if (layer !== undefined && number !== undefined && layer !== number)
    throw new UsageError(`${command}: --layer expected ${number}, as in prefix ${prefix}, got ${layer}`);
  const options = { layer: layer ?? number ?? 0, ...(part && { part }), ...(prefix !== undefined && { prefix }) };
  const cross = part === "cross" || (prefix !== undefined && partOfPrefix(prefix) === "cross");
  try {
    return { rules: readRulesOf(command, json, options), cross };
  } catch (error) {
    throw aboutLayer(command, error);
  }
}

/**
 * The prefixes with the number of the layer, or else those without a number, that can belong to the part. Without a layer, all
 * of them.
 */
function findPrefixes(names: readonly string[], layer: number | undefined, part: HfPart | undefined): string[] {
  const all = new Set(names);
  const roots = new Set<string>();
  for (const { weights } of FAMILIES) {
    const [first = "", ...others] = Object.values(weights);
    for (const name of names) {
      const root = name.slice(0, -first.length);
      const whole = name.endsWith(first) && (root === "" || root.endsWith("."));
      if (whole && others.every((other) => all.has(root + other))) roots.add(root);
    }
  }
  for (const root of latentRoots(names)) roots.add(root);
  const found = [...roots].filter((root) => part === undefined || (partOfPrefix(root) ?? part) === part);
  if (layer === undefined) return found;
  const numbered = found.filter((root) => layerOfPrefix(root) === layer);
  return numbered.length > 0 ? numbered : found.filter((root) => layerOfPrefix(root) === undefined);
}
