// Measures what a machine reaches, and compares a layer with what was predicted of it.

import { PANEL } from "../../../assembly/layout.ts";
import { threadClock } from "../../base/platform/host.ts";
import type { Tensor } from "../../base/tensor/tensor.ts";
import { expectEven, expectInt, expectOneOf, expectRecord, readFields } from "../../base/util/arguments.ts";
import { HeadwiseError } from "../../base/util/errors.ts";
import { writeSafetensors } from "../../files/safetensors/safetensors.ts";
import { createLinear } from "../../layers/api/linear.ts";
import { FORMATS, WEIGHT_FORMATS, type WeightFormat, wholePanels } from "../../layers/linear/formats.ts";

import { multiply, placeLinearScratch, prepareInput, type Rows } from "../../layers/linear/products.ts";
import { CACHE_FORMATS, type CacheFormat } from "../../layers/state/pages.ts";
import type { Model, PackedNorm } from "../../models/blocks/model.ts";
import { activateRows, addRows, normRows, ROW_SHAPE_BYTES } from "../../models/blocks/rows.ts";
import { forward } from "../../models/decoder/forward.ts";
import { createSession } from "../../models/decoder/session.ts";
import { loadModel } from "../../models/load/load-model.ts";
import { readDecoder } from "../../models/spec/read-spec.ts";
import { expectedTensors } from "../../models/spec/tensors.ts";
import { NULL } from "../../wasm/abi.ts";
import { expectKernels, type Kernels } from "../../wasm/kernels.ts";
import { Layout, pointer } from "../../wasm/memory.ts";
import { createRandom } from "../diagnostics/random.ts";
import { type Clock, type Effort, type Load, startPeak, startStream, timeLoads } from "../diagnostics/timing.ts";

import { type Candidate, PROJECTION_KINDS, type Projection, planShape } from "./choose.ts";
import type { Configuration } from "./configure.ts";
import { predictMs, type Roofline, workOf } from "./roofline.ts";

// What is freed together, also if making a part of it fails.

interface Releasable {
  release(): void;
}

/** Keeps what has memory, until `release` frees all of it, the last first. */
interface Owned {
  add<T extends Releasable>(each: T): T;
  release(): void;
}

function createOwned(): Owned {
  const all: Releasable[] = [];
  return {
    add(each) {
      all.push(each);
      return each;
    },
    release() {
      for (const each of all.splice(0).reverse()) each.release();
    },
  };
}

// Decoders of random weights, to be timed.

/** Entries of the tables of such decoders: so few cost nothing beside a layer. */
const VOCABULARY = 64;

/** A decoder of a shape, with random weights. */
function loadRandom(where: string, kernels: Kernels, { config, weights }: Candidate): Promise<Model> {
  const tensors = Object.fromEntries(
    [...expectedTensors(readDecoder(where, config), "model.").required].map(([name, shape]) => [
      name,
      weightsOf(shape),
    ]),
  );
  const files = new Map<string, Uint8Array>([
    ["config.json", new TextEncoder().encode(JSON.stringify(config))],
    ["model.safetensors", writeSafetensors(tensors)],
  ]);
  return loadModel(kernels, (name) => files.get(name), { weights });
}

/** Random weights by which rows keep about their norm, and gains of 1. */
function weightsOf(shape: readonly number[]): Tensor {
  const [outputs = 1, inputs] = shape;
  if (inputs === undefined) return { data: new Float32Array(outputs).fill(1), shape };
  const scale = Math.sqrt(3 / inputs);
  return {
    data: createRandom(outputs)
      .floats(outputs * inputs)
      .map((value) => value * scale),
    shape,
  };
}

/** A load of `tokens` tokens after `past` others, in a session of their own that is as long as the decoder is for. */
function tokensOf(owned: Owned, model: Model, format: CacheFormat, past: number, tokens: number, flops: number): Load {
  const session = owned.add(createSession(model, { format }));
  const ids = (count: number) => Array.from({ length: count }, (_, i) => i % VOCABULARY);
  if (past > 0) forward(session, ids(past), { top: 1 });
  const read = ids(tokens);
  return {
    flops,
    run() {
      forward(session, read, { top: 1 });
      session.truncate(past);
    },
  };
}

