import { type ModelFolder, type ModelSource, openModelFolder } from "../files/model-folder.ts";
import type { WeightFormat } from "../linear/formats.ts";
import { type LinearPlace, modeOf, type PackedLinear } from "../linear/linear.ts";
import { expectActivations, expectFormatLoaded } from "../linear/options.ts";
import { stagedFloats } from "../linear/pack.ts";
import { checkTensors, findRoot, resolveHead } from "../models/decoder/check-tensors.ts";
import { type Decoder, readDecoder } from "../models/decoder/read-spec.ts";
import { expectFunction, expectInt, expectSignal, readFields } from "../util/arguments.ts";
import { describe, HeadwiseError } from "../util/errors.ts";
import type { Global } from "../util/global.ts";
import { makeHandle } from "../util/lifetime.ts";
import { expectKernels, type Kernels } from "../wasm/kernels.ts";
import { expectFit } from "./fit.ts";
import { type BlockContext, loadBlock, loadNorm, mlpFormats, ownBlock } from "./load-blocks.ts";
import type { Model, ModelWeights } from "./model.ts";
import { type ModelFormats, readFormats } from "./model-formats.ts";
import type { PackedNorm, PackedTable } from "./packed.ts";
import { type EndFormats, linearsOf, type ModelPlaces, type NormPlace, placeModel } from "./places.ts";
import { planSpec } from "./plan-model.ts";
import { reserve } from "./reserve.ts";
import { WeightReader } from "./weight-reader.ts";

/** Options of `loadModel`. */
export interface LoadModelOptions {
  /**
   * Formats of the matrices: one for all, or one each for attention, MLPs (experts among them), and the table of tokens, which
   * is often the head too. Default those that they are stored in, and float32 instead of 16-bit floats for kernels that were
   * loaded without `quantized`.
   */
  readonly weights?: WeightFormat | ModelFormats;
  /**
   * Tokens of the longest sequence that will be run. It decides between the two lists of factors of LongRoPE (Phi-3), and is
   * the default of sessions. Default what config.json says, of which sessions by default have at most 4096.
   */
  readonly maxSeqLen?: number;
  /**
   * Bytes of linear memory that the model, one session of `maxSeqLen` tokens and its calls may take together. If they take more,
   * nothing is read of the weights, and the error says what would fit. Default none: loading goes on until memory is full.
   */
  readonly maxBytes?: number;
  /** As `WeightOptions.activations`. Default "exact". */
  readonly activations?: "exact" | "fast";
  /** Called after each read with the bytes that were read, and all that will be: those of the tensors that the model has. */
  readonly onProgress?: (done: number, all: number) => void;
  /** Ends loading: it rejects with the signal's reason, and all memory is freed. */
  readonly signal?: Global<"AbortSignal">;
}

const OPTIONS = ["weights", "maxSeqLen", "maxBytes", "activations", "onProgress", "signal"] as const;

/**
 * Loads a whole decoder: reads config.json and the tensors of safetensors files one after the other, and packs each as it comes.
 * A type of model or a field of config.json that is not known is refused by name, as are tensors that are missing, unexpected or
 * of another shape, all in one error. Masks and tables that follow from config.json are not read, nor is a head where
 * `tie_word_embeddings` says that it is the table of tokens.
 * @param source The path of a folder (on hosts with a file system) or its URL; the files; or a function that opens a file by name.
 * @throws TypeError or RangeError naming the argument. HeadwiseError `BAD_FILE`, `OUT_OF_MEMORY`, `RELEASED`, `NO_MODELS`,
 * `NO_QUANTIZED`, `NO_LATENT`, or the signal's reason. All memory is freed then.
 * @example
 * import { loadKernels } from "headwise";
 * import { loadModel, models } from "headwise/models";
 * import { writeSafetensors } from "headwise/weights";
 * const tensor = (...shape: number[]) => ({ data: new Float32Array(shape.reduce((a, b) => a * b)).fill(0.1), shape });
 * const [layer, mlp] = ["model.layers.0.", { gate_proj: [16, 8], up_proj: [16, 8], down_proj: [8, 16] }];
 * const bytes = writeSafetensors({
 *   "model.embed_tokens.weight": tensor(32, 8), "model.norm.weight": tensor(8),
 *   [`${layer}input_layernorm.weight`]: tensor(8), [`${layer}post_attention_layernorm.weight`]: tensor(8),
 *   ...Object.fromEntries(["q", "k", "v", "o"].map((name) => [`${layer}self_attn.${name}_proj.weight`, tensor(8, 8)])),
 *   ...Object.fromEntries(Object.entries(mlp).map(([name, shape]) => [`${layer}mlp.${name}.weight`, tensor(...shape)])),
 * });
 * const config = { model_type: "llama", hidden_size: 8, num_attention_heads: 2, num_hidden_layers: 1, intermediate_size: 16,
 *   vocab_size: 32 };
 * const files = new Map([["config.json", new TextEncoder().encode(JSON.stringify(config))], ["model.safetensors", bytes]]);
 * const kernels = await loadKernels({ models });
 * using model = await loadModel(kernels, (name) => files.get(name));
 * console.log(model.type, model.layers, model.vocabSize); // llama 1 32
 */
