import { type ModelFiles, type ModelSource, openModelFiles } from "../files/model-files.ts";
import type { ModelStore } from "../files/model-store.ts";
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
import type { GgufReader } from "./gguf.ts";
import { type BlockContext, loadBlock, loadNorm, mlpFormats, ownBlock } from "./load-blocks.ts";
import type { Model, ModelWeights } from "./model.ts";
import { type ModelFormats, readFormats } from "./model-formats.ts";
import type { PackedNorm, PackedTable } from "./packed.ts";
import { linearsOf, type ModelPlaces, type NormPlace, placeModel } from "./places.ts";
import { planSpec } from "./plan-model.ts";
import { reserve } from "./reserve.ts";
import { endFormats, storedFormats } from "./stored-formats.ts";
import { WeightReader } from "./weight-reader.ts";

/** Options of `loadModel`. */
export interface LoadModelOptions {
  /**
   * Formats of the matrices: one for all, or one each for attention, MLPs (experts among them), and the table of tokens, which
   * is often the head too. Default those that they are stored in, the blocks of GGUF's types without loss (`PackedFormat`), and float32
   * instead of 16-bit floats for kernels that were loaded without `quantized`.
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
  /** What GGUF files are read by, where `source` is one: `gguf`. */
  readonly gguf?: GgufReader;
  /** Called after each read with the bytes that were read, and all that will be: those of the tensors that the model has. */
  readonly onProgress?: (done: number, all: number) => void;
  /** Ends loading: it rejects with the signal's reason, and all memory is freed. */
  readonly signal?: Global<"AbortSignal">;
  /**
   * Keeps what is read of URLs, so that the next start reads it from there, also without a network, and a download that was
   * interrupted goes on: of `createFolderStore`, `createBrowserStore` or `createStore`. Default none.
   */
  readonly store?: ModelStore;
}

const OPTIONS = ["weights", "maxSeqLen", "maxBytes", "activations", "gguf", "onProgress", "signal", "store"] as const;

