// A single layer of a file, of either kind of attention: read, packed and run.

import { type FileHandle, readdir, stat } from "node:fs/promises";
import { dirname, join } from "node:path";
import {
  type Attention,
  type AttentionConfig,
  type AttentionWeights,
  attend,
  type Build,
  type Cache,
  type CacheFormat,
  type CheckedConfig,
  createAttention,
  createCache,
  type Kernels,
  type PackedFormat,
  type Threads,
  type WeightFormat,
} from "../entries/core.ts";
import { digestFloats } from "../entries/inspect.ts";
import {
  type CheckedLatentConfig,
  createLatentAttention,
  type LatentConfig,
  type LatentWeights,
} from "../entries/latent.ts";
import {
  fileSource,
  fromHfConfig,
  fromHfLatentConfig,
  type GgufFile,
  HeadwiseError,
  type HfConfigOptions,
  type HfPart,
  hfAttentionKind,
  type LayerPlace,
  listLayers,
  openGguf,
  openSafetensors,
  openSafetensorsIndex,
  readAttentionWeights,
  readGgufLatentLayer,
  readGgufLayer,
  readLatentWeights,
  readLayerTensors,
  readPrefix,
  type SafetensorsFile,
} from "../entries/weights.ts";
import { FileError, readCount, UsageError } from "./args.ts";
import { aboutFile, openFile, readText, withFile } from "./files.ts";

// A layer of either kind of attention: of heads with keys and values, or of latents.

/** The rules of a layer. */
type LayerRules =
  | { readonly ofLatents: false; readonly config: AttentionConfig }
  | { readonly ofLatents: true; readonly config: LatentConfig };

/** A layer as its file describes it. */
type Layer =
  | { readonly ofLatents: false; readonly config: AttentionConfig; readonly weights: AttentionWeights }
  | { readonly ofLatents: true; readonly config: LatentConfig; readonly weights: LatentWeights };

/** Reads the rules of a layer from config.json, by its model_type. */
function readRulesOf(command: string, json: string, options: HfConfigOptions): LayerRules {
  if (hfAttentionKind(json) === "heads") return { ofLatents: false, config: fromHfConfig(json, options) };
  const { layer, part = "decoder" } = options;
  if (part !== "decoder") throw new UsageError(`${command}: --part expected decoder for latent attention, got ${part}`);
  return { ofLatents: true, config: fromHfLatentConfig(json, { layer }) };
}

/** Reads the weights of a layer by its rules. */
function readWeights(file: SafetensorsFile, prefix: string, rules: LayerRules): Layer {
  if (rules.ofLatents) return { ...rules, weights: readLatentWeights(file, prefix) };
  return { ...rules, weights: readAttentionWeights(file, prefix, rules.config) };
}

/** Packs the weights of a layer, all in one format or each in the one that it is stored in. */
function packLayer(kernels: Kernels, layer: Layer, weights: WeightFormat | undefined): Attention {
  if (layer.ofLatents) return createLatentAttention(kernels, layer.config, layer.weights, { weights });
  return createAttention(kernels, layer.config, layer.weights, { weights });
}

/** The format of each matrix that is packed. */
function formatsOf({ formats }: Attention, { ofLatents, config }: Layer): Readonly<Record<string, PackedFormat>> {
  // Queries without latents have no matrix to project down.
  const isPacked = (name: string) => !ofLatents || name !== "qDown" || config.qLoraRank !== undefined;
  return Object.fromEntries(Object.entries(formats).filter(([name]) => isPacked(name)));
}

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

/** The option --part. */
export const PARTS = ["encoder", "decoder", "cross"] as const satisfies readonly HfPart[];

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
    const magic = await source.read(0, Math.min(4, source.size));
    if (String.fromCharCode(...magic) === "GGUF") {
      const number = choice.layer ?? 0;
      const layer = await readGguf(await openGguf(source), number).catch((error) => {
        throw aboutLayer(command, error);
      });
      return { path, prefix: `blk.${number}.attn_`, cross: false, layer };
    }
    return { path, ...(await readFrom(command, path, await openSafetensors(source), choice)) };
  });
}

