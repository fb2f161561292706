// Reads the tensors of a model one after the other and packs the weights that they hold into their places.

import { PANEL } from "../../../assembly/layout.ts";
import { FLOAT_DTYPE_RULE, FLOAT_DTYPES, isCoded, type StoredTensor, toFloats } from "../../base/tensor/dtypes.ts";
import { cutOutputs, halvesOf, type MatrixLayout, rowsOf } from "../../base/tensor/matrix.ts";
import { describe, HeadwiseError } from "../../base/util/errors.ts";
import { cosine, exp, ln, sine } from "../../base/util/math.ts";
import { chunksOf } from "../../base/util/rows.ts";
import type { TensorReader } from "../../files/read-ahead.ts";
import {
  expectFormatLoaded,
  FORMATS,
  formatOf,
  type PackedFormat,
  type PackedLinear,
  type WeightFormat,
  wholePanels,
} from "../../layers/linear/formats.ts";

import { type LinearPlace, packMatrix, stagedFloats, storeLinear } from "../../layers/linear/products.ts";
import type { BlockLayer } from "../../layers/mixer/mixer.ts";
import { type F32Ptr, NULL, type NullPtr } from "../../wasm/abi.ts";
import type { Kernels } from "../../wasm/kernels.ts";
import { pointer } from "../../wasm/memory.ts";
import {
  type BlockPlaces,
  joinMlp,
  type ModelPlaces,
  type ModelWeights,
  type PackedBlock,
  type PackedLayerInput,
  type PackedMlp,
  type PackedMoe,
  type PackedNorm,
  type PackedStreams,
  type PackedTable,
  type PackedWeights,
  type packRelative,
  relativeTable,
  type StoredTable,
  type VectorPlace,
} from "../blocks/model.ts";
import { LOADERS } from "../mixers/mixers.ts";
import { keyOf, type Source, type WeightRole, XIELU } from "../mixers/weight.ts";
import {
  type BlockSpec,
  gatesOf,
  type MlpSpec,
  type ModelSpec,
  type MoeSpec,
  type NormRole,
  type NormSpec,
  widthOfHeads,
} from "../spec/spec.ts";
import { type Decoder, endSources, layerSources, type TensorFacts } from "../spec/tensors.ts";
import { weightsOf } from "../spec/weights.ts";
import { residentPiece, residentTable, tableOnDemand } from "./stored-tables.ts";

// What is read at a time.

/** Options of loading that a reader knows. */
interface ReaderOptions {
  readonly where: string;
  readonly kernels: Kernels;
  /** About how many bytes of a large matrix are read at a time. */
  readonly pieceBytes: number;
  /** Where tables outside of linear memory are: in arrays of their own, in views of bytes that were given, or left in the file. */
  readonly tables: "copies" | "views" | "on-demand";
  /** Called before each read, and throws if loading must not go on. */
  readonly expectActive: () => void;
  /** Called with the bytes of what was read. */
  readonly onRead: (bytes: number) => void;
}

/** What is known of the formats of tensors before they are read. */
export interface StoredMatrices {
  readonly tensors: ReadonlyMap<string, TensorFacts>;
  /** The format of a matrix: `requested`, or the one it is stored in. Throws for a dtype that is no weight. */
  formatOf(name: string, requested: WeightFormat | undefined): PackedFormat;
}

/** The formats of `tensors`, for kernels with or without those of other formats than float32. */
export function formatsOf(
  where: string,
  tensors: ReadonlyMap<string, TensorFacts>,
  quantized: boolean,
): StoredMatrices {
  return {
    tensors,
    formatOf(name, requested) {
      const { dtype = "" } = tensors.get(name) ?? {};
      const known = isCoded(dtype) ? dtype : FLOAT_DTYPES.find((each) => each === dtype);
      if (known !== undefined) return requested ?? formatOf({ dtype: known }, quantized);
      const text = `${where}: tensor ${describe(name)} expected ${FLOAT_DTYPE_RULE}, got ${dtype}`;
      throw new HeadwiseError("BAD_FILE", text);
    },
  };
}

