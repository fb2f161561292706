// Reads the tensors of a decoder one after the other and packs them into their places.

import { PANEL } from "../../../assembly/layout.ts";
import { FLOAT_DTYPE_RULE, FLOAT_DTYPES, isCoded, type StoredTensor } from "../../base/tensor/dtypes.ts";
import { cutOutputs, type MatrixLayout, rowsOf } from "../../base/tensor/matrix.ts";
import { toFloats } from "../../base/tensor/to-floats.ts";
import { describe, HeadwiseError } from "../../base/util/errors.ts";
import { chunksOf } from "../../base/util/rows.ts";
import type { TensorReader } from "../../files/read-ahead.ts";
import type { PackedFormat, PackedLinear, WeightFormat } from "../../layers/linear/formats/format.ts";
import { expectFormatLoaded, FORMATS, formatOf } from "../../layers/linear/formats/formats.ts";
import { packMatrix, stagedFloats } from "../../layers/linear/pack.ts";
import { type LinearPlace, storeLinear } from "../../layers/linear/products.ts";
import type { Kernels } from "../../wasm/kernels.ts";
import { pointer } from "../../wasm/memory.ts";
import type { TensorFacts } from "../spec/check-tensors.ts";

/** Options of loading that a reader knows. */
interface ReaderOptions {
  readonly where: string;
  readonly kernels: Kernels;
  readonly layout: MatrixLayout;
  /** About how many bytes of a large matrix are read at a time. */
  readonly pieceBytes: number;
  /** Called before each read, and throws if loading must not go on. */
  readonly expectActive: () => void;
  /** Called with the bytes of what was read. */
  readonly onRead: (bytes: number) => void;
}

/** What is known of the formats of tensors before they are read. */
export interface StoredMatrices {
  readonly tensors: ReadonlyMap<string, TensorFacts>;
  has(name: string): boolean;
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
    has: (name) => tensors.has(name),
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