/** Finds and reads a layer of an opened file or index. */
async function readFrom(
  command: string,
  path: string,
  file: Parameters<typeof readLayerTensors>[0],
  choice: LayerChoice,
): Promise<Omit<FileLayer, "path">> {
  const { prefix, rules, cross } = await describeLayer(command, path, listLayers(file), choice);
  const tensors = await readLayerTensors(file, { prefix, kind: rules.ofLatents ? "latents" : "heads" });
  return { prefix, cross, layer: readWeights(tensors, prefix, rules) };
}

/** A layer of a GGUF file, by its architecture. */
async function readGguf(file: GgufFile, layer: number): Promise<Layer> {
  if (listLayers(file).some(({ kind }) => kind === "latents"))
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
    return { path, ...(await readFrom(command, path, await openSafetensorsIndex(json, open), choice)) };
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
  places: readonly LayerPlace[],
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
  const prefixes = prefix === undefined ? prefixesOf(places, layer ?? 0, part) : [prefix];
  const [start, ...more] = prefixes;
  try {
    // Without one prefix, the configuration may be the reason: layers without attention, or parts to choose from.
    const only = start !== undefined && more.length === 0 ? start : undefined;
    const read = readRules(command, json, only, layer, part);
    if (only !== undefined) return { prefix: only, ...read };
  } catch (error) {
    throw aboutFile(command, found, error);
  }
  const shown = prefixes.length > 0 ? prefixes : prefixesOf(places, undefined, undefined);
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
  const { layer: number, part: named } = readPrefix(prefix ?? "");
  if (layer !== undefined && number !== undefined && layer !== number)
    throw new UsageError(`${command}: --layer expected ${number}, as in prefix ${prefix}, got ${layer}`);
  const options = { layer: layer ?? number ?? 0, ...(part && { part }), ...(prefix !== undefined && { prefix }) };
  const cross = part === "cross" || named === "cross";
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
function prefixesOf(places: readonly LayerPlace[], layer: number | undefined, part: HfPart | undefined): string[] {
  const found = places.filter((place) => part === undefined || (place.part ?? part) === part);
  const numbered = found.filter((place) => layer === undefined || place.layer === layer);
  const chosen = numbered.length > 0 ? numbered : found.filter((place) => place.layer === undefined);
  return chosen.map(({ prefix }) => prefix);
}

/** What to run on a layer, and the formats of its weights and cache. */
interface LayerWork {
  /** [tokens, dModel]. */
  readonly x: Float32Array;
  /** Of cross-attention: what keys and values are projected from, [keys, kdim]. */
  readonly keys: Float32Array | undefined;
  /** How many tokens, the last ones, are decoded one by one. */
  readonly decode: number;
  readonly weights: WeightFormat | undefined;
  readonly cache: CacheFormat | undefined;
}

/** Milliseconds of calls: the median and the minimum. */
interface Times {
  readonly ms: number;
  readonly bestMs: number;
}

/** Result of running a layer. */
export interface LayerRun {
  /** Of latent attention, with its further fields. */
  readonly config: CheckedConfig | CheckedLatentConfig;
  /** Of each packed matrix. */
  readonly formats: Readonly<Record<string, PackedFormat>>;
  readonly cacheFormat: CacheFormat;
  readonly weightBytes: number;
  readonly cacheBytes: number;
  readonly memoryBytes: number;
  readonly packMs: number;
  readonly kernels: { readonly build: Build; readonly reason: string; readonly threads: Threads };
  readonly prefill: Times & { readonly tokens: number; readonly firstMs: number };
  /** Undefined if later tokens change earlier rows, or no token is decoded. */
  readonly decode?: Times & {
    readonly tokens: number;
    /** Tokens before the first decoded one. */
    readonly past: number;
    /** Whether every row has the same bits as in the prefill. */
    readonly same: boolean;
    readonly differing: number;
  };
  /** How many keys there are, in cross-attention. */
  readonly keys?: number;
  readonly y: { readonly shape: readonly number[]; readonly digest: string; readonly first: readonly number[] };
}

const MOST_PREFILLS = 20;
const PREFILLS_MS = 1000;
const DECODES = 3;

/**
 * Prefills all tokens, then most of them and the rest one by one, and compares. In cross-attention, every token attends the
 * same keys, which are projected once.
 */
export function runLayer(
  kernels: Kernels,
  layer: Layer,
  { x, keys, decode, weights: format, cache: cacheFormat = "f32" }: LayerWork,
): LayerRun {
  const began = performance.now();
  const attention = packLayer(kernels, layer, format);
  const packMs = performance.now() - began;
  const { dModel, kdim, vdim, causal, window } = attention.config;
  const width = keys === undefined ? dModel : kdim;
  if (kdim !== width || vdim !== width)
    throw new Error(`run: MODEL expected keys and values from the same rows, got ${kdim} and ${vdim} floats of each`);
  const tokens = x.length / dModel;
  const keyTokens = keys && keys.length / kdim;
  const cache = createCache(attention, { maxSeqLen: keyTokens ?? tokens, format: cacheFormat });
  const { y, ...prefill } = timePrefill(attention, cache, x, keys);
  const attendsEarlierOnly = keys !== undefined || causal || window.right === 0;
  const { build, reason, threads } = kernels;
  return {
    config: attention.config,
    formats: formatsOf(attention, layer),
    cacheFormat,
    weightBytes: attention.bytes,
    cacheBytes: cache.bytes,
    packMs,
    kernels: { build, reason, threads },
    prefill: { tokens, ...prefill },
    ...(attendsEarlierOnly && decode > 0 && { decode: timeDecode(attention, cache, x, keys, y, decode) }),
    ...(keyTokens !== undefined && { keys: keyTokens }),
    y: { shape: [tokens, dModel], digest: digestFloats(y), first: Array.from(y.subarray(0, 6)) },
    memoryBytes: kernels.memoryBytes,
  };
}

function timePrefill(attention: Attention, cache: Cache, x: Float32Array, keys: Float32Array | undefined) {
  const times: number[] = [];
  let y = new Float32Array() as Float32Array;
  const end = performance.now() + PREFILLS_MS;
  while (times.length < 2 || (times.length < MOST_PREFILLS && performance.now() < end)) {
    cache.truncate(0);
    const began = performance.now();
    y = attend(attention, x, { cache, keys });
    times.push(performance.now() - began);
  }
  // The first call is slower: the engine optimises the kernels while it runs.
  const [firstMs, ...others] = times as [number, ...number[]];
  return { y, firstMs, ms: median(others), bestMs: Math.min(...others) };
}

function timeDecode(
  attention: Attention,
  cache: Cache,
  x: Float32Array,
  keys: Float32Array | undefined,
  y: Float32Array,
  tokens: number,
): NonNullable<LayerRun["decode"]> {
  const { dModel } = attention.config;
  const row = (t: number) => x.subarray(t * dModel, (t + 1) * dModel);
  const all = x.length / dModel;
  const past = all - tokens;
  // Keys of cross-attention are cached by the first call, of any token.
  const before = keys === undefined ? past : Math.max(past, 1);
  const options = keys === undefined ? { cache } : { cache, append: false };
  const times: number[] = [];
  const differing = new Set<number>();
  for (let pass = 0; pass < DECODES; pass++) {
    cache.truncate(0);
    if (before > 0) attend(attention, x.subarray(0, before * dModel), { cache, keys });
    for (let t = past; t < all; t++) {
      const began = performance.now();
      const one = attend(attention, row(t), options);
      times.push(performance.now() - began);
      if (one.some((value, i) => !Object.is(value, y[t * dModel + i]))) differing.add(t);
    }
  }
  return {
    ...{ tokens, past, ms: median(times), bestMs: Math.min(...times) },
    ...{ same: differing.size === 0, differing: differing.size },
  };
}

/** The median, or the upper one of two middle values. */
export function median(values: readonly number[]): number {
  return values.toSorted((a, b) => a - b)[values.length >> 1] as number;
}