// What is timed to make a roofline: loops that do nothing but compute or read, products, rows between them, and decoders of thin
// layers, whose matrices cost nothing, so that their time is that of attention, of calls and of the host.

/** What to measure: parts of a `Configuration`. */
export interface RooflineOptions {
  /** Format of the weights. Default "f32". */
  readonly weights?: WeightFormat;
  /** Format of the cache. Default "f32". */
  readonly cache?: CacheFormat;
  /** Inputs of the matrices that are measured. Default 1024. */
  readonly dModel?: number;
  /** Heads of the attention that is measured. Default 12. */
  readonly numHeads?: number;
  /** Floats in a head, even. Default 64. */
  readonly headDim?: number;
  /** The variant of attention. Default a key and a value for each head. */
  readonly projection?: Projection;
}

/** A variant of attention whose latents have `rank` and `dim` floats at most, and whose heads have `dim` besides. */
function narrowed(projection: Projection, dim: number, rank: number = Infinity): Projection {
  if (projection.kind !== "mla") return projection;
  const { kind, kvLoraRank, qLoraRank, ropeDim } = projection;
  return {
    ...{ kind, kvLoraRank: Math.min(rank, kvLoraRank), ropeDim: Math.min(rank, ropeDim), nopeDim: dim, valueDim: dim },
    qLoraRank: qLoraRank && dim,
  };
}

/** Memory that no cache of a processor holds. */
const STREAMED = 2 ** 28;
/** The most weights of a matrix that is read. */
const MOST_WEIGHTS = 2 ** 22;
/** Rows of a prompt. */
const ROWS = 128;
/** Tokens of the attention, more and fewer. */
const [LONG, HALF, SHORT] = [512, 256, 128];
/** Bytes of weights that a product reads between two layers, to be timed: as many as the nearer caches hold, or more. */
const BETWEEN = 2 ** 22;
/** The width and the MLP of layers whose matrices cost nothing beside the other work, and how many layers there are. */
const [THIN, LAYERS] = [32, 4];

/** Loads whose times make a roofline: of prompts, and of a token. */
interface RooflineLoads {
  readonly prompt: readonly Load[];
  readonly token: readonly Load[];
  /** The roofline of the seconds of `prompt`, then of `token`. */
  read(seconds: readonly number[]): Roofline;
  /** Frees the memory of all. */
  release(): void;
}