  /** Reads tensors, those that lie near each other with one request. The next read overwrites them. */
  async read(names: readonly string[]): Promise<ReadonlyMap<string, StoredTensor>> {
    const { where, expectActive, onRead } = this.#options;
    expectActive();
    const found = await this.#file.readAll(names, where);
    // Again: a read takes long, and memory may have been released meanwhile.
    expectActive();
    for (const name of names) onRead(this.#factsOf(name).bytes);
    return found;
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

  /** Reads matrix `index` of a tensor [matrices, rows, columns]. */
  async matrixOf(name: string, index: number): Promise<StoredTensor> {
    // One alone may be a matrix.
    if (this.#factsOf(name).shape.length < 3) return this.matrix(name);
    const found = await this.#readRows(name, index, index + 1);
    return { ...found, shape: found.shape.slice(1) };
  }

  has(name: string): boolean {
    return this.tensors.has(name);
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

  async matrix(name: string): Promise<StoredTensor> {
    return (await this.read([name])).get(name) as StoredTensor;
  }

  /** A vector as floats, which stay; undefined if the file has none of this name. */
  async vector(name: string): Promise<Float32Array | undefined> {
    return this.has(name) ? toFloats(await this.matrix(name), this.#options.where).slice() : undefined;
  }

  /** Packs NAME.weight, and NAME.bias if there is one. */
  async linear(
    base: number,
    place: LinearPlace,
    name: string,
    staging: number,
    layout?: MatrixLayout,
  ): Promise<PackedLinear> {
    const bias = await this.vector(`${name}.bias`);
    if (this.#isLarge(`${name}.weight`, layout))
      return this.#linearByPieces(base, place, `${name}.weight`, 0, bias, staging);
    const matrix = await this.matrix(`${name}.weight`);
    const { shape } = matrix;
    const rows = shape.length === 1 ? { ...matrix, shape: [1, ...shape] } : matrix;
    return this.store(base, place, rows, bias, staging, layout);
  }

  /** Whether a matrix is read in pieces: if it is large, and stored [outputs, inputs]. */
  #isLarge(name: string, layout: MatrixLayout = this.#options.layout): boolean {
    return layout === "out-in" && this.#factsOf(name).bytes > this.#options.pieceBytes;
  }

  #factsOf(name: string): TensorFacts {
    return this.tensors.get(name) as TensorFacts;
  }

  /** Packs outputs of a matrix [outputs, inputs] from `from` on, some panels at a time, so that only those are held twice. */
  async #linearByPieces(
    base: number,
    place: LinearPlace,
    name: string,
    from: number,
    bias: Float32Array | undefined,
    staging: number,
  ): Promise<PackedLinear> {
    const { kernels, pieceBytes } = this.#options;
    const { bytes, shape } = this.#factsOf(name);
    const panelBytesRead = (bytes / (shape[0] as number)) * PANEL;
    for (const [begin, end] of chunksOf(place.n, PANEL * Math.max(1, Math.floor(pieceBytes / panelBytesRead)))) {
      const piece = await this.#readRows(name, from + begin, from + end);
      packRows(kernels, base, place, begin, piece, staging);
    }
    return storeLinear(kernels, base, place, undefined, "out-in", bias, staging);
  }

  /** Packs outputs of two projections that are one tensor: the first `first.n`, and the rest. */
  async halves(
    base: number,
    [first, second]: readonly [LinearPlace, LinearPlace],
    name: string,
    staging: number,
  ): Promise<[PackedLinear, PackedLinear]> {
    const { layout } = this.#options;
    const bias = await this.vector(`${name}.bias`);
    const biasOf = ({ n }: LinearPlace, from: number) => bias?.subarray(from, from + n);
    if (this.#isLarge(`${name}.weight`)) {
      const pieces = (place: LinearPlace, from: number) =>
        this.#linearByPieces(base, place, `${name}.weight`, from, biasOf(place, from), staging);
      return [await pieces(first, 0), await pieces(second, first.n)];
    }
    const matrix = await this.matrix(`${name}.weight`);
    const part = (place: LinearPlace, from: number) => {
      const own = cutOutputs(matrix, layout, from, from + place.n);
      return this.store(base, place, own, biasOf(place, from), staging);
    };
    return [part(first, 0), part(second, first.n)];
  }

  /** Packs a matrix that was read. */
  store(
    base: number,
    place: LinearPlace,
    matrix: StoredTensor,
    bias: Float32Array | undefined,
    staging: number,
    layout: MatrixLayout = this.#options.layout,
  ): PackedLinear {
    const { kernels } = this.#options;
    if (layout === "in-out") return storeLinear(kernels, base, place, matrix, layout, bias, staging);
    packRows(kernels, base, place, 0, matrix, staging);
    return storeLinear(kernels, base, place, undefined, layout, bias, staging);
  }
}

// Packs matrices [outputs, inputs] of a file, a part at a time. 16-bit floats are widened by a kernel, in the memory that packing
// goes through: JavaScript takes as long for that as packing.

/**
 * Packs outputs from `first` on, a multiple of 8, into their place in the block at `base`. `staging` has room for stagedFloats of
 * the whole.
 */
function packRows(
  kernels: Kernels,
  base: number,
  { n, k, format, w, sums, mins }: LinearPlace,
  first: number,
  matrix: StoredTensor,
  staging: number,
): void {
  const isWidened = /^B?F16$/.test(matrix.dtype) && format.toUpperCase() !== matrix.dtype;
  const rows = PANEL * Math.floor(stagedFloats({ n, k }) / (PANEL * k));
  for (const [begin, end] of chunksOf(matrix.shape[0] as number, rows)) {
    const piece = rowsOf(matrix, begin, end);
    const panel = (first + begin) / PANEL;
    const to = {
      ...{ format, w: base + w + panel * FORMATS[format].panelBytes(k) },
      ...{
        sums: base + sums + panel * FORMATS[format].sumBytes(k),
        mins: base + mins + panel * FORMATS[format].minBytes(k),
      },
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