/** Reads and packs tensors of a file by their names. */
export class WeightReader implements StoredMatrices {
  /** The tensors that the model reads, by name. */
  readonly tensors: ReadonlyMap<string, TensorFacts>;
  readonly #file: TensorReader;
  readonly #options: ReaderOptions;

  constructor(tensors: ReadonlyMap<string, TensorFacts>, file: TensorReader, options: ReaderOptions) {
    this.tensors = tensors;
    this.#file = file;
    this.#options = options;
  }

  /**
   * The format of a matrix, `requested` or the one it is stored in. Throws for a dtype that is no weight, and for a format that the
   * kernels lack.
   */
  formatOf(name: string, requested: WeightFormat | undefined): PackedFormat {
    const { where, kernels } = this.#options;
    const format = formatsOf(where, this.tensors, kernels.quantized).formatOf(name, requested);
    expectFormatLoaded(where, kernels.quantized, `tensor ${describe(name)}`, format);
    return format;
  }

  /** Reads those of these tensors that there are; such as lie near each other with one request. The next read overwrites them. */
  async read(wanted: readonly string[]): Promise<ReadonlyMap<string, StoredTensor>> {
    const { where, expectActive, onRead } = this.#options;
    const names = wanted.filter((name) => this.tensors.has(name));
    expectActive();
    const found = await this.#file.readAll(names, where);
    // Again: a read takes long, and memory may have been released meanwhile.
    expectActive();
    for (const name of names) onRead(this.#factsOf(name).bytes);
    return found;
  }

  /** A vector as floats, which stay; undefined if the file has none of this name. */
  async vector(name: string): Promise<Float32Array | undefined> {
    if (!this.tensors.has(name)) return undefined;
    return toFloats(await this.#whole(name), this.#options.where).slice();
  }

  /** A table that stays as it is stored. One in memory is read some rows at a time: no array holds all of a large one. */
  async table(name: string): Promise<StoredTable> {
    const { pieceBytes, where, tables } = this.#options;
    const { bytes, shape } = this.#factsOf(name);
    const [rows = 0] = shape;
    const step = Math.max(1, Math.floor((pieceBytes * rows) / bytes));
    if (tables === "on-demand") return tableOnDemand(this.#file, name, { rows, rowBytes: bytes / rows, step });
    const pieces: StoredTensor[] = [];
    for (const [begin, end] of chunksOf(rows, step))
      pieces.push(residentPiece(await this.#readRows(name, begin, end), tables === "views"));
    return residentTable(where, pieces, step);
  }

  /**
   * Packs the matrices of a tensor into their places in the block at `base`. Only a part of a tensor is held at a time where it is
   * large, or stacks those of experts.
   */
  async pack(
    source: Source,
    places: readonly LinearPlace[],
    base: number,
    staging: number,
    turn: EncoderParts["turn"] | undefined,
  ): Promise<PackedLinear[]> {
    const { kernels, pieceBytes } = this.#options;
    const { name, layout = "out-in", form } = source;
    const bias = source.bias && (await this.vector(source.bias.name));
    const store = (place: LinearPlace, matrix: StoredTensor, bias: Float32Array | undefined, layout: MatrixLayout) => {
      if (layout === "in-out") return storeLinear(kernels, base, place, matrix, layout, bias, staging);
      packRows(kernels, base, place, 0, matrix, staging);
      return storeLinear(kernels, base, place, undefined, layout, bias, staging);
    };
    const packed: PackedLinear[] = [];
    if (form === "stacked" || form === "interleaved") {
      const [experts = 1] = source.shape;
      const count = places.length / experts;
      for (let e = 0; e < experts; e++) {
        const both = await this.#matrixOf(name, e);
        for (const [i, place] of places.slice(e * count, (e + 1) * count).entries()) {
          const [from, to] = [i * place.n, (i + 1) * place.n];
          const own = bias?.subarray(e * count * place.n, (e + 1) * count * place.n);
          packed.push(
            form === "stacked"
              ? store(place, count === 1 ? both : cutOutputs(both, layout, from, to), own?.subarray(from, to), layout)
              : store(
                  place,
                  everyNth(both, i, count),
                  own?.filter((_, j) => j % count === i),
                  "out-in",
                ),
          );
        }
      }
      return packed;
    }
    if (form === "gates") {
      const { heads = 1 } = source;
      const shift = bias && halvesOf(asColumn(bias), heads, 1);
      const gates = halvesOf(await this.#whole(name), heads, 1);
      return [store(places[0] as LinearPlace, gates, shift && toFloats(shift), "out-in")];
    }
    const isLarge = layout === "out-in" && form === undefined && this.#factsOf(name).bytes > pieceBytes;
    const whole = isLarge ? undefined : form ? turn?.(await this.#whole(name)) : asMatrix(await this.#whole(name));
    let from = 0;
    for (const place of places) {
      const [begin, end] = [from, from + place.n];
      const own = bias?.subarray(begin, end);
      const cut = whole && (places.length === 1 ? whole : cutOutputs(whole, layout, begin, end));
      packed.push(
        cut ? store(place, cut, own, layout) : await this.#packPieces(name, place, begin, own, base, staging),
      );
      from = end;
    }
    return packed;
  }

  /** Packs outputs of a matrix [outputs, inputs] from `from` on, some panels at a time, while the next ones are read. */
  async #packPieces(
    name: string,
    place: LinearPlace,
    from: number,
    bias: Float32Array | undefined,
    base: number,
    staging: number,
  ): Promise<PackedLinear> {
    const { kernels, pieceBytes } = this.#options;
    const { bytes, shape } = this.#factsOf(name);
    const panelBytesRead = (bytes / (shape[0] as number)) * PANEL;
    const step = PANEL * Math.max(1, Math.floor(pieceBytes / panelBytesRead));
    const read = (begin: number) => this.#readRows(name, from + begin, from + Math.min(begin + step, place.n));
    let next = read(0);
    for (const [begin, end] of chunksOf(place.n, step)) {
      const piece = await next;
      if (end < place.n) {
        next = read(end);
        next.catch(() => {}); // It is awaited unless packing throws.
      }
      packRows(kernels, base, place, begin, piece, staging);
    }
    return storeLinear(kernels, base, place, undefined, "out-in", bias, staging);
  }

  #factsOf(name: string): TensorFacts {
    return this.tensors.get(name) as TensorFacts;
  }

  async #whole(name: string): Promise<StoredTensor> {
    return (await this.read([name])).get(name) as StoredTensor;
  }

  /** Reads matrix `index` of a tensor [matrices, rows, columns]. */
  async #matrixOf(name: string, index: number): Promise<StoredTensor> {
    // One alone may be a matrix.
    if (this.#factsOf(name).shape.length < 3) return this.#whole(name);
    const found = await this.#readRows(name, index, index + 1);
    return { ...found, shape: found.shape.slice(1) };
  }

  /** Reads rows of a matrix, or matrices of a tensor of three dimensions. */
  async #readRows(name: string, begin: number, end: number): Promise<StoredTensor> {
    const { where, expectActive, onRead } = this.#options;
    expectActive();
    const found = await this.#file.readRows(name, begin, end, where);
    expectActive();
    const { bytes, shape } = this.#factsOf(name);
    onRead(((end - begin) * bytes) / (shape[0] as number));
    return found;
  }
}

/** Floats as a matrix of one column. */
const asColumn = (data: Float32Array): StoredTensor => ({
  ...{ name: "", dtype: "F32", shape: [data.length, 1] },
  bytes: new Uint8Array(data.buffer, data.byteOffset, data.byteLength),
});

/** A vector as a matrix of one row. */
const asMatrix = (tensor: StoredTensor): StoredTensor =>
  tensor.shape.length > 1 ? tensor : { ...tensor, shape: [1, ...tensor.shape] };

/** Columns `first`, first + step, … of a matrix [inputs, outputs], as rows of floats. */
function everyNth(matrix: StoredTensor, first: number, step: number): StoredTensor {
  const [inputs, outputs] = matrix.shape as [number, number];
  const from = toFloats(matrix);
  const rows = outputs / step;
  const to = new Float32Array(rows * inputs);
  for (let row = 0; row < rows; row++)
    for (let k = 0; k < inputs; k++) to[row * inputs + k] = from[k * outputs + first + row * step] as number;
  return { name: matrix.name, dtype: "F32", shape: [rows, inputs], bytes: new Uint8Array(to.buffer) };
}

/**
 * Packs outputs from `first` on, a multiple of 8, into their place in the block at `base`. `staging` has room for stagedFloats of
 * the whole. 16-bit floats are widened by a kernel, in the memory that packing goes through: JavaScript takes as long for that as
 * packing.
 */
function packRows(
  kernels: Kernels,
  base: number,
  { n, k, format, w, sums, mins }: LinearPlace,
  first: number,
  matrix: StoredTensor,
  staging: number,
): void {
  const { panelBytes, sumBytes, minBytes } = FORMATS[format];
  const isWidened = /^B?F16$/.test(matrix.dtype) && format.toUpperCase() !== matrix.dtype;
  const rows = PANEL * Math.floor(stagedFloats({ n, k }) / (PANEL * k));
  for (const [begin, end] of chunksOf(matrix.shape[0] as number, rows)) {
    const piece = rowsOf(matrix, begin, end);
    const panel = (first + begin) / PANEL;
    const to = {
      ...{ format, w: base + w + panel * panelBytes(k) },
      ...{ sums: base + sums + panel * sumBytes(k), mins: base + mins + panel * minBytes(k) },
    };
    packMatrix(kernels, isWidened ? widen(kernels, piece, staging) : piece, "out-in", to, staging);
  }
}

/** A piece of 16-bit floats as float32 in `staging`. */
function widen({ table, memory }: Kernels, piece: StoredTensor, staging: number): StoredTensor {
  const { bytes, dtype } = piece;
  const at = staging + bytes.length;
  memory.u8(at, bytes.length).set(bytes);
  table.widen_f16(pointer.f32(staging), pointer.u16(at), dtype === "BF16" ? 1 : 0, 0, bytes.length / 2);
  return { ...piece, dtype: "F32", bytes: memory.u8(staging, 2 * bytes.length) };
}

// The blocks of memory of a model: one of the ends, and of each layer one and that of its attention.

/** How what only models with an encoder have is packed. */
export interface EncoderParts {
  /** A convolution [outputs, channels, 3] as a matrix. */
  turn(convolution: StoredTensor): StoredTensor;
  readonly packRelative: typeof packRelative;
}

/** What packing needs to know of a model, or of a half of one. */
export interface Packing {
  readonly where: string;
  readonly kernels: Kernels;
  readonly reader: WeightReader;
  readonly half: Decoder;
  /** The prefix of its tensors. */
  readonly root: string;
  /** The requested format of attention; undefined for those of the file. */
  readonly attention: WeightFormat | undefined;
  readonly encoders: EncoderParts | undefined;
  readonly activations: "exact" | "fast";
  /** Memory for packing, of `stagingBytes`. */
  readonly staging: number;
  /** What is freed with the model, and its bytes. */
  readonly owned: { readonly bytes: number; release(): void }[];
}

/** Bytes of staging that the largest matrix outside attention needs. */
export function stagingBytes({ spec }: Decoder): number {
  let floats = 0;
  for (const { mixer, outside, shape } of weightsOf(spec))
    if (!mixer && !outside) floats = Math.max(floats, stagedFloats({ n: shape[0], k: shape[1] ?? 1 }));
  return 4 * floats;
}

/** Allocates a block that is freed with the model. */
function ownBlock({ kernels: { memory }, where, owned }: Packing, bytes: number): number {
  const at = memory.allocate(where, bytes);
  owned.push({ bytes, release: () => memory.free(at) });
  return at;
}

/** Reads tensors, and packs what they hold into a block. */
async function packBlock(
  packing: Packing,
  { weights, bytes, linears: places, vectors: vectorPlaces }: BlockPlaces,
  sources: Iterable<Source>,
): Promise<PackedWeights> {
  const { reader, staging, encoders, kernels } = packing;
  const base = ownBlock(packing, bytes);
  const linears = new Map<string, PackedLinear>();
  const vectors = new Map<string, { at: F32Ptr; bias: F32Ptr | NullPtr }>();
  for (const source of sources) {
    const keys = source.weights.map(keyOf);
    const vector = vectorPlaces.get(keys[0] as string);
    if (vector && source.optional && !reader.tensors.has(source.name)) continue;
    if (vector) vectors.set(keys[0] as string, await packVector(packing, source, vector, base));
    else if (places.has(keys[0] as string)) {
      const own = keys.map((key) => places.get(key) as LinearPlace);
      for (const [i, linear] of (await reader.pack(source, own, base, staging, encoders?.turn)).entries())
        linears.set(keys[i] as string, linear);
    }
  }
  const { waves } = packing.half.spec.embed.positions ?? {};
  const table = waves && places.get("positions");
  if (table && !linears.has("positions")) {
    const matrix = wavesOf(table, waves.without);
    packRows(kernels, base, table, 0, matrix, staging);
    linears.set("positions", storeLinear(kernels, base, table, undefined, "out-in", undefined, staging));
  }
  for (const weight of weights) {
    const [key, place] = [keyOf(weight), vectorPlaces.get(keyOf(weight))];
    if (weight.constant === undefined || place === undefined || vectors.has(key)) continue;
    kernels.memory.f32(base + place.at, weight.shape[0]).fill(weight.constant);
    vectors.set(key, { at: pointer.f32(base + place.at), bias: NULL });
  }
  return { linears, vectors };
}

/** Row p: sin(p·f) for falling frequencies f, then cos(p·f); zeros at the end of an odd row, and in the row `without`. */
function wavesOf({ n, k }: LinearPlace, without: number): StoredTensor {
  const data = new Float32Array(n * k);
  const half = Math.floor(k / 2);
  for (let p = 0; p < n; p++)
    for (let i = 0; i < half && p !== without; i++) {
      const angle = p * exp((-i * ln(10_000)) / (half - 1));
      data[p * k + i] = sine(angle);
      data[p * k + half + i] = cosine(angle);
    }
  return { name: "positions", dtype: "F32", shape: [n, k], bytes: new Uint8Array(data.buffer) };
}

async function packVector(
  { kernels: { memory }, reader, half: { spec }, encoders }: Packing,
  { name, bias: own, weights: [weight] }: Source,
  place: VectorPlace,
  base: number,
): Promise<{ readonly at: F32Ptr; readonly bias: F32Ptr | NullPtr }> {
  const values = (await reader.vector(name)) as Float32Array;
  const bias = own && (await reader.vector(own.name));
  const at = base + place.at;
  if (weight?.role === "relativeBias") encoders?.packRelative(memory, spec, values, at);
  else memory.f32(at, values.length).set(weight?.norm?.onePlus ? values.map((each) => 1 + each) : values);
  if (bias) memory.f32(base + place.bias, bias.length).set(bias);
  return { at: pointer.f32(at), bias: bias ? pointer.f32(base + place.bias) : NULL };
}

type Ends = Omit<ModelWeights, "blocks" | "mode">;

/** Reads what is before the first layer and behind the last one. An encoder without a table of tokens has that of `decoder`. */
export async function packEnds(packing: Packing, { ends }: ModelPlaces, decoder: Ends | undefined): Promise<Ends> {
  const { half, reader, root, kernels } = packing;
  const { spec } = half;
  const sources = [...endSources(half, root)];
  const packed = await packBlock(packing, ends, sources);
  const { linears } = packed;
  const norm = (role: WeightRole, spec: NormSpec | undefined) => spec && packedNorm(packed, role, spec);
  const table = (role: WeightRole): PackedTable | undefined => {
    const [linear, place] = [linears.get(role), ends.linears.get(role)];
    return linear && place && { rows: place.n, dim: place.k, format: linear.format, at: linear.w, mins: linear.mins };
  };
  const head = linears.get("head") ?? linears.get("embed");
  const headBias = sources.find(({ weights: [first] }) => first?.role === "headBias");
  const bias = headBias && (await reader.vector(headBias.name));
  // A table has no bias, so that its place is free.
  if (head && bias) kernels.memory.f32(head.bias, bias.length).set(bias);
  const relative = packed.vectors.get("relativeBias");
  const { transform } = spec.head;
  const [first, second, dense] = ["firstConv", "secondConv", "dense"].map((role) => linears.get(role));
  const stored = sources.find(({ weights: [weight] }) => weight?.outside);
  const perLayer = spec.embed.perLayer && {
    stored: stored && (await reader.table(stored.name)),
    projection: linears.get("perLayerProjection") as PackedLinear,
    norm: packedNorm(packed, "perLayerNorm", spec.embed.perLayer.norm),
  };
  return {
    packed,
    embed: table("embed") ?? (decoder as Ends).embed,
    positions: table("positions"),
    ...{ types: table("types"), perLayer },
    streams: spec.streams && { into: streamMatrices(packed, "streamIn"), out: streamMatrices(packed, "streamOut") },
    projectIn: linears.get("projectIn"),
    projectOut: linears.get("projectOut"),
    lastProjection: linears.get("lastProjection"),
    head: head ?? (decoder as Ends).head,
    embedNorm: norm("embedNorm", spec.embed.norm),
    finalNorm: norm("finalNorm", spec.finalNorm),
    transform: transform && dense && { dense, norm: packedNorm(packed, "denseNorm", transform.norm) },
    stem: first && second && { first, second },
    relativeBias: relative && relativeTable(spec, relative.at),
    distances: table("distances"),
    distancesNorm: norm("distancesNorm", spec.distances?.norm),
  };
}

/** The matrices of all streams but the first. */
const streamMatrices = ({ linears }: PackedWeights, role: "streamIn" | "streamOut"): PackedLinear[] =>
  [...linears].filter(([key]) => key.startsWith(role)).map(([, linear]) => linear);

/** Reads a layer, and packs it. */
export async function packLayer(packing: Packing, places: BlockPlaces, layer: number): Promise<PackedBlock> {
  const { half, root, owned } = packing;
  const block = half.spec.blocks[layer] as BlockSpec;
  const sources = layerSources(half, root, layer);
  const attention = await loadMixer(packing, sources.self);
  owned.push(attention);
  const cross = sources.cross && (await loadMixer(packing, sources.cross));
  if (cross) owned.push(cross);
  const packed = await packBlock(packing, places, sources.rest);
  const { mlp, norms, parallel, addsToNormed, scale, mlpScale, factors, temperature } = block;
  const [down, up] = ["lowRankDown", "lowRankUp"].map((role) => packed.linears.get(role));
  const packedNorms = Object.entries(norms).map(([role, spec]) => [role, packedNorm(packed, role as NormRole, spec)]);
  return {
    ...{ packed, attention, cross, parallel, addsToNormed, scale, mlpScale, factors, temperature },
    norms: Object.fromEntries(packedNorms),
    outScale: block.scaled
      ? (packing.kernels.memory.f32(packed.vectors.get("layerScale")?.at ?? 0, 1)[0] as number)
      : 1,
    layerInput: mlp && packedInput(packed, half.spec, mlp, layer),
    lowRank: down && up && { down, up },
    streams: packedStreams(packed, half.spec, block),
    attentionGate: packed.linears.get("attentionGate"),
    gatesHeads: gatesOf(block) !== widthOfHeads(block),
    mlp: mlp?.kind === "mlp" ? withScalars(packing, packed, packedMlp(packed, mlp)) : undefined,
    moe: mlp?.kind === "moe" ? packedMoe(packed, mlp) : undefined,
  };
}

function packedNorm({ vectors }: PackedWeights, role: WeightRole, { kind, eps }: NormSpec): PackedNorm {
  const { at, bias } = vectors.get(role) as { at: F32Ptr; bias: F32Ptr | NullPtr };
  return { kind, eps, gain: at, bias };
}

/** What a layer computes of its own input, with the activation of its MLP. */
function packedInput(
  { linears }: PackedWeights,
  { embed: { perLayer }, blocks }: ModelSpec,
  mlp: MlpSpec | MoeSpec,
  layer: number,
): PackedLayerInput | undefined {
  const [gate, out] = [linears.get("perLayerGate"), linears.get("perLayerOut")];
  if (!perLayer || !gate || !out) return undefined;
  const { activation } = mlp.kind === "mlp" ? mlp : mlp.expert;
  const { dim } = perLayer;
  return { gate, out, activation, dim, first: layer * dim, stride: wholePanels(blocks.length * dim) };
}

function packedStreams(
  packed: PackedWeights,
  { streams }: ModelSpec,
  { norms: { streamsPre } }: BlockSpec,
): PackedStreams | undefined {
  const { linears, vectors } = packed;
  const [router, predict, correct] = ["streamRouter", "streamPredict", "streamCorrect"].map((role) =>
    linears.get(role),
  );
  if (!streams || !router || !predict || !correct || !streamsPre) return undefined;
  const { count, active } = streams;
  const norm = packedNorm(packed, "streamsPre", streamsPre);
  return { count, active, router, predict, correct, norm, scale: vectors.get("streamScale")?.at ?? NULL };
}

function packedMlp({ linears }: PackedWeights, spec: MlpSpec, expert?: number | "shared"): PackedMlp {
  const [gate, up, down] = (["gate", "up", "down"] as const).map((role) => linears.get(keyOf({ role, expert })));
  return joinMlp(spec, gate, up as PackedLinear, down as PackedLinear);
}

/** An MLP with the scalars of its activation, if that has any. */
function withScalars({ kernels: { memory }, where }: Packing, { vectors }: PackedWeights, mlp: PackedMlp): PackedMlp {
  if (mlp.activation.kind !== "xielu") return mlp;
  const [positive = 0, negative = 0, beta = 0, eps = 0] = mlp.activation.xielu
    ? XIELU_SCALARS.map((name) => mlp.activation.xielu?.[name])
    : Object.keys(XIELU).map((role) => memory.f32(vectors.get(role)?.at ?? 0, 1)[0]);
  // What is computed is without it, which changes nothing that float32 holds.
  if (!(Math.abs(eps) <= 1e-5))
    throw new HeadwiseError("BAD_FILE", `${where}: eps of xIELU expected a number from -1e-5 to 1e-5, got ${eps}`);
  return { ...mlp, xielu: { positive: softplus(positive), negative: beta + softplus(negative), beta } };
}

const XIELU_SCALARS = ["positive", "negative", "beta", "eps"] as const;

const softplus = (x: number): number => (x > 30 ? x : ln(1 + exp(x)));

function packedMoe(packed: PackedWeights, { topK, router, scalesInputs, experts, expert, shared }: MoeSpec): PackedMoe {
  const { linears, vectors } = packed;
  const [before, behind] = [linears.get("expertsIn"), linears.get("expertsOut")];
  return {
    ...{ topK, router, scalesInputs },
    gate: linears.get("router") as PackedLinear,
    correction: vectors.get("correction")?.at ?? NULL,
    expertScales: vectors.get("expertScales")?.at ?? NULL,
    experts: Array.from({ length: experts }, (_, e) => packedMlp(packed, expert, e)),
    shared: shared && packedMlp(packed, shared.mlp, "shared"),
    sharedGate: linears.get("sharedGate"),
    narrow: before && behind && { in: before, out: behind },
  };
}

/** Reads the tensors of a mixer, and packs it into a block of its own. */
async function loadMixer(
  packing: Packing,
  { mixer, prefix, sources }: ReturnType<typeof layerSources>["self"],
): Promise<BlockLayer> {
  const { kernels, reader, half, where, activations, attention: weights } = packing;
  const names = sources.flatMap(({ name, bias }) => (bias ? [name, bias.name] : [name]));
  const tensors = new Map(await reader.read(names));
  const { rounded } = half.spec;
  const own = { where, kernels, weights, activations, rounded, prefix, tensors, sources, readers: half.mixers.readers };
  return LOADERS[mixer.kind].load({ ...own, ownBlock: (bytes) => ownBlock(packing, bytes) }, mixer);
}