/** The loads of a roofline. `sizes` are bytes of weights whose reading is timed, ascending. */
async function rooflineLoads(
  where: string,
  kernels: Kernels,
  { weights, cache, dModel, numHeads, headDim, projection }: Required<RooflineOptions>,
  sizes: readonly number[],
): Promise<RooflineLoads> {
  const owned = createOwned();
  /** A decoder of thin layers. */
  const load = async (layers: number, headDim: number, projection: Projection) => {
    const widths = { dModel: THIN, mlpDim: THIN, vocabSize: VOCABULARY, tied: true };
    const shape = { ...widths, numHeads, headDim, projection, layers };
    const candidate = planShape(where, shape, weights, cache, LONG + 1);
    return { work: workOf(candidate, LONG), model: owned.add(await loadRandom(where, kernels, candidate)) };
  };
  try {
    const [heads, one, some] = [
      await load(1, headDim, narrowed(projection, 2)),
      await load(1, 2, narrowed(projection, 2, 2)),
      await load(LAYERS, 2, narrowed(projection, 2, 2)),
    ];
    const tokens = ({ model }: typeof heads, past: number, count: number) =>
      tokensOf(owned, model, cache, past, count, 1e5 * count);
    const [peak, stream] = [startPeak(kernels.fused), startStream(STREAMED)];
    const product = productOf(owned, where, kernels, weights, dModel, dModel, ROWS);
    const reading = sizes.map((size) => readingOf(owned, where, kernels, weights, dModel, size));
    const pointwise = pointwiseOf(owned, where, kernels, dModel);
    const prompts = [HALF, LONG].map((count) => tokens(heads, 0, count));
    const between = readingOf(owned, where, kernels, weights, dModel, Math.min(BETWEEN, sizes.at(-1) as number));
    // After a product, as in a model: it has pushed keys, and what the host works with, out of the processor's caches.
    const later = [SHORT, LONG].map((past) => {
      const token = tokens(heads, past - 1, 1);
      return {
        flops: between.flops,
        run() {
          between.run();
          token.run();
        },
      };
    });
    return {
      prompt: [peak, stream, product, pointwise, ...prompts],
      token: [between, ...later, tokens(one, 0, 1), tokens(some, 0, 1), ...reading],
      read(seconds) {
        const [ofPeak = 0, ofStream = 0, ofProduct = 0, ofElements = 0, half = 0, long = 0, ...others] = seconds;
        const [ofBetween = 0, near = 0, far = 0, first = 0, all = 0, ...ofReading] = others;
        const { pairFlops, matrices, weightBytes } = heads.work;
        const curve = reading.map(({ flops }, i) => [sizes[i] as number, flops / (ofReading[i] as number)] as const);
        // What does not grow with the pairs of tokens cancels out; what is left of two equal times is no speed.
        const pairs = Math.max(long - 2 * half, long / 10);
        const keys = Math.max(far - near, (far - ofBetween) / 100, far / 1e6);
        // Of a prompt that takes a·n + b·n² seconds, a.
        const row = (4 * half - long) / LONG - (2 * matrices * ofProduct) / product.flops;
        const pass = first - (all - first) / (LAYERS - 1);
        const token = near - ofBetween - (keys * SHORT) / (LONG - SHORT);
        const layer = token - pass - (matrices * weightBytes * ofBetween) / between.flops;
        return {
          ...{ flops: peak.flops / ofPeak, bytes: stream.flops / ofStream },
          weights: { [weights]: { flops: product.flops / ofProduct, bytes: curve } },
          attention: { prompt: (pairFlops * HALF * HALF) / pairs, token: (pairFlops * (LONG - SHORT)) / keys },
          other: {
            ...{ layer: Math.max(0, layer), pass: Math.max(0, pass), row: Math.max(0, row) },
            element: ofElements / pointwise.flops,
          },
        };
      },
      release: owned.release,
    };
  } catch (error) {
    owned.release();
    throw error;
  }
}

/** Rows times a matrix of `outputs` outputs. */
function productOf(
  owned: Owned,
  where: string,
  kernels: Kernels,
  weights: WeightFormat,
  inputs: number,
  outputs: number,
  rows: number,
): Load {
  const { floats } = createRandom(outputs);
  // As small as in models: of 16-bit floats, those near 0 are widened more slowly.
  const data = floats(outputs * inputs);
  const scale = Math.sqrt(inputs);
  for (let i = 0; i < data.length; i++) data[i] = (data[i] as number) / scale;
  const { packed, mode } = owned.add(
    createLinear(kernels, { weight: { data, shape: [outputs, inputs] } }, { weights }),
  );
  const layout = new Layout();
  const places = { x: layout.floats(rows * inputs), out: layout.floats(rows * wholePanels(outputs)) };
  const scratch = placeLinearScratch(layout, [packed], rows);
  const base = allocate(owned, where, kernels, layout.bytes);
  kernels.memory.f32(base + places.x, rows * inputs).set(floats(rows * inputs));
  const x = { at: pointer.f32(base + places.x), stride: inputs };
  const out = { at: pointer.f32(base + places.out), stride: wholePanels(outputs) };
  return {
    flops: 2 * rows * outputs * inputs,
    run() {
      multiply(kernels, packed, out, prepareInput(kernels, [packed], x, rows, mode, scratch, base), 0, rows);
    },
  };
}

