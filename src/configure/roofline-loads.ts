// What is timed to make a roofline: loops that do nothing but compute or read, products, rows between them, and decoders of thin
// layers, whose matrices cost nothing, so that their time is that of attention, of calls and of the host.

import { PANEL } from "../../assembly/layout.ts";
import type { CacheFormat } from "../cache/page-layout.ts";
import type { PackedNorm } from "../decoder/packed.ts";
import { activateRows, addRows, normRows, ROW_SHAPE_BYTES } from "../decoder/rows.ts";
import { startPeak } from "../diagnostics/peak.ts";
import { createRandom } from "../diagnostics/random.ts";
import { startStream } from "../diagnostics/stream.ts";
import type { Load } from "../diagnostics/timing.ts";
import { createLinear } from "../linear/create-linear.ts";
import { panelBytes, sumBytes, type WeightFormat, wholePanels } from "../linear/formats.ts";
import { multiply, placeLinearScratch, prepareInput, type Rows } from "../linear/linear.ts";
import { NULL } from "../wasm/abi.ts";
import type { Kernels } from "../wasm/kernels.ts";
import { Layout, pointer } from "../wasm/memory.ts";
import { narrowed, type Projection } from "./choose-attention.ts";
import { createOwned, type Owned } from "./owned.ts";
import { planShape } from "./plan-shape.ts";
import { loadRandom, tokensOf, VOCABULARY } from "./random-decoder.ts";
import type { Roofline } from "./roofline.ts";
import { workOf } from "./token-work.ts";

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
export interface RooflineLoads {
  readonly prompt: readonly Load[];
  readonly token: readonly Load[];
  /** The roofline of the seconds of `prompt`, then of `token`. */
  read(seconds: readonly number[]): Roofline;
  /** Frees the memory of all. */
  release(): void;
}

/** The loads of a roofline. `sizes` are bytes of weights whose reading is timed, ascending. */
export async function rooflineLoads(
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
  const panel = panelBytes(weights, inputs) + sumBytes(weights, inputs);
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
