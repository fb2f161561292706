import type { SafetensorsFile } from "../../files/safetensors/safetensors.ts";
import type { LatentConfig } from "../../latent/config.ts";
import type { LatentWeights } from "../../latent/weights.ts";
import { shapeText } from "../../tensor/dtypes.ts";
import { describe, HeadwiseError } from "../../util/errors.ts";
import { type Matrix, tensorsBelow } from "./layer-tensors.ts";
import { readSource } from "./source.ts";

const WHERE = "readLatentWeights";
const TITLE = "DeepSeek";

/** Names of matrices below the layer's prefix. Those of queries are the first, or the other two. */
const Q = "q_proj.weight";
const Q_DOWN = "q_a_proj.weight";
const Q_UP = "q_b_proj.weight";
const KV_DOWN = "kv_a_proj_with_mqa.weight";
const KV_UP = "kv_b_proj.weight";
const O = "o_proj.weight";
const Q_NORM = "q_a_layernorm.weight";
const KV_NORM = "kv_a_layernorm.weight";

/** Tensors that every layer has, and those that projections of queries have. */
const COMMON = [KV_DOWN, KV_NORM, KV_UP, O] as const;
const DIRECT = [Q] as const;
const LOW_RANK = [Q_DOWN, Q_NORM, Q_UP] as const;
/** Matrices that can have a bias; LatentWeights has no field for one of kv_b_proj. */
const BIASED: ReadonlySet<string> = new Set([Q, Q_DOWN, Q_UP, KV_DOWN, O]);
const biasOf = (name: string): string => name.replace(/weight$/, "bias");

/** A table that follows from the configuration, in files of older programs. */
const TABLE = "rotary_emb.inv_freq";

/** Scales of matrices in the 8-bit floats in which DeepSeek-V3 is published. */
const SCALES = /\.weight_scale(_inv)?$/;

/** The tensors that a layer must have, by the rest of their names, with their shapes. */
export function latentTensors(config: LatentConfig): readonly (readonly [string, readonly number[]])[] {
  const { dModel, numHeads, kvLoraRank, qLoraRank, nopeDim, ropeDim, valueDim = nopeDim } = config;
  const q = numHeads * (nopeDim + ropeDim);
  const queries: [string, number[]][] =
    qLoraRank === undefined
      ? [[Q, [q, dModel]]]
      : [
          [Q_DOWN, [qLoraRank, dModel]],
          [Q_NORM, [qLoraRank]],
          [Q_UP, [q, qLoraRank]],
        ];
  return [
    ...queries,
    [KV_DOWN, [kvLoraRank + ropeDim, dModel]],
    [KV_NORM, [kvLoraRank]],
    [KV_UP, [numHeads * (nopeDim + valueDim), kvLoraRank]],
    [O, [dModel, numHeads * valueDim]],
  ];
}

/** The biases that a layer can have, in the same way. */
export function latentBiases(config: LatentConfig): readonly (readonly [string, readonly number[]])[] {
  return latentTensors(config)
    .filter(([name]) => BIASED.has(name))
    .map(([name, [outputs = 0]]) => [biasOf(name), [outputs]]);
}

/** Where a layer's tensors are. */
export interface LatentNames {
  /** The prefix, including its last dot. */
  readonly root: string;
  /** Whether queries have latents. */
  readonly lowRank: boolean;
  /** The tensors that are read, by the rest of their names. */
  readonly own: readonly string[];
}

/** The prefixes of the layers of latent attention among these names. */
export function latentRoots(names: readonly string[]): string[] {
  const all = new Set(names);
  const roots = names.filter((name) => name.endsWith(KV_DOWN)).map((name) => name.slice(0, -KV_DOWN.length));
  return roots.filter(
    (root) => (root === "" || root.endsWith(".")) && [KV_UP, O].every((other) => all.has(root + other)),
  );
}

/** Finds the tensors of the layer whose names begin with `prefix`. Throws if one is missing or is not understood. */
export function findLatentNames(where: string, names: readonly string[], prefix: string): LatentNames {
  const fail = (text: string): never => {
    throw new HeadwiseError("BAD_FILE", `${where}: ${text}`);
  };
  const undotted = prefix !== "" && !prefix.endsWith(".") && names.some((name) => name.startsWith(`${prefix}.`));
  const root = undotted ? `${prefix}.` : prefix;
  const below = names.filter((name) => name.startsWith(root)).map((name) => name.slice(root.length));
  if (below.length === 0) {
    const roots = latentRoots(names).slice(0, 6).map(describe).join(", ");
    fail(
      `prefix ${describe(root)} expected to begin a tensor's name, got ${roots === "" ? "none" : `layers at ${roots}`}`,
    );
  }
  const lowRank = LOW_RANK.some((name) => below.includes(name));
  const required: readonly string[] = [...(lowRank ? LOW_RANK : DIRECT), ...COMMON];
  for (const name of required)
    if (!below.includes(name)) fail(`tensor ${describe(root + name)} expected, as in ${TITLE}, got none`);
  const biases = required.filter((name) => BIASED.has(name)).map(biasOf);
  const own = [...required, ...biases.filter((name) => below.includes(name))];
  const other = below.find((name) => !own.includes(name) && name !== TABLE);
  if (other !== undefined) {
    const why = SCALES.test(other)
      ? ", since matrices of 8-bit floats with scales are unsupported: convert the file to BF16"
      : `: ${TITLE} would be read without it`;
    fail(`tensor ${describe(root + other)} expected to be absent${why}, got it`);
  }
  return { root, lowRank, own };
}