/** Norms and residuals of rows, and the activation of an MLP of 8/3 of their width, of which it counts the elements. */
function pointwiseOf(owned: Owned, where: string, kernels: Kernels, dModel: number): Load {
  const mlpDim = Math.round((8 / 3) * dModel);
  const layout = new Layout();
  const [x, y] = [layout.floats(ROWS * dModel), layout.floats(ROWS * dModel)];
  const [inner, gain, shape] = [layout.floats(ROWS * 2 * mlpDim), layout.floats(dModel), layout.take(ROW_SHAPE_BYTES)];
  const base = allocate(owned, where, kernels, layout.bytes);
  kernels.memory.f32(base + x, ROWS * dModel).set(createRandom(dModel).floats(ROWS * dModel));
  // Zeros stay zeros: other numbers would become ever smaller, and the smallest ones are slow.
  kernels.memory.f32(base + inner, ROWS * 2 * mlpDim).fill(0);
  kernels.memory.f32(base + gain, dModel).fill(1);
  const norm: PackedNorm = { kind: "rms", eps: 1e-6, gain: pointer.f32(base + gain), bias: NULL };
  const rows = (place: number, stride: number): Rows => ({ at: pointer.f32(base + place), stride });
  const [from, to, gate] = [rows(x, dModel), rows(y, dModel), rows(inner, 2 * mlpDim)];
  const up = pointer.f32(gate.at + 4 * mlpDim);
  const work = { kernels, base, shape };
  return {
    flops: ROWS * (4 * dModel + mlpDim),
    run() {
      for (let i = 0; i < 2; i++) {
        normRows(work, norm, to, from, dModel, ROWS);
        addRows(work, to, from, to, 1, ROWS);
      }
      activateRows(work, { kind: "swish", alpha: 1 }, gate, up, mlpDim, ROWS);
    },
  };
}

/** One row times matrices of about `size` bytes together, which are counted. */
function readingOf(
  owned: Owned,
  where: string,
  kernels: Kernels,
  weights: WeightFormat,
  inputs: number,
  size: number,
): Load {
  const panel = FORMATS[weights].panelBytes(inputs) + FORMATS[weights].sumBytes(inputs);
  const panels = Math.max(1, Math.round(size / panel));
  const count = Math.ceil((panels * PANEL * inputs) / MOST_WEIGHTS);
  const each = Math.ceil(panels / count);
  const products = Array.from({ length: count }, () =>
    productOf(owned, where, kernels, weights, inputs, PANEL * each, 1),
  );
  return {
    flops: count * each * panel,
    run() {
      for (const product of products) product.run();
    },
  };
}

/** Memory that is freed with all else. */
function allocate(owned: Owned, where: string, { memory }: Kernels, bytes: number): number {
  const base = memory.allocate(where, bytes);
  owned.add({ release: () => memory.free(base) });
  return base;
}

// Measures what a machine reaches, with the kernels and the decoders that models run on.

const OPTIONS = ["weights", "cache", "dModel", "numHeads", "headDim", "projection"] as const;

/** A few seconds in all. */
const EFFORT: Effort = { warmupMs: 60, sampleMs: 8, rounds: 15, mostMs: 4000 };
/** Longer samples of processor time, which systems may count in ticks of some milliseconds. */
const THREAD_EFFORT: Effort = { ...EFFORT, sampleMs: 40 };
/** Bytes of weights that stay in the nearer caches of a processor, in its last one, and in memory. */
const SIZES = [2 ** 20, 2 ** 23, 2 ** 26];

/**
 * Measures the roofline of one machine in some ten seconds: the peak of arithmetic and of reading memory, what the kernels reach with
 * weights of a format and attention of a shape, and what a layer takes besides. Times are processor time of the thread where the host
 * says it (Node from 23.9 on); elsewhere the clock's, in the fastest of some samples, as other programs only make them slower.
 * @param kernels With `models`, `quantized` for formats other than "f32", and `latent` for latents.
 * @throws TypeError or RangeError naming the argument. HeadwiseError `NO_MODELS`, `NO_QUANTIZED`, `NO_LATENT`, `OUT_OF_MEMORY` or
 * `RELEASED`; `NO_CLOCK` where the clock stands still while code runs.
 * @example
 * import { loadKernels } from "headwise";
 * import { configure, measureRoofline } from "headwise/configure";
 * import { models } from "headwise/models";
 * const kernels = await loadKernels({ models });
 * const options = { parameterBudget: 1e6, seqLen: 256, target: "browser", weights: "f32" } as const;
 * const { speed } = configure({ ...options, roofline: await measureRoofline(kernels) });
 * console.log(speed !== undefined && speed.decodeTokensPerSecond > 0); // true
 * kernels.release();
 */
