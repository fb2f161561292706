// What becomes of the rows of a model: pooling, projections, norms, heads. The weights of these lie beside the model.

import { type StoredTensor, shapeText, toFloats } from "../base/tensor/dtypes.ts";
import type { Global } from "../base/util/arguments.ts";
import { describe, HeadwiseError } from "../base/util/errors.ts";
import { ln } from "../base/util/math.ts";
import { chunksOf } from "../base/util/rows.ts";
import { parseJson } from "../base/util/strings.ts";
import { folderOf, type ModelSource, openModelFiles } from "../files/model-files.ts";
import type { ModelStore } from "../files/store.ts";
import { createLinear, type Linear, linearAsync } from "../layers/api/linear.ts";
import type { SliceOptions } from "../layers/pass/forward.ts";
import { activateRows, ROW_SHAPE_BYTES } from "../models/blocks/rows.ts";
import {
  collectRows,
  logitsTo,
  Pool,
  type Pooling,
  poolStates,
  readBatch,
  runSliced,
  toUnit,
} from "../models/encoder/encode.ts";
import type { Encoder } from "../models/encoder/load.ts";
import type { Sequence } from "../models/encoder/pass.ts";
import type { GgufReader } from "../models/spec/read-gguf.ts";
import type { ActivationSpec } from "../models/spec/spec.ts";
import { NULL } from "../wasm/abi.ts";
import type { Kernels } from "../wasm/kernels.ts";
import { Layout, pointer } from "../wasm/memory.ts";
import type { Recipe, Stage } from "./recipe.ts";
import { type Activation, FUNCTIONS } from "./scores.ts";

/** The tokens of a text, or of a pair. */
export interface TextTokens {
  readonly ids: readonly number[];
  /** Types of tokens, for models that have them. */
  readonly types?: readonly number[] | undefined;
  /** Tokens at the beginning that are not pooled. Default 0. */
  readonly skip?: number | undefined;
  /** Tokens that are attended, from the first on. Default all. */
  readonly attended?: number | undefined;
  /** Places of the tokens whose logits are asked for. */
  readonly places?: readonly number[] | undefined;
  /** What messages call the text. Default `texts` with its index. */
  readonly name?: string | undefined;
}

/** What is asked of rows: by default what the recipe says. */
export interface RunOptions extends SliceOptions {
  readonly pooling?: Pooling | undefined;
  readonly normalize?: boolean | undefined;
}

/**
 * Runs texts for the public function `where`: a row, or rows one after the other, for each; of sparse vectors the ids above 0, and
 * behind them their weights.
 */
export type RunTexts = (where: string, batch: readonly TextTokens[], options: RunOptions) => Promise<Float32Array[]>;

/** A stage whose weights are in memory. */
type Loaded =
  | Exclude<Stage, { kind: "dense" | "norm" | "head" }>
  | {
      readonly kind: "dense";
      readonly linear: Linear;
      readonly activation: Activation;
      readonly residual: "inputs" | Linear | undefined;
    }
  | {
      readonly kind: "norm";
      readonly gain: Float32Array;
      readonly bias: Float32Array | undefined;
      readonly eps: number;
    };

/** How the files of stages are read. */
interface StageFiles {
  readonly source: ModelSource;
  readonly gguf: GgufReader;
  readonly signal?: Global<"AbortSignal"> | undefined;
  readonly store?: ModelStore | undefined;
}

/** Calls that compute at the same time, by turns: each has scratch of its own, and others wait. */
const AT_A_TIME = 4;

/** `run`, as often as AT_A_TIME at a time: others wait in the order in which they came. */
function byTurns(run: RunTexts): RunTexts {
  const waiting = new Set<() => void>();
  let running = 0;
  const wait = (signal: RunOptions["signal"]) =>
    new Promise<void>((resolve, reject) => {
      const leave = () => {
        waiting.delete(begin);
        reject(signal?.reason);
      };
      const begin = () => {
        waiting.delete(begin);
        signal?.removeEventListener("abort", leave);
        resolve();
      };
      waiting.add(begin);
      signal?.addEventListener("abort", leave);
    });
  return async (where, batch, options) => {
    options.signal?.throwIfAborted();
    if (running === AT_A_TIME) await wait(options.signal);
    else running++;
    try {
      return await run(where, batch, options);
    } finally {
      const [next] = waiting;
      if (next) next();
      else running--;
    }
  };
}

