// Recurrent layers as the mixer of a layer.

import { blocksOf, codedOf, type StoredTensor, toFloats } from "../../base/tensor/dtypes.ts";
import { rowsOf } from "../../base/tensor/matrix.ts";
import { exp, ln } from "../../base/util/math.ts";
import { CHUNK_ROWS } from "../../base/util/rows.ts";
import { expectActivations, formatOf } from "../../layers/linear/formats.ts";
import {
  checkRecurrent,
  RECURRENT_MATRICES,
  type RecurrentMatrix,
  type RecurrentVector,
  recurrentLayout,
  recurrentSizes,
  recurrentVectors,
} from "../../layers/recurrent/config.ts";
import { createRecurrentLayer, placeRecurrentRows, stateSizes } from "../../layers/recurrent/recurrent.ts";
import { recurrentStateBytes } from "../../layers/recurrent/state.ts";

import { aligned } from "../../wasm/memory.ts";
import type { RecurrentPart, RecurrentSpec, RecurrentTensor } from "../families/recurrent.ts";
import type { MixerKind, MixerLoader, MixerMemory, MixerTensor } from "./mixer.ts";
import { weightOf } from "./weight.ts";

type Name = RecurrentMatrix | RecurrentVector;

const entriesOf = <K extends string, V>(record: Readonly<Partial<Record<K, V>>>) => Object.entries(record) as [K, V][];
const isMatrix = (name: Name): name is RecurrentMatrix => (RECURRENT_MATRICES as readonly string[]).includes(name);

export const RECURRENT: MixerKind<RecurrentSpec> = {
  readsInOrder: () => true,

  *weights({ config }, of) {
    const linear = { ...of, part: "attention", bias: true } as const;
    for (const [name, { n, k }] of entriesOf(recurrentSizes(config)))
      yield weightOf(`recurrent ${name}`, "matrix", [n, k], linear);
    for (const [name, shape] of entriesOf(recurrentVectors(config)))
      yield weightOf(`recurrent ${name}`, shape.length > 1 ? "table" : "vector", shape as [number, number?], of);
  },

  plan(where, { config }, formatOf) {
    const checked = checkRecurrent(where, config);
    const { bytes, linears } = recurrentLayout(checked, (name) => formatOf(`recurrent ${name}`));
    return {
      bytes: aligned(bytes),
      rope: undefined,
      chunkRows: CHUNK_ROWS,
      state: (_where, maxSeqLen) => ({ bytes: recurrentStateBytes(stateSizes(checked), maxSeqLen), formats: 0 }),
      place: (layout, rows) => void placeRecurrentRows(checked, Object.fromEntries(linears), layout, rows),
    };
  },
};

export const RECURRENT_MEMORY: MixerMemory<RecurrentSpec> = {
  kind: "recurrent",
  keeps({ config }) {
    const { inputs, scan } = stateSizes(config);
    return { perToken: 0, window: undefined, state: inputs + scan };
  },
};

/** The tensors of a layer are those of its specification, in files of any form. */
export const recurrentTensors = ({ tensors }: RecurrentSpec): readonly MixerTensor[] =>
  tensors.map(({ name, shape, parts, bias, biased, optional, form }) => ({
    ...{ name, shape, optional: optional ?? false },
    roles: [...new Set(parts.map(({ of }) => `recurrent ${of}` as const))],
    bias: bias === undefined ? undefined : [bias, form === "blocks" ? [shape[0]!, shape[2]!] : [shape[0]!], biased],
  }));

export const RECURRENT_LOADER: MixerLoader<RecurrentSpec> = {
  load({ where, kernels, weights, activations, prefix, tensors }, { config, tensors: own, constants }) {
    const checked = checkRecurrent(where, config);
    const found = new Map<Name, { to: number; rows: StoredTensor }[]>();
    const biases: Partial<Record<Name, Float32Array>> = {};
    const sizes = recurrentSizes(checked);
    for (const tensor of own) {
      const stored = tensors.get(`${prefix}${tensor.name}`);
      if (stored === undefined) continue;
      const bias = tensor.bias === undefined ? undefined : tensors.get(`${prefix}${tensor.bias}`);
      const shifts = bias && toFloats(bias, where);
      for (const { part, begin } of partsOf(tensor)) {
        const own = tensor.form === "blocks" ? diagonalOf(stored) : asRows(stored, part.of);
        const rows = scaled(rowsOf(own, begin, begin + part.rows), part.scale);
        found.set(part.of, [...(found.get(part.of) ?? []), { to: part.to, rows }]);
        if (!shifts) continue;
        const all = biases[part.of] ?? new Float32Array(isMatrix(part.of) ? (sizes[part.of]?.n ?? 0) : 0);
        all.set(shifts.subarray(begin, begin + part.rows), part.to);
        biases[part.of] = all;
      }
    }
    const matrices: Partial<Record<RecurrentMatrix, StoredTensor>> = {};
    const vectors: Partial<Record<RecurrentVector, Float32Array>> = {};
    for (const [name, parts] of found) {
      const joined = joinRows(parts.sort((a, b) => a.to - b.to).map(({ rows }) => rows));
      if (isMatrix(name)) matrices[name] = joined;
      else vectors[name] = formed(toFloats(joined, where).slice(), own, name);
    }
    for (const [name, values] of entriesOf(constants ?? {})) vectors[name] = Float32Array.from(values);
    return createRecurrentLayer(
      where,
      kernels,
      checked,
      { matrices, biases, vectors },
      {
        formatOf: (name) => weights ?? formatOf(matrices[name] as StoredTensor, kernels.quantized),
        fast: expectActivations(where, "options.activations", activations),
      },
    );
  },
};