export async function measureRoofline(kernels: Kernels, options: RooflineOptions = {}): Promise<Roofline> {
  const where = "measureRoofline";
  expectKernels(where, kernels);
  const given = readFields(where, "options", options, OPTIONS);
  const { weights = "f32", cache = "f32", dModel = 1024, numHeads = 12, headDim = 64 } = given;
  const { projection = { kind: "mha", numKvHeads: numHeads } } = given;
  expectOneOf(where, "options.weights", weights, WEIGHT_FORMATS);
  expectOneOf(where, "options.cache", cache, CACHE_FORMATS);
  for (const [name, value] of Object.entries({ dModel, numHeads })) expectInt(where, `options.${name}`, value);
  expectEven(where, "options.headDim", headDim);
  expectProjection(where, "options.projection", projection, numHeads);
  const loads = await rooflineLoads(where, kernels, { weights, cache, dModel, numHeads, headDim, projection }, SIZES);
  try {
    const clock = clockOf(kernels);
    const rates = await timeLoads([...loads.prompt, ...loads.token], clock ? THREAD_EFFORT : EFFORT, clock);
    if (!rates) throw stoppedClock(where);
    return loads.read(rates.map(({ ms, bestMs }) => (clock ? ms : bestMs) / 1000));
  } finally {
    loads.release();
  }
}

/** What is thrown where no time passes while code runs. */
export function stoppedClock(where: string): HeadwiseError {
  return new HeadwiseError(
    "NO_CLOCK",
    `${where}: clock expected to advance while code runs, got one that stands still`,
  );
}

/** The processor time of this thread, if it is the one that computes. */
const clockOf = ({ threads }: Kernels): Clock | undefined => (threads.used === 1 ? threadClock() : undefined);

// Builds one layer of a configuration, and compares what was predicted with what it takes.

/** What a layer takes. */
export interface LayerCost {
  /** Bytes of linear memory of the weights. */
  readonly weightBytes: number;
  /** Those of a session. */
  readonly sessionBytes: number;
  /** Milliseconds of a prompt of `tokens` tokens. */
  readonly prefillMs: number;
  /** Milliseconds of one token after it. */
  readonly decodeMs: number;
}

/** A layer as it was predicted and as it was measured. */
export interface LayerMeasurement {
  /** Tokens of the prompt. */
  readonly tokens: number;
  /** What times are of: processor time of the thread, or the clock, by which other programs make them longer. */
  readonly clock: "thread" | "wall";
  /** The roofline of the prediction. */
  readonly roofline: Roofline;
  /** What the roofline and `planModel` say. */
  readonly predicted: LayerCost;
  /** What the layer took. */
  readonly measured: LayerCost;
}

const LAYER_EFFORT: Effort = { warmupMs: 100, sampleMs: 40, rounds: 7, mostMs: 5000 };
/** Tokens of the prompt, unless the sequence is shorter. */
const TOKENS = 512;

/**
 * Builds a decoder of one layer of `configuration`, with random weights and a table of 64 tokens, and measures it beside the
 * prediction. The roofline is measured in the same rounds as the layer, so that both run beside the same other programs, and
 * milliseconds are medians: of processor time of the thread where the host says it (Node from 23.9 on), else of the clock.
 * @param kernels With `models`, `quantized` for formats other than "f32", and `latent` for latents.
 * @throws TypeError or RangeError naming the argument. HeadwiseError `NO_MODELS`, `NO_QUANTIZED`, `NO_LATENT`, `OUT_OF_MEMORY` or
 * `RELEASED`; `NO_CLOCK` where the clock stands still while code runs.
 * @example
 * import { loadKernels } from "headwise";
 * import { configure, measureLayer } from "headwise/configure";
 * import { models } from "headwise/models";
 * const kernels = await loadKernels({ models });
 * const small = { parameterBudget: 1e5, seqLen: 128, target: "browser", weights: "f32", cache: "f32" } as const;
 * const { predicted, measured } = await measureLayer(kernels, configure(small));
 * console.log(predicted.weightBytes === measured.weightBytes, measured.prefillMs > 0); // true true
 * kernels.release();
 */