/** What runs texts, and frees the weights of its stages. */
export interface TextRunner {
  readonly run: RunTexts;
  release(): void;
}

/** Runs texts through a model and the stages of a recipe, whose weights are read from the files. */
export async function createRunner(
  where: string,
  model: Encoder,
  recipe: Recipe,
  files: StageFiles,
): Promise<TextRunner> {
  if (recipe.gives === "fill" || recipe.gives === "sparse") expectVocabularyHead(where, model);
  const stages = await loadStages(where, model, recipe, files);
  const isTyped = recipe.texts.types && (model.spec.embed.types ?? 0) > 1;
  const run: RunTexts = async (where, batch, options) => {
    const { pooling, normalize, ...slices } = options;
    // Texts of about one length run together.
    const order = Array.from(batch.keys()).sort((a, b) => batchLength(batch, b) - batchLength(batch, a));
    const sequences = readSequences(where, model, batch, order, isTyped);
    const own = pooling === undefined && normalize === undefined ? stages : overridden(stages, pooling, normalize);
    const rows = await runStages(where, model, recipe, own, sequences, slices);
    const results: Float32Array[] = new Array(batch.length);
    for (const [at, i] of order.entries()) results[i] = rows[at] as Float32Array;
    return results;
  };
  return { run: byTurns(run), release: () => releaseStages(stages) };
}

function releaseStages(stages: readonly Loaded[]): void {
  for (const stage of stages) {
    if (stage.kind !== "dense") continue;
    stage.linear.release();
    if (typeof stage.residual === "object") stage.residual.release();
  }
}

const batchLength = (batch: readonly TextTokens[], i: number) => (batch[i] as TextTokens).ids.length;

/** A sequence with what only some outputs read. */
interface RunSequence extends Sequence {
  readonly skip: number;
  readonly places: readonly number[] | undefined;
}

/** The texts in an order, checked: a tokenizer may have tokens that the model lacks. */
function readSequences(
  where: string,
  model: Encoder,
  batch: readonly TextTokens[],
  order: readonly number[],
  isTyped: boolean,
): RunSequence[] {
  const ordered = order.map((i) => batch[i] as TextTokens);
  const tokenTypes = isTyped ? ordered.map(({ ids, types }) => types ?? ids.map(() => 0)) : undefined;
  const ids = ordered.map((text) => text.ids);
  const sequences = readBatch(where, model, ids, { tokenTypes }, (i) => ordered[i]?.name ?? `texts[${order[i]}]`);
  return sequences.map((sequence, i) => {
    const { skip = 0, attended, places } = ordered[i] as TextTokens;
    return { ...sequence, skip, attended, places };
  });
}

/** The stages with another pooling, or another rule for lengths. */
function overridden(stages: readonly Loaded[], pooling: Pooling | undefined, normalize: boolean | undefined): Loaded[] {
  const pooled = stages.map((stage) => (stage.kind === "pool" && pooling ? { ...stage, modes: [pooling] } : stage));
  if (normalize === undefined) return pooled;
  const others = pooled.filter(({ kind }) => kind !== "unit");
  return normalize ? [...others, { kind: "unit" }] : others;
}

function expectVocabularyHead(where: string, { weights }: Encoder): void {
  if (weights.transform) return;
  throw new HeadwiseError(
    "BAD_FILE",
    `${where}: source expected a model whose file has a head for masked tokens, got one without`,
  );
}