export async function loadModel(kernels: Kernels, source: ModelSource, options: LoadModelOptions = {}): Promise<Model> {
  return loadWith("loadModel", kernels, source, options, readDecoder);
}

/** `loadModel` under the name of the public function `where`: `read` reads config.json, and `open` opens the files. */
export async function loadWith(
  where: string,
  kernels: Kernels,
  source: ModelSource,
  options: LoadModelOptions,
  read: typeof readDecoder,
  open: typeof openModelFolder = openModelFolder,
): Promise<Model> {
  expectKernels(where, kernels);
  const given = readFields(where, "options", options, OPTIONS);
  const { weights, maxSeqLen, maxBytes, activations, onProgress, signal } = given;
  if (maxSeqLen !== undefined) expectInt(where, "options.maxSeqLen", maxSeqLen);
  if (maxBytes !== undefined) expectInt(where, "options.maxBytes", maxBytes, 0, Number.MAX_SAFE_INTEGER);
  const formats = readFormats(where, weights);
  const fast = expectActivations(where, "options.activations", activations);
  if (onProgress !== undefined) expectFunction(where, "onProgress", onProgress);
  if (signal !== undefined) expectSignal(where, signal);
  expectModelKernels(where, kernels, formats);
  const expectActive = () => {
    signal?.throwIfAborted();
    expectKernels(where, kernels);
  };
  expectActive();
  let folder: ModelFolder | undefined;
  try {
    folder = await open(where, source, signal);
    const decoder = resolveHead(read(where, folder.config, maxSeqLen), folder.tensors);
    expectLatent(where, kernels, decoder);
    const tensors = checkTensors(where, decoder, folder.tensors);
    const all = [...tensors.values()].reduce((sum, { bytes }) => sum + bytes, 0);
    let done = 0;
    const onRead = (bytes: number) => {
      done += bytes;
      onProgress?.(done, all);
    };
    const layout = decoder.family.layout ?? "out-in";
    const { file, pieceBytes } = folder;
    const reader = new WeightReader(tensors, file, { where, kernels, layout, pieceBytes, expectActive, onRead });
    if (maxBytes !== undefined) {
      const { spec } = decoder;
      expectFit(
        where,
        spec,
        { weights: storedFormats(reader, decoder, formats), maxSeqLen: spec.sessionLength },
        maxBytes,
      );
    }
    return await packModel(where, kernels, decoder, reader, formats, fast);
  } catch (error) {
    // A request that the signal ended fails with an error of its own.
    signal?.throwIfAborted();
    throw error;
  } finally {
    await folder?.close();
  }
}

/** Throws unless `kernels` can run whole decoders with these formats. */
export function expectModelKernels(where: string, kernels: Kernels, formats: ModelFormats): void {
  if (!kernels.models)
    throw new HeadwiseError(
      "NO_MODELS",
      `${where}: kernels expected ones that were loaded with { models }, which headwise/models exports, got kernels without it`,
    );
  for (const [part, format] of Object.entries(formats)) expectFormatLoaded(where, kernels.quantized, part, format);
}

