// `headwise run`: a layer on rows, or a whole decoder on a list of tokens.

import { basename } from "node:path";
import { type CacheFormat, HeadwiseError, type Kernels, type WeightFormat } from "../entries/core.ts";
import { digestFloats, type NextToken, nextTokens } from "../entries/inspect.ts";
import { createSession, forward, type Model } from "../entries/models.ts";
import { FileError, readArguments, readChoice, readCount, UsageError } from "./args.ts";
import { interpretFile, isNpy, isRows, isSafetensors, readBytes, readNpy } from "./files.ts";
import { type LayerRun, median, PARTS, readLayer, readLayerNumber, runLayer } from "./layer.ts";
import { type LoadValues, openDecoder, readIds, seededFloats, startKernels } from "./load.ts";
import { helpOf, KERNEL_OPTIONS, LOAD_OPTIONS, OUTPUT_OPTIONS, readCommon } from "./options.ts";
import { columnsText, paint, plainText, print, sizeText } from "./terminal.ts";

// `headwise run FOLDER --ids LIST`: a whole decoder on a list of tokens.

/** What to run, checked. */
interface ModelWork {
  readonly ids: readonly number[];
  /** How many of the largest logits are shown. */
  readonly top: number;
  /** How many of the ids, the last ones, are read one by one in the second run. */
  readonly decode: number;
  readonly weights: WeightFormat | undefined;
  readonly cache: CacheFormat | undefined;
  readonly threads: number | "auto" | undefined;
  readonly deterministic: boolean;
  readonly json: boolean;
  readonly loading: LoadValues;
}

/** What a run gives. */
interface ModelRun extends Readings {
  readonly folder: string;
  readonly type: string;
  readonly layers: number;
  readonly vocabSize: number;
  /** Bytes of the weights. */
  readonly bytes: number;
  readonly loadMs: number;
  readonly kernels: Pick<Kernels, "build" | "reason" | "threads">;
  readonly top: readonly NextToken[];
  /** Of all logits of the next token. */
  readonly digest: string;
}

/** How long reading the ids took, and whether both ways gave the same logits. */
interface Readings {
  readonly sessionBytes: number;
  readonly prefill: { readonly tokens: number; readonly ms: number };
  /** Undefined if no token is read by itself. */
  readonly decode?: { readonly tokens: number; readonly past: number; readonly ms: number; readonly same: boolean };
}

/** Reads the ids at once, and again with the last of them one by one; compares and prints the logits of the next token. */
async function runModel(folder: string, { loading, ...work }: ModelWork): Promise<void> {
  const { ids, weights, threads, deterministic } = work;
  const asked = { weights, threads, deterministic, maxSeqLen: ids.length };
  const { opened, model, kernels, loadMs } = await openDecoder("run", folder, loading, asked);
  try {
    const outside = ids.find((id) => id >= model.vocabSize);
    if (outside !== undefined)
      throw new UsageError(`run: --ids expected ids below ${model.vocabSize}, those of the model, got ${outside}`);
    const { type, layers, vocabSize, bytes } = model;
    const { logits, ...readings } = readTokens(model, work);
    const { build, reason, threads: used } = kernels;
    const report: ModelRun = {
      ...{ folder, type, layers, vocabSize, bytes, loadMs, kernels: { build, reason, threads: used } },
      ...{ ...readings, top: nextTokens(logits, work.top), digest: digestFloats(logits) },
    };
    print(work.json ? JSON.stringify(report, null, 2) : reportText(report));
    if (report.decode?.same === false) process.exitCode = 1;
  } finally {
    opened.release();
  }
}

function readTokens(
  model: Model,
  { ids, decode, cache: format }: Omit<ModelWork, "loading">,
): Readings & { readonly logits: Float32Array } {
  const past = Math.max(1, ids.length - decode);
  using whole = createSession(model, { maxSeqLen: ids.length, format });
  const began = performance.now();
  const { logits } = forward(whole, ids);
  const prefill = { tokens: ids.length, ms: performance.now() - began };
  const sessionBytes = whole.bytes;
  if (past >= ids.length) return { logits, sessionBytes, prefill };
  using stepped = createSession(model, { maxSeqLen: ids.length, format });
  forward(stepped, ids.slice(0, past));
  const times: number[] = [];
  let last = logits;
  for (const id of ids.slice(past)) {
    const start = performance.now();
    last = forward(stepped, [id]).logits;
    times.push(performance.now() - start);
  }
  const same = last.every((logit, i) => Object.is(logit, logits[i]));
  return { logits, sessionBytes, prefill, decode: { tokens: times.length, past, ms: median(times), same } };
}