/** All rows of each sequence through the stages. */
async function runStages(
  where: string,
  model: Encoder,
  { gives, sparse }: Recipe,
  stages: readonly Loaded[],
  sequences: readonly RunSequence[],
  slices: SliceOptions,
): Promise<Float32Array[]> {
  if (gives === "sparse" && sparse) return runSparse(where, model, sparse, sequences, slices);
  if (gives === "fill" && sequences[0]?.places) return runPlaces(where, model, sequences, slices);
  const [first, second] = stages;
  let rows: Float32Array[];
  let rest = stages;
  if (first?.kind === "pool") {
    const pools = sequences.map(
      ({ ids, skip }) => new Pool(first.modes, model.vectorDim, { first: skip, count: ids.length }),
    );
    await runSliced(where, model, sequences, poolStates(model, pools), slices);
    const isUnit = second?.kind === "unit";
    rows = pools.map((pool) => pool.result(isUnit));
    rest = stages.slice(isUnit ? 2 : 1);
  } else {
    const { results, output } = collectRows(where, model, sequences);
    await runSliced(where, model, sequences, output, slices);
    rows = results;
  }
  let width = first?.kind === "pool" ? model.vectorDim * first.modes.length : model.vectorDim;
  for (const stage of rest) {
    if (stage.kind === "dense") {
      rows = await throughDense(where, stage, rows, slices);
      width = stage.linear.outputs;
    } else if (stage.kind === "pool") {
      const from = width;
      rows = rows.map((own, i) => {
        const count = own.length / from;
        const pool = new Pool(stage.modes, from, { first: sequences[i]?.skip ?? 0, count });
        for (let row = 0; row < count; row++) pool.add(row, own, row * from);
        return pool.result();
      });
      width = from * stage.modes.length;
    } else {
      const size = width;
      rows = rows.map((own) => eachRow(own, size, stage.kind === "unit" ? toUnit : (row) => normalised(row, stage)));
    }
  }
  return rows;
}

/** Rows of all texts through one product. */
async function throughDense(
  where: string,
  { linear, activation, residual }: Loaded & { kind: "dense" },
  rows: readonly Float32Array[],
  { signal, sliceMs }: SliceOptions,
): Promise<Float32Array[]> {
  const all = new Float32Array(rows.reduce((sum, { length }) => sum + length, 0));
  let at = 0;
  for (const own of rows) {
    all.set(own, at);
    at += own.length;
  }
  const out = await linearAsync(linear, all, { signal, sliceMs });
  if (activation !== "identity") activate(where, linear.kernels, activation, out);
  if (residual !== undefined) {
    const added = residual === "inputs" ? all : await linearAsync(residual, all, { signal, sliceMs });
    for (let i = 0; i < out.length; i++) out[i]! += added[i] as number;
  }
  at = 0;
  return rows.map(({ length }) => {
    const count = (length / linear.inputs) * linear.outputs;
    at += count;
    return out.slice(at - count, at);
  });
}

function eachRow(rows: Float32Array, width: number, make: (row: Float32Array) => Float32Array): Float32Array {
  const made = new Float32Array(rows.length);
  for (let at = 0; at < rows.length; at += width) made.set(make(rows.subarray(at, at + width)), at);
  return made;
}

/** (x - mean) / sqrt(variance + eps) * gain + bias. */
function normalised(row: Float32Array, { gain, bias, eps }: Loaded & { kind: "norm" }): Float32Array {
  const n = row.length;
  const mean = row.reduce((sum, x) => sum + x, 0) / n;
  const variance = row.reduce((sum, x) => sum + (x - mean) * (x - mean), 0) / n;
  const root = Math.sqrt(variance + eps);
  return row.map((x, i) => ((x - mean) / root) * (gain[i] as number) + (bias?.[i] ?? 0));
}

const KERNELS: Partial<Record<Activation, ActivationSpec>> = {
  gelu: { kind: "gelu", alpha: 1 },
  gelu_new: { kind: "gelu-tanh", alpha: 1 },
  silu: { kind: "swish", alpha: 1 },
};
/** Floats that go through a kernel at a time. */
const KERNEL_FLOATS = 2 ** 16;