/**
 * Reads the weights of one layer of latent attention (MLA) of a safetensors file, by the names of DeepSeek's files, which the
 * models that `fromHfLatentConfig` knows have too.
 *
 * Matrices of F16, BF16, Q8_0 and Q4_0 keep their encoding (`toFloats` widens it); F64 becomes float32. Aligned F32 is not
 * copied: the weights are views of the file. Vectors become float32. Matrices of 8-bit floats are refused.
 * @param prefix What the names of the layer's tensors begin with, such as "model.layers.0.self_attn." (with or without the
 * last dot).
 * @throws TypeError or RangeError naming the argument. HeadwiseError `BAD_FILE` for a file that breaks the format, a missing
 * tensor, shapes that contradict each other, and a layer with further tensors.
 * @example
 * import { readLatentWeights, writeSafetensors } from "headwise/weights";
 * const tensor = (...shape: number[]) => ({ data: new Float32Array(shape.reduce((a, b) => a * b)), shape });
 * const layer = { "q_proj.weight": tensor(12, 8), "kv_a_proj_with_mqa.weight": tensor(5, 8),
 *   "kv_a_layernorm.weight": tensor(3), "kv_b_proj.weight": tensor(16, 3), "o_proj.weight": tensor(8, 8) };
 * console.log(readLatentWeights(writeSafetensors(layer)).wkvUp.shape); // [ 16, 3 ]
 */
export function readLatentWeights(source: Uint8Array | ArrayBuffer | SafetensorsFile, prefix = ""): LatentWeights {
  if (typeof prefix !== "string") throw new TypeError(`${WHERE}: prefix expected a string, got ${describe(prefix)}`);
  const file = readSource(WHERE, source, "readGgufLatentLayer");
  const { root, lowRank } = findLatentNames(WHERE, [...file.tensors.keys()], prefix);
  const { fail, matrix, vector } = tensorsBelow(WHERE, file, root, "out-in", TITLE);
  const kvDown = matrix(KV_DOWN);
  const kvUp = matrix(KV_UP);
  const o = matrix(O);
  const expectInputs = (each: Matrix, inputs: number, other: Matrix) => {
    if (each.inputs !== inputs)
      fail(
        `tensor ${describe(each.name)} expected ${inputs} inputs beside ${describe(other.name)} ` +
          `${shapeText(other.tensor.shape)}, got shape ${shapeText(each.tensor.shape)}`,
      );
  };
  const exactly = (name: string, n: number) => vector(name, `[${n}]`, (length) => length === n);
  const dModel = kvDown.inputs;
  if (kvUp.inputs > kvDown.outputs)
    fail(
      `tensor ${describe(kvUp.name)} expected at most ${kvDown.outputs} inputs beside ${describe(kvDown.name)} ` +
        `${shapeText(kvDown.tensor.shape)}, got shape ${shapeText(kvUp.tensor.shape)}`,
    );
  if (o.outputs !== dModel)
    fail(
      `tensor ${describe(o.name)} expected ${dModel} outputs beside ${describe(kvDown.name)} ` +
        `${shapeText(kvDown.tensor.shape)}, got shape ${shapeText(o.tensor.shape)}`,
    );
  const queries = () => {
    const q = matrix(lowRank ? Q_UP : Q);
    const bq = exactly(biasOf(lowRank ? Q_UP : Q), q.outputs);
    if (!lowRank) {
      expectInputs(q, dModel, kvDown);
      return { wq: q.tensor, bq };
    }
    const down = matrix(Q_DOWN);
    expectInputs(down, dModel, kvDown);
    expectInputs(q, down.outputs, down);
    const bqDown = exactly(biasOf(Q_DOWN), down.outputs);
    return { wqDown: down.tensor, bqDown, qNorm: exactly(Q_NORM, down.outputs), wqUp: q.tensor, bq };
  };
  const weights = {
    ...queries(),
    wkvDown: kvDown.tensor,
    bkvDown: exactly(biasOf(KV_DOWN), kvDown.outputs),
    kvNorm: exactly(KV_NORM, kvUp.inputs),
    wkvUp: kvUp.tensor,
    wo: o.tensor,
    bo: exactly(biasOf(O), dModel),
  };
  return Object.fromEntries(
    Object.entries(weights).filter(([, value]) => value !== undefined),
  ) as unknown as LatentWeights;
}