function reportText(run: ModelRun): string {
  const { kernels, prefill, decode } = run;
  const perSecond = (tokens: number, ms: number) => `${((1000 * tokens) / ms).toFixed(1)} tokens/s`;
  const verdict =
    decode &&
    (decode.same
      ? paint("green", "the logits have the same bits")
      : paint("red", "FAILED: the logits have other bits"));
  const rows = [
    ["model", `${run.type}, ${run.layers} layers, ${sizeText(run.bytes)}, loaded in ${run.loadMs.toFixed(0)} ms`],
    ["session", `${prefill.tokens} tokens, ${sizeText(run.sessionBytes)}`],
    ["build", `${kernels.build}: ${kernels.reason}`],
    ["threads", `${kernels.threads.used}: ${kernels.threads.reason}`],
    ["prefill", `${prefill.ms.toFixed(2)} ms for ${prefill.tokens} tokens: ${perSecond(prefill.tokens, prefill.ms)}`],
    [
      "decode",
      decode
        ? `${decode.ms.toFixed(2)} ms per token after ${decode.past}: ${perSecond(1, decode.ms)}`
        : "none: no token is decoded",
    ],
    ...(verdict === undefined ? [] : [["identity", `prefill = decode: ${verdict}`]]),
    ["logits", `[${run.vocabSize}], digest ${run.digest}`],
  ];
  const table = run.top.map(({ id, logit, probability }) => [
    ...[`${id}`, logit.toPrecision(6), `${(100 * probability).toFixed(2)} %`],
  ]);
  const lines = rows.map(([title = "", text]) => `${title.padEnd(10)}${text}`).join("\n");
  return `${lines}\n\n${columnsText([["id", "logit", "probability"], ...table], 0)}`;
}

const HELP = `headwise run MODEL [options]
headwise run FOLDER --ids LIST [options]

Runs and times one attention layer of MODEL: a safetensors file, a model.safetensors.index.json, a
folder with one of them, or a GGUF file. Prints the configuration, the milliseconds of a prefill and
of a decoded token, the first outputs, a digest of all outputs, and whether prefill and decode give
the same bits. Exits with 1 if they do not.

With --ids, runs the whole decoder FOLDER (also a GGUF file, a URL, or "owner/name" of a model on a hub): reads the tokens of LIST, and prints the largest logits of the next token.

  --ids LIST          token ids, separated by commas
  --top N             how many of the largest logits are printed (default 10)
  --layer N           index of the layer (default: the number in --prefix, else 0)
  --part PART         which attention of an encoder-decoder model: encoder, decoder, cross (default:
                      found by --prefix)
  --config FILE       the model's config.json (default: the one beside MODEL; GGUF needs none)
  --prefix TEXT       start of the names of the layer's tensors (default: found by --layer)
  --tokens N          number of tokens (default 128)
  --decode N          how many of them, the last ones, to decode one by one (default 32)
  --input FILE        input rows [tokens, dModel] or [1, tokens, dModel]: .npy of <f4 or <f8, or raw
                      float32 (default: seeded random numbers)
  --keys FILE         rows [tokens, dModel] of an encoder, in the same form: what cross-attention
                      projects keys and values from
${helpOf("weights", "cache", "threads", "deterministic", "no-store", "quiet", "json")}`;

const OPTIONS = {
  ids: { type: "string" },
  top: { type: "string" },
  layer: { type: "string" },
  part: { type: "string" },
  config: { type: "string" },
  prefix: { type: "string" },
  tokens: { type: "string" },
  decode: { type: "string" },
  input: { type: "string" },
  keys: { type: "string" },
  weights: { type: "string" },
  cache: { type: "string" },
  ...KERNEL_OPTIONS,
  ...LOAD_OPTIONS,
  ...OUTPUT_OPTIONS,
} as const;