/**
 * Loads a whole decoder from safetensors with config.json, or with the option `gguf` from GGUF: reads tensors one after the other,
 * and packs each as it comes. A model, a field of config.json or a rule of the metadata that is not known is refused by name, as are
 * tensors that are missing, unexpected or of another shape, all in one error. Not read are masks and tables that follow from the
 * configuration, nor a head where `tie_word_embeddings` says that it is the table of tokens.
 * @param source A folder or a GGUF file, by path (on hosts with a file system) or URL; files; bytes of a GGUF; or what opens files.
 * @throws TypeError or RangeError naming the argument. HeadwiseError `BAD_FILE`, `OUT_OF_MEMORY`, `RELEASED`, `NO_MODELS`,
 * `NO_QUANTIZED`, `NO_LATENT`, `NO_GGUF`, or the signal's reason. All memory is freed then.
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
  const where = "loadModel";
  expectKernels(where, kernels);
  const given = readFields(where, "options", options, OPTIONS);
  const { weights, maxSeqLen, maxBytes, activations, gguf, onProgress, signal, store } = given;
  if (maxSeqLen !== undefined) expectInt(where, "options.maxSeqLen", maxSeqLen);
  if (maxBytes !== undefined) expectInt(where, "options.maxBytes", maxBytes, 0, Number.MAX_SAFE_INTEGER);
  const formats = readFormats(where, weights);
  const fast = expectActivations(where, "options.activations", activations);
  if (onProgress !== undefined) expectFunction(where, "onProgress", onProgress);
  if (signal !== undefined) expectSignal(where, signal);
  if (gguf !== undefined && typeof Object(gguf).open !== "function")
    throw new TypeError(`${where}: options.gguf expected gguf, which headwise/models exports, got ${describe(gguf)}`);
  if (store !== undefined) expectFunction(where, "options.store.open", Object(store).open);
  expectModelKernels(where, kernels, formats);
  const expectActive = () => {
    signal?.throwIfAborted();
    expectKernels(where, kernels);
  };
  expectActive();
  let files: ModelFiles | undefined;
  try {
    files = await openModelFiles(where, source, gguf?.open, signal, store);
    const { description } = files;
    const decoder =
      typeof description === "string"
        ? resolveHead(readDecoder(where, description, maxSeqLen), files.tensors)
        : await (gguf as GgufReader).read(where, description, maxSeqLen);
    expectLatent(where, kernels, decoder);
    const tensors = checkTensors(where, decoder, files.tensors);
    const all = [...tensors.values()].reduce((sum, { bytes }) => sum + bytes, 0);
    let done = 0;
    const onRead = (bytes: number) => {
      done += bytes;
      onProgress?.(done, all);
    };
    const layout = decoder.family.layout ?? "out-in";
    const { file, pieceBytes } = files;
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
    await files?.close();
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
  const { spec, names, family, attention } = decoder;
  const { memory } = kernels;
  const owned: BlockContext["owned"] = [];
  const free = () => {
    for (const each of owned.splice(0)) each.release();
  };
  const staging = memory.allocate(where, 4 * mostStaged(decoder));
  try {
    const context: BlockContext = {
      ...{ kernels, reader, names, family, attention, where, owned, staging, dModel: spec.dModel },
      formats: { attention: formats.attention, mlp: formats.mlp },
      activations: fast ? "fast" : "exact",
    };
    const root = findRoot(decoder, reader.tensors);
    const layerAt = (i: number) => `${root}${names.layers}.${i}.`;
    const places = placeModel(spec, endFormats(reader, decoder, root, formats.embed), (layer, which) =>
      mlpFormats(context, layerAt(layer), which),
    );
    reserve(where, memory, planSpec(where, spec, storedFormats(reader, decoder, formats)).weights);
    const ends = await loadEnds(context, decoder, places, root);
    const blocks: ModelWeights["blocks"][number][] = [];
    for (const [i, block] of spec.blocks.entries())
      blocks.push(await loadBlock(context, block, places.blocks[i] as ModelPlaces["blocks"][number], layerAt(i)));
    const linears = [...Object.values(places.ends), ...places.blocks.flatMap(({ place }) => linearsOf(place))];
    const used = linears.flatMap((each) => (each && "format" in each ? [each.format] : []));
    const weights: ModelWeights = { ...ends, blocks, mode: modeOf(kernels, used, fast) };
    memory.free(staging);
    const parts = {
      ...{ kernels, type: spec.type, dModel: spec.dModel, vocabSize: spec.vocabSize, layers: blocks.length },
      ...{ maxSeqLen: spec.maxSeqLen, bytes: owned.reduce((sum, { bytes }) => sum + bytes, 0), spec, places, weights },
    };
    const release = () => {
      if (!kernels.released) free();
    };
    return makeHandle<Model>("Model", "loadModel", parts, ["spec", "places", "weights"], release);
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
    { n: embed.positions?.rows ?? 1, k: dModel },
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
  const { positions } = spec.embed;
  const table = await linear(at(names.positions), ends.positions);
  return {
    embed: asTable(tokens, spec.vocabSize),
    positions: table && positions && asTable(table, positions.rows),
    projectIn: await linear(at(names.projectIn), ends.projectIn),
    projectOut: await linear(at(names.projectOut), ends.projectOut),
    head: (await linear(names.head, ends.head)) ?? (await withBias(context, tokens, `${names.head}.bias`)),
    embedNorm: await norm(names.embedNorm, ends.embedNorm),
    finalNorm: await norm(names.finalNorm, ends.finalNorm),
  };
}

const asTable = ({ k, format, w, mins }: PackedLinear, rows: number): PackedTable => ({
  ...{ rows, dim: k, format, at: w, mins },
});

/** The table of tokens as the head, with the head's own bias where there is one. */
async function withBias({ kernels, reader }: BlockContext, tokens: PackedLinear, name: string): Promise<PackedLinear> {
  const bias = await reader.vector(name);
  // The table itself has no bias, so that its place is free.
  if (bias) kernels.memory.f32(tokens.bias, bias.length).set(bias);
  return tokens;
}