function expectLatent(where: string, kernels: Kernels, { spec }: Decoder): void {
  if (kernels.latent || !spec.blocks.some(({ attention }) => attention.kind === "latent")) return;
  const rule = "ones that were loaded with { latent }, which headwise/latent exports";
  const text = `${where}: kernels expected ${rule}, for a model of type ${describe(spec.type)}, got kernels without it`;
  throw new HeadwiseError("NO_LATENT", text);
}

async function packModel(
  where: string,
  kernels: Kernels,
  decoder: Decoder,
  reader: WeightReader,
  formats: ModelFormats,
  fast: boolean,
): Promise<Model> {
  const { spec, names, family } = decoder;
  const { memory } = kernels;
  const owned: BlockContext["owned"] = [];
  const free = () => {
    for (const each of owned.splice(0)) each.release();
  };
  const staging = memory.allocate(where, 4 * mostStaged(decoder));
  try {
    const context: BlockContext = {
      ...{ kernels, reader, names, family, where, owned, staging, dModel: spec.dModel },
      formats: { attention: formats.attention, mlp: formats.mlp },
      activations: fast ? "fast" : "exact",
    };
    const root = findRoot(decoder, reader.tensors);
    const layerAt = (i: number) => `${root}${names.layers}.${i}.`;
    const places = placeModel(spec, endFormats(reader, decoder, root, formats.embed), (layer, which) =>
      mlpFormats(context, layerAt(layer), which),
    );
    reserve(where, memory, planSpec(where, spec, { weights: storedFormats(reader, decoder, formats) }).weights);
    const ends = await loadEnds(context, decoder, places, root);
    const blocks: ModelWeights["blocks"][number][] = [];
    for (const [i, block] of spec.blocks.entries())
      blocks.push(await loadBlock(context, block, places.blocks[i] as ModelPlaces["blocks"][number], layerAt(i)));
    const outer = [...Object.values(places.ends), places.ends.transform?.dense];
    const linears = [...outer, ...places.blocks.flatMap(({ place }) => linearsOf(place))];
    const used = linears.flatMap((each) => (each && "format" in each ? [each.format] : []));
    const weights: ModelWeights = { ...ends, blocks, mode: modeOf(kernels, used, fast) };
    memory.free(staging);
    const parts = {
      ...{ kernels, type: spec.type, dModel: spec.dModel, vocabSize: spec.vocabSize },
      layers: (spec.order ?? blocks).length,
      ...{ maxSeqLen: spec.maxSeqLen, bytes: owned.reduce((sum, { bytes }) => sum + bytes, 0), spec, places, weights },
    };
    const release = () => {
      if (!kernels.released) free();
    };
    return makeHandle<Model>(where.slice("load".length), where, parts, ["spec", "places", "weights"], release);
  } catch (error) {
    if (!kernels.released) {
      memory.free(staging);
      free();
    }
    throw error;
  }
}

/** Floats of staging that the largest matrix outside attention needs. */
function mostStaged({ spec: { dModel, vocabSize, embed, blocks } }: Decoder): number {
  const dims = blocks.flatMap(({ mlp }) =>
    mlp?.kind === "moe" ? [mlp.expert.dim, mlp.shared?.mlp.dim ?? 1, mlp.experts] : [mlp?.dim ?? 1],
  );
  const sizes = [
    { n: vocabSize, k: embed.dim },
    { n: Math.max(embed.positions?.rows ?? 1, embed.types ?? 1), k: dModel },
    { n: dModel, k: embed.dim },
    { n: embed.dim, k: dModel },
    ...dims.flatMap((dim) => [
      { n: dim, k: dModel },
      { n: dModel, k: dim },
    ]),
  ];
  return Math.max(...sizes.map(stagedFloats));
}

type Ends = Omit<ModelWeights, "blocks" | "mode">;