const MOST_TOKENS = 2 ** 20;
const DECODED = 32;
const TOP = 10;
/** Options of a layer, which a whole decoder does not take. */
const OF_LAYERS = ["layer", "part", "config", "prefix", "tokens", "input", "keys"] as const;

/** `headwise run`. */
export async function run(args: string[]): Promise<void> {
  const { values, positionals } = readArguments("run", args, OPTIONS);
  if (values.help) return print(HELP);
  const [model, ...more] = positionals;
  if (model === undefined || more.length > 0) throw new UsageError(`run: expected one file, got ${positionals.length}`);
  return values.ids === undefined ? runOneLayer(model, values) : runWhole(model, values, values.ids);
}

type Values = ReturnType<typeof readArguments<typeof OPTIONS>>["values"];

/** Checks the options of a whole decoder, and runs it. */
function runWhole(folder: string, values: Values, list: string): Promise<void> {
  const wrong = OF_LAYERS.find((name) => values[name] !== undefined);
  if (wrong) throw new UsageError(`run: --${wrong} expected none beside --ids, got ${values[wrong]}`);
  const ids = readIds("run", "--ids", list);
  const count = (name: "top" | "decode", least: number, most: number) =>
    values[name] === undefined ? undefined : readCount("run", `--${name}`, values[name], least, most);
  return runModel(folder, {
    ids,
    top: count("top", 1, MOST_TOKENS) ?? TOP,
    decode: count("decode", 0, ids.length - 1) ?? DECODED,
    ...readCommon("run", values),
    deterministic: values.deterministic,
    json: values.json,
    loading: values,
  });
}

/** Checks the options of a layer, and runs it. */
async function runOneLayer(model: string, values: Values): Promise<void> {
  if (values.top !== undefined) throw new UsageError("run: --top expected --ids beside it, got none");
  const layer = readLayerNumber("run", values.layer);
  const part = readChoice("run", "--part", values.part, PARTS);
  const tokens = values.tokens === undefined ? undefined : readCount("run", "--tokens", values.tokens, 1, MOST_TOKENS);
  const { weights, cache, threads } = readCommon("run", values);

  const began = performance.now();
  const { path, prefix, cross, layer: read } = await readLayer("run", model, { ...values, layer, part });
  const readMs = performance.now() - began;
  if (cross && values.keys === undefined)
    throw new UsageError(
      `run: --keys expected a file with the encoder's rows for ${prefix}, cross-attention, got none`,
    );
  if (!cross && values.keys !== undefined)
    throw new UsageError(`run: --keys expected none for ${prefix}, self-attention, got ${values.keys}`);
  const { dModel } = read.config;
  const kdim = read.ofLatents ? dModel : (read.config.kdim ?? dModel);
  const keys = values.keys === undefined ? undefined : await readRows("--keys", values.keys, undefined, kdim);
  const x =
    values.input === undefined
      ? seedRows(tokens ?? 128, dModel)
      : await readRows("--input", values.input, tokens, dModel);
  const most = x.length / dModel;
  const decode =
    values.decode === undefined ? Math.min(DECODED, most) : readCount("run", "--decode", values.decode, 0, most);
  const kernels = await startKernels(threads, values.deterministic, { latent: read.ofLatents });
  try {
    const result = interpretFile("run", path, () => runLayer(kernels, read, { x, keys, decode, weights, cache }));
    const report = { file: path, prefix, readMs, ...result };
    print(values.json ? JSON.stringify(report, null, 2) : runText(path, prefix, readMs, result));
    if (result.decode?.same === false) process.exitCode = 1;
  } finally {
    kernels.release();
  }
}