export async function measureLayer(kernels: Kernels, configuration: Configuration): Promise<LayerMeasurement> {
  const where = "measureLayer";
  expectKernels(where, kernels);
  const { weights, cache, dModel, numHeads, headDim, mlpDim, projection, seqLen } = readConfiguration(
    where,
    configuration,
  );
  const tokens = Math.min(TOKENS, seqLen);
  const shape = { dModel, numHeads, headDim, mlpDim, projection, layers: 1, vocabSize: VOCABULARY, tied: true };
  const layer = planShape(where, shape, weights, cache, tokens + 1);
  const empty = kernels.usedBytes;
  using model = await loadRandom(where, kernels, layer);
  const loaded = kernels.usedBytes;
  const owned = createOwned();
  try {
    const prompt = tokensOf(owned, model, cache, 0, tokens, 2 * layer.parameters * tokens);
    const sessionBytes = kernels.usedBytes - loaded; // the token's session is as large
    const token = tokensOf(owned, model, cache, tokens, 1, 2 * layer.parameters);
    // Reading is timed at the layer's own size: the larger the weights, the farther they are read from.
    const loads = owned.add(await rooflineLoads(where, kernels, rooflineOptions(configuration), [loaded - empty]));
    const clock = clockOf(kernels);
    // Apart, since what a prompt leaves in the processor's caches is not what a token finds there.
    const [ofPrompt, ofToken] = [
      await timeLoads([...loads.prompt, prompt], LAYER_EFFORT, clock),
      await timeLoads([...loads.token, token], LAYER_EFFORT, clock),
    ];
    if (!ofPrompt || !ofToken) throw stoppedClock(where);
    const times = [...ofPrompt.slice(0, -1), ...ofToken.slice(0, -1)];
    const roofline = loads.read(times.map(({ ms }) => ms / 1000));
    const { prefill, decode } = predictMs(workOf(layer, tokens), roofline, tokens);
    const [prefillMs = 0, decodeMs = 0] = [ofPrompt.at(-1)?.ms, ofToken.at(-1)?.ms];
    const { memory } = layer;
    return {
      ...{ tokens, roofline, clock: clock ? "thread" : "wall" },
      predicted: { weightBytes: memory.weights, sessionBytes: memory.sessions, prefillMs: prefill, decodeMs: decode },
      measured: { weightBytes: loaded - empty, sessionBytes, prefillMs, decodeMs },
    };
  } finally {
    owned.release();
  }
}

/** Throws unless a value is a variant of attention for so many heads. */
function expectProjection(where: string, name: string, projection: Projection, numHeads: number): void {
  expectRecord(where, name, projection);
  expectOneOf(where, `${name}.kind`, projection.kind, PROJECTION_KINDS);
  if (projection.kind !== "mla") {
    const { numKvHeads } = projection;
    expectInt(where, `${name}.numKvHeads`, numKvHeads, 1, numHeads);
    if (numHeads % numKvHeads !== 0)
      throw new RangeError(`${where}: ${name}.numKvHeads expected a divisor of ${numHeads} heads, got ${numKvHeads}`);
    return;
  }
  for (const size of ["kvLoraRank", "nopeDim", "valueDim"] as const)
    expectInt(where, `${name}.${size}`, projection[size]);
  expectEven(where, `${name}.ropeDim`, projection.ropeDim);
  if (projection.qLoraRank !== undefined) expectInt(where, `${name}.qLoraRank`, projection.qLoraRank);
}

/** Checks what a layer is built of: a configuration may have been stored, sent or changed. */
function readConfiguration(where: string, configuration: Configuration) {
  const name = "configuration";
  expectRecord(where, name, configuration);
  const { weights, cache, config, dModel, numHeads, headDim, mlpDim, projection } = configuration;
  expectOneOf(where, `${name}.weights`, weights, WEIGHT_FORMATS);
  expectOneOf(where, `${name}.cache`, cache, CACHE_FORMATS);
  for (const [size, value] of Object.entries({ dModel, numHeads, mlpDim })) expectInt(where, `${name}.${size}`, value);
  expectEven(where, `${name}.headDim`, headDim);
  expectProjection(where, `${name}.projection`, projection, numHeads);
  expectRecord(where, `${name}.config`, config);
  const seqLen = expectInt(where, `${name}.config.max_position_embeddings`, config.max_position_embeddings);
  return { weights, cache, dModel, numHeads, headDim, mlpDim, projection, seqLen };
}

/** What to measure a roofline of for a configuration. */
function rooflineOptions(configuration: Configuration): Required<RooflineOptions> {
  const { weights, cache, dModel, numHeads, headDim, projection } = configuration;
  return { weights, cache, dModel, numHeads, headDim, projection };
}