/** Applies an activation to numbers in place. */
function activate(where: string, kernels: Kernels, activation: Activation, values: Float32Array): void {
  const own = activation in FUNCTIONS ? FUNCTIONS[activation as keyof typeof FUNCTIONS] : undefined;
  const spec = KERNELS[activation];
  if (own) for (let i = 0; i < values.length; i++) values[i] = own(values[i] as number);
  if (!spec) return;
  const layout = new Layout();
  const places = { x: layout.floats(KERNEL_FLOATS), shape: layout.take(ROW_SHAPE_BYTES) };
  const base = kernels.memory.scratch(where, layout.bytes);
  for (const [begin, end] of chunksOf(values.length, KERNEL_FLOATS)) {
    const n = end - begin;
    const rows = { at: pointer.f32(base + places.x), stride: n };
    kernels.memory.f32(rows.at, n).set(values.subarray(begin, end));
    activateRows({ kernels, base, shape: places.shape }, spec, rows, NULL, n, 1);
    values.set(kernels.memory.f32(rows.at, n), begin);
  }
}

// Logits of the vocabulary.

/** Texts whose weights of the vocabulary are computed together. */
const SPARSE_TOGETHER = 16;

/** How much each token of the vocabulary says of a text: log(1 + max(0, logit)), the largest or the sum over its tokens. */
async function runSparse(
  where: string,
  model: Encoder,
  { strategy, logs }: NonNullable<Recipe["sparse"]>,
  sequences: readonly RunSequence[],
  slices: SliceOptions,
): Promise<Float32Array[]> {
  const once = (x: number) => ln(1 + Math.max(0, x));
  const apply = logs === 1 ? once : (x: number) => once(once(x));
  const results: Float32Array[] = [];
  // A few at a time, since each takes a number for each token of the vocabulary.
  for (const [begin, end] of chunksOf(sequences.length, SPARSE_TOGETHER)) {
    const { onProgress, ...rest } = slices;
    const report = (done: number) => onProgress?.((begin + done * (end - begin)) / sequences.length);
    const own = sequences.slice(begin, end);
    results.push(...(await runVocabulary(where, model, strategy, apply, own, { ...rest, onProgress: report })));
  }
  return results;
}

/** The ids and weights of a few texts. */
async function runVocabulary(
  where: string,
  model: Encoder,
  strategy: "max" | "sum",
  apply: (x: number) => number,
  sequences: readonly RunSequence[],
  slices: SliceOptions,
): Promise<Float32Array[]> {
  const sums = sequences.map(() => new Float64Array(model.vocabSize));
  const places = sequences.map(({ ids }) => Array.from(ids.keys()));
  const output = logitsTo(model, places, (row, sequence) => {
    const sum = sums[sequence] as Float64Array;
    const logits = row.logits();
    // The function ascends: it is taken of the largest in the end.
    if (strategy === "max")
      for (let i = 0; i < sum.length; i++) sum[i] = Math.max(sum[i] as number, logits[i] as number);
    else for (let i = 0; i < sum.length; i++) sum[i]! += apply(logits[i] as number);
  });
  await runSliced(where, model, sequences, output, slices);
  return sums.map((sum) => {
    const weights = Float32Array.from(sum, strategy === "max" ? apply : (x) => x);
    const ids = Array.from(weights.keys()).filter((id) => weights[id] !== 0);
    return Float32Array.from([...ids, ...ids.map((id) => weights[id] as number)]);
  });
}

/** The logits of all tokens at the places that are asked for, [places, vocabSize]. */
async function runPlaces(
  where: string,
  model: Encoder,
  sequences: readonly RunSequence[],
  slices: SliceOptions,
): Promise<Float32Array[]> {
  const places = sequences.map(({ places = [] }) => places);
  const results = places.map(({ length }) => new Float32Array(length * model.vocabSize));
  const output = logitsTo(model, places, (row, sequence, i) =>
    results[sequence]?.set(row.logits(), i * model.vocabSize),
  );
  await runSliced(where, model, sequences, output, slices);
  return results;
}