/** The rows of the file that an option names, all of them or the first `tokens`: [tokens, width]. */
async function readRows(
  option: string,
  path: string,
  tokens: number | undefined,
  width: number,
): Promise<Float32Array> {
  const fail = (rule: string, got: string): never => {
    throw new FileError(`run: ${option} expected ${rule}, got ${got}`);
  };
  const bytes = await readBytes("run", option, path);
  let data: Float32Array;
  if (isNpy(bytes)) {
    const array = readNpy(`run: ${option}`, bytes);
    if (!isRows(array.shape, width)) fail(`shape [tokens, ${width}]`, `[${array.shape.join(", ")}]`);
    data = array.data;
  } else {
    if (isSafetensors(bytes)) fail("a .npy file or raw float32", "a safetensors file");
    if (bytes.length % (4 * width) !== 0) fail(`rows of ${4 * width} bytes`, `${bytes.length} bytes`);
    data = new Float32Array(new Uint8Array(bytes).buffer);
  }
  const rows = data.length / width;
  if (rows < (tokens ?? 1) || rows > MOST_TOKENS) fail(`${tokens ?? `1 to ${MOST_TOKENS}`} rows`, `${rows}`);
  return data.subarray(0, (tokens ?? rows) * width);
}

function seedRows(tokens: number, dModel: number): Float32Array {
  const floats = tokens * dModel;
  try {
    return seededFloats(1)(floats);
  } catch (cause) {
    const text = `run: input of ${floats} floats does not fit, the engine refused`;
    throw new HeadwiseError("OUT_OF_MEMORY", text, { cause });
  }
}

function runText(path: string, prefix: string, readMs: number, result: LayerRun): string {
  const { config, formats, kernels, prefill, decode, y } = result;
  const { numHeads, numKvHeads, headDim, dModel, causal, window, rope } = config;
  const left = Number.isFinite(window.left) ? `, window of ${window.left}` : "";
  const cross = result.keys === undefined ? "" : `, cross-attention to ${result.keys} keys`;
  const kv = "kvLoraRank" in config ? `latents of ${config.kvLoraRank} + ${config.ropeDim}` : `${numKvHeads} kv heads`;
  const rotation = rope ? `, RoPE ${rope.theta} ${rope.pairing}` : "";
  const perSecond = (tokens: number, ms: number) => `${Math.round((1000 * tokens) / ms)} tokens/s`;
  const rows: [title: string, text: string][] = [
    ["layer", `${plainText(prefix)} of ${plainText(basename(path))}, read in ${readMs.toFixed(1)} ms`],
    [
      "shape",
      `dModel ${dModel}, ${numHeads} heads of ${headDim}, ${kv}${causal ? ", causal" : ""}${cross}${left}${rotation}`,
    ],
    ["weights", `${formatsText(formats)}, ${sizeText(result.weightBytes)}, packed in ${result.packMs.toFixed(1)} ms`],
    ["cache", `${result.cacheFormat}, ${sizeText(result.cacheBytes)} for ${result.keys ?? prefill.tokens} tokens`],
    ["build", `${kernels.build}: ${kernels.reason}`],
    ["threads", `${kernels.threads.used}: ${kernels.threads.reason}`],
    [
      "prefill",
      `${prefill.ms.toFixed(2)} ms for ${prefill.tokens} tokens (best ${prefill.bestMs.toFixed(2)}, first ${prefill.firstMs.toFixed(2)}): ${perSecond(prefill.tokens, prefill.ms)}`,
    ],
  ];
  if (decode) {
    const { tokens, past, ms, bestMs, same } = decode;
    const verdict = same
      ? paint("green", `${tokens} rows have the same bits`)
      : paint("red", `FAILED: ${decode.differing} of ${tokens} rows differ`);
    rows.push(
      ["decode", `${ms.toFixed(3)} ms per token after ${past} (best ${bestMs.toFixed(3)}): ${perSecond(1, ms)}`],
      ["identity", `prefill = decode: ${verdict}`],
    );
  } else rows.push(["decode", "none: the layer is not causal, or no token is decoded"]);
  rows.push(
    ["y", `[${y.shape.join(", ")}], digest ${y.digest}`],
    ["y[0]", y.first.map((value) => value.toPrecision(6)).join(" ")],
    ["memory", sizeText(result.memoryBytes)],
  );
  return rows.map(([title, text]) => `${title.padEnd(10)}${text}`).join("\n");
}

function formatsText(formats: LayerRun["formats"]): string {
  const kinds = new Set(Object.values(formats));
  if (kinds.size === 1) return [...kinds].join();
  return Object.entries(formats)
    .map(([part, format]) => `${part} ${format}`)
    .join(" ");
}