/** The formats of the matrices before the first layer and behind the last one. */
function endFormats(reader: WeightReader, { names }: Decoder, root: string, own: WeightFormat | undefined): EndFormats {
  const formatOf = (name: string) => reader.formatOf(`${name}.weight`, own);
  const ifAny = (name: string) => (reader.has(`${name}.weight`) ? formatOf(name) : undefined);
  const at = (name: string) => `${root}${name}`;
  return {
    embed: formatOf(at(names.embed)),
    projectIn: ifAny(at(names.projectIn)) ?? "f32",
    projectOut: ifAny(at(names.projectOut)) ?? ifAny(names.transform?.dense ?? "") ?? "f32",
    head: ifAny(names.head),
  };
}

/** The formats of the parts: the requested ones, else those that most bytes of the layers, and the table, are stored in. */
function storedFormats(reader: WeightReader, decoder: Decoder, own: ModelFormats): ModelFormats {
  const { names, family } = decoder;
  const root = findRoot(decoder, reader.tensors);
  const { router, sharedGate } = family.moeNames ?? {};
  // Tensors of two dimensions that are float32 in memory whatever they are stored in.
  const floats = [router, sharedGate, family.headNorm?.q, family.headNorm?.k].map((name) => `.${name}.weight`);
  const bytes = new Map<WeightFormat, number>();
  for (const name of reader.namesBelow(`${root}${names.layers}.`)) {
    const tensor = reader.tensors.get(name);
    const isMatrix = tensor && tensor.shape.length > 1 && !floats.some((end) => name.endsWith(end));
    if (!isMatrix || name.endsWith("_bias")) continue;
    const format = reader.formatOf(name, undefined);
    bytes.set(format, (bytes.get(format) ?? 0) + tensor.bytes);
  }
  const [most] = [...bytes].sort(([, a], [, b]) => b - a)[0] ?? ["f32" as const];
  const embed = reader.formatOf(`${root}${names.embed}.weight`, own.embed);
  return { attention: own.attention ?? most, mlp: own.mlp ?? most, embed };
}

/** Reads what is before the first layer and behind the last one. */
async function loadEnds(
  context: BlockContext,
  { spec, names }: Decoder,
  { ends, endsBytes }: ModelPlaces,
  root: string,
): Promise<Ends> {
  const { reader, staging } = context;
  const base = ownBlock(context, endsBytes);
  const at = (name: string) => `${root}${name}`;
  const linear = async (name: string, to: LinearPlace | undefined): Promise<PackedLinear | undefined> =>
    to && reader.linear(base, to, name, staging, "out-in");
  const norm = async (name: string, to: NormPlace | undefined): Promise<PackedNorm | undefined> =>
    to && loadNorm(context, at(name), to, base);
  const tokens = (await linear(at(names.embed), ends.embed)) as PackedLinear;
  const table = async (name: string | undefined, to: LinearPlace | undefined) =>
    to && asTable((await linear(at(name as string), to)) as PackedLinear, to.n);
  const { transform } = names;
  return {
    embed: asTable(tokens, spec.vocabSize),
    positions: await table(names.positions, ends.positions),
    types: await table(names.types, ends.types),
    projectIn: await linear(at(names.projectIn), ends.projectIn),
    projectOut: await linear(at(names.projectOut), ends.projectOut),
    head: (await linear(names.head, ends.head)) ?? (await withBias(context, tokens, `${names.head}.bias`)),
    embedNorm: await norm(names.embedNorm, ends.embedNorm),
    finalNorm: await norm(names.finalNorm, ends.finalNorm),
    transform: ends.transform &&
      transform && {
        dense: (await linear(transform.dense, ends.transform.dense)) as PackedLinear,
        norm: await loadNorm(context, transform.norm, ends.transform.norm, base),
      },
    relativeBias: spec.relativeBias && (await reader.vector(`${at(names.relativeBias as string)}.weight`)),
  };
}

const asTable = ({ k, format, w }: PackedLinear, rows: number): PackedTable => ({ rows, dim: k, format, at: w });

/** The table of tokens as the head, with the head's own bias where there is one. */
async function withBias({ kernels, reader }: BlockContext, tokens: PackedLinear, name: string): Promise<PackedLinear> {
  const bias = await reader.vector(name);
  // The table itself has no bias, so that its place is free.
  if (bias) kernels.memory.f32(tokens.bias, bias.length).set(bias);
  return tokens;
}