// Weights.

async function loadStages(where: string, model: Encoder, recipe: Recipe, files: StageFiles): Promise<Loaded[]> {
  const { answers } = recipe.asks ?? {};
  const found: Loaded[] = [];
  let own: Opened | undefined;
  const open = async (folder: string): Promise<Opened> => {
    if (folder !== "") return openTensors(where, folderOf(files.source, folder), files);
    own ??= await openTensors(where, folderOf(files.source, recipe.base ?? ""), files);
    return own;
  };
  try {
    for (const stage of recipe.stages) {
      if (stage.kind !== "head") {
        found.push(await loadStage(where, model, stage, open));
        continue;
      }
      const { names, config } = await open("");
      for (const each of headStages(where, stage.of, config, names))
        found.push(await loadStage(where, model, each, open));
    }
    if (answers) found.push(await loadStage(where, model, { ...(await answerStage(open, answers)) }, open));
    return found;
  } catch (error) {
    releaseStages(found);
    throw error;
  } finally {
    await own?.close();
  }
}

async function loadStage(
  where: string,
  { kernels }: Encoder,
  stage: Exclude<Stage, { kind: "head" }>,
  open: (folder: string) => Promise<Opened>,
): Promise<Loaded> {
  if (stage.kind === "pool" || stage.kind === "unit") return stage;
  const opened = await open(stage.folder);
  const close = async () => {
    if (stage.folder !== "") await opened.close();
  };
  try {
    const floats = async (name: string) => (await opened.read(name)).data;
    const bias = stage.bias === undefined ? undefined : await floats(stage.bias);
    if (stage.kind === "norm") return { kind: "norm", gain: await floats(stage.gain), bias, eps: stage.eps };
    const weight = await opened.read(stage.weight, stage.rows);
    const own = stage.residual;
    const added = typeof own === "object" ? await opened.read(own.weight) : undefined;
    const given = shapeText(weight.shape);
    // What is added to the outputs: the inputs, or their product with a matrix.
    const residualShape = added?.shape ?? [...weight.shape].reverse();
    if (own !== undefined && shapeText(residualShape) !== given) {
      const got = `${given}${added ? ` and ${shapeText(added.shape)}` : ""}`;
      const rule = `as many outputs as its residual in ${describe(stage.folder)}`;
      throw new HeadwiseError("BAD_FILE", `${where}: tensor ${describe(stage.weight)} expected ${rule}, got ${got}`);
    }
    const linear = createLinear(kernels, { weight, ...(bias && { bias }) });
    try {
      const residual = added === undefined ? (own as "inputs" | undefined) : createLinear(kernels, { weight: added });
      return { kind: "dense", linear, activation: stage.activation, residual };
    } catch (error) {
      linear.release();
      throw error;
    }
  } finally {
    await close();
  }
}

/** The rows of a head, or of the table of tokens that it is tied to, for two answers. */
async function answerStage(open: (folder: string) => Promise<Opened>, rows: readonly number[]) {
  const { names } = await open("");
  const weight = ["lm_head.weight", "output.weight", "model.embed_tokens.weight", "token_embd.weight"].find((name) =>
    names.includes(name),
  );
  return { kind: "dense", folder: "", weight: weight ?? "lm_head.weight", activation: "identity", rows } as const;
}

/** Opened files with tensors of stages. */
interface Opened {
  readonly names: readonly string[];
  readonly config: Readonly<Record<string, unknown>>;
  /** A tensor as float32; of a matrix, all rows or those. */
  read(
    name: string,
    rows?: readonly number[],
  ): Promise<{ readonly data: Float32Array; readonly shape: readonly number[] }>;
  close(): Promise<void>;
}