/** The parts of a tensor, with the first row of each. */
function* partsOf({ parts }: RecurrentTensor): Generator<{ part: RecurrentPart; begin: number }, void, void> {
  let begin = 0;
  for (const part of parts) {
    yield { part, begin };
    begin += part.rows;
  }
}

/** A tensor of any shape as a matrix of its rows: of most vectors, rows of one number; [channels, 1, taps] is [channels, taps], and of rates, [channels, components] is one. */
function asRows(tensor: StoredTensor, of: Name): StoredTensor {
  const all = tensor.shape.reduce((product, size) => product * size, 1);
  const n =
    isMatrix(of) || of === "conv" || (of === "rate" && tensor.shape.length === 2) ? (tensor.shape[0] as number) : all;
  return { ...tensor, shape: [n, all / n] };
}

/** The matrix of blocks [inputs, outputs] along its diagonal, with zeros beside them. */
function diagonalOf({ name, dtype, shape, bytes: from }: StoredTensor): StoredTensor {
  const [blocks = 0, inputs = 0, outputs = 0] = shape;
  const [k, width] = [blocks * inputs, from.length / (blocks * inputs * outputs)];
  const bytes = new Uint8Array(blocks * outputs * k * width);
  for (let b = 0; b < blocks; b++)
    for (let i = 0; i < inputs; i++)
      for (let o = 0; o < outputs; o++) {
        const at = width * ((b * inputs + i) * outputs + o);
        bytes.set(from.subarray(at, at + width), width * ((b * outputs + o) * k + b * inputs + i));
      }
  return { name, dtype, shape: [blocks * outputs, k], bytes };
}

/** A part of a vector times a factor. */
function scaled(rows: StoredTensor, factor: number | undefined): StoredTensor {
  if (factor === undefined) return rows;
  const { name, shape } = rows;
  return { name, dtype: "F32", shape, bytes: bytesOf(toFloats(rows).map((value) => value * factor)) };
}

/** Rows of matrices that follow each other as one, in float32 if their dtypes differ. */
function joinRows(stored: readonly StoredTensor[]): StoredTensor {
  if (stored.length === 1) return stored[0] as StoredTensor;
  const blocks = blocksOf(stored[0] as StoredTensor);
  const parts = stored.every((part) => blocksOf(part) === blocks) ? stored : stored.map(codedOf);
  const [first] = parts as [StoredTensor];
  const shape = [parts.reduce((sum, { shape: [n = 0] }) => sum + n, 0), first.shape[1] as number];
  const isAlike = parts.every(({ dtype }) => dtype === first.dtype);
  const all = parts.map((part) => (isAlike ? part.bytes : bytesOf(toFloats(part))));
  const bytes = new Uint8Array(all.reduce((sum, { length }) => sum + length, 0));
  let at = 0;
  for (const each of all) {
    bytes.set(each, at);
    at += each.length;
  }
  return { ...first, dtype: isAlike ? first.dtype : "F32", shape, bytes };
}

const bytesOf = (data: Float32Array): Uint8Array => new Uint8Array(data.buffer, data.byteOffset, data.byteLength);

/** Rates as positive numbers. */
function formed(data: Float32Array, tensors: readonly RecurrentTensor[], name: RecurrentVector): Float32Array {
  const form = tensors.find(({ parts }) => parts.some(({ of }) => of === name))?.form;
  if (form === "log") return data.map((value) => exp(value));
  if (form === "softplus") return data.map((value) => 8 * (Math.max(value, 0) + ln(1 + exp(-Math.abs(value)))));
  return form === "negative" ? data.map((value) => -value) : data;
}