async function openTensors(where: string, source: ModelSource, { gguf, signal, store }: StageFiles): Promise<Opened> {
  const { description, file, tensors, close } = await openModelFiles(where, source, gguf.open, signal, store);
  return {
    names: [...tensors.keys()],
    config: typeof description === "string" ? Object(parseJson(where, "config.json", description)) : {},
    async read(name, rows) {
      const entry = tensors.get(name);
      if (entry === undefined)
        throw new HeadwiseError("BAD_FILE", `${where}: tensors expected ${describe(name)}, got none`);
      const { shape } = entry;
      if (rows === undefined) {
        const stored = (await file.readAll([name], where)).get(name) as StoredTensor;
        return { data: toFloats(stored, where).slice(), shape };
      }
      const width = shape[1] ?? 0;
      const data = new Float32Array(rows.length * width);
      for (const [i, row] of rows.entries()) {
        const stored = await file.readRows(name, row, row + 1, where);
        data.set(toFloats(stored, where), i * width);
      }
      return { data, shape: [rows.length, width] };
    },
    close,
  };
}

// Heads, by the names of tensors.

/** Words of config.json. */
const HIDDEN: Readonly<Record<string, Activation>> = {
  ...{ tanh: "tanh", relu: "relu", gelu: "gelu", silu: "silu", swish: "silu", linear: "identity" },
  ...{ gelu_new: "gelu_new", gelu_pytorch_tanh: "gelu_new", gelu_fast: "gelu_new", sigmoid: "sigmoid" },
};

/** The stages of a head: `names` are the tensors of the model. */
function headStages(
  where: string,
  of: "sequence" | "token" | "answer" | "gguf",
  config: Readonly<Record<string, unknown>>,
  names: Iterable<string>,
): Exclude<Stage, { kind: "head" }>[] {
  const known = new Map(Array.from(names, (name) => [name.replace(/^[a-z]+(?:_[a-z]+)*\.(?=pooler\.)/, ""), name]));
  const has = (name: string) => known.has(`${name}.weight`);
  const dense = (name: string, activation: Activation): Stage & { kind: "dense" } => ({
    ...{ kind: "dense", folder: "", weight: known.get(`${name}.weight`) as string, activation },
    bias: known.get(`${name}.bias`),
  });
  if (of === "gguf") {
    const hidden = ["cls"].filter(has).map((name) => dense(name, "tanh"));
    const widened = ["dense_2", "dense_3"].filter(has).map((name) => dense(name, "identity"));
    return [...hidden, ...widened, ...["cls.output"].filter(has).map((name) => dense(name, "identity"))];
  }
  const wordOf = (value: unknown, fallback: Activation) => HIDDEN[String(value)] ?? fallback;
  const before = (): Exclude<Stage, { kind: "head" }>[] => {
    if (has("head.dense")) {
      const bias = known.get("head.norm.bias");
      return [
        dense("head.dense", wordOf(config.classifier_activation, "gelu")),
        {
          ...{ kind: "norm", folder: "", gain: known.get("head.norm.weight") as string },
          ...{ ...(bias ? { bias } : {}), eps: typeof config.norm_eps === "number" ? config.norm_eps : 1e-5 },
        },
      ];
    }
    if (of !== "sequence") return [];
    if (has("classifier.dense")) return [dense("classifier.dense", config.model_type === "electra" ? "gelu" : "tanh")];
    if (has("pre_classifier")) return [dense("pre_classifier", "relu")];
    if (has("dense")) return [dense("dense", "gelu")];
    const pooler = ["pooler.dense", "pooler"].find(has);
    // DeBERTa names the activation of its pooler.
    return pooler ? [dense(pooler, wordOf(config.pooler_hidden_act, "tanh"))] : [];
  };
  const last = ["classifier.out_proj", "classifier", "score", "qa_outputs"].find(has);
  if (last === undefined)
    throw new HeadwiseError(
      "BAD_FILE",
      `${where}: tensors expected a head (classifier, score or qa_outputs), got none`,
    );
  return [...before(), dense(last, "identity")];
}
