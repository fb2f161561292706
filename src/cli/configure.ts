// `headwise configure`: a decoder for a budget, and what a model costs.

import { readFile } from "node:fs/promises";
import { CACHE_FORMATS } from "../cache/page-layout.ts";
import { PROJECTION_KINDS } from "../configure/choose-attention.ts";
import { type Configuration, configure as chooseModel } from "../configure/configure.ts";
import type { ConfigureOptions } from "../configure/configure-options.ts";
import { type DescribeOptions, describeFiles, describeModel, type ModelCost } from "../configure/describe-model.ts";
import { measureLayer, rooflineOptions } from "../configure/measure-layer.ts";
import { measureRoofline } from "../configure/measure-roofline.ts";
import type { Roofline } from "../configure/roofline.ts";
import { TARGET_NAMES } from "../configure/targets.ts";
import { WEIGHT_FORMATS } from "../linear/formats.ts";
import type { Kernels } from "../wasm/kernels.ts";
import { readArguments, readChoice, readCount, refusePositionals, UsageError } from "./args.ts";
import { configurationText, costText, measurementText } from "./configure-text.ts";
import { aboutFile } from "./files.ts";
import { startKernels } from "./load-kernels.ts";
import { expectModelPath } from "./model-path.ts";

const HELP = `headwise configure --parameter-budget N --seq-len N --target PLACE [options]
headwise configure --model MODEL [--seq-len N] [--weights FORMAT] [--cache FORMAT] [--json]

Chooses the sizes of a decoder for a number of parameters (125M, 1.5B), a length of sequences and a place
to run (browser, phone, worker, server): heads, groups of keys or latents, layers, vocabulary, formats;
each with its reason. Predicts linear memory exactly, and speed on one thread from the roofline that it
measures in some seconds.

With --model, says what a model costs: a folder with config.json, that file, or a GGUF file, or the URL
of one, of which only the header is read. Knows models that headwise does not run too.

  --heads N, --kv-heads N, --head-dim N, --width N, --vocabulary N
                       sizes that are not chosen
  --attention KIND     mha, gqa, mqa or mla
  --weights FORMAT     f32, f16, bf16, q8, q8-row, q4 (with --model default: f32, or those of the GGUF file)
  --cache FORMAT       f32, f16, q8, q4 (with --model default f32)
  --memory BYTES       of linear memory for weights, a session and a call (default by the target)
  --roofline F,B       10^9 operations and bytes a second to predict with, instead of measuring
  --measure            build one layer, and print what was predicted beside what is measured
  --json               print JSON`;

const OPTIONS = {
  "parameter-budget": { type: "string" },
  "seq-len": { type: "string" },
  target: { type: "string" },
  model: { type: "string" },
  heads: { type: "string" },
  "kv-heads": { type: "string" },
  "head-dim": { type: "string" },
  width: { type: "string" },
  vocabulary: { type: "string" },
  attention: { type: "string" },
  weights: { type: "string" },
  cache: { type: "string" },
  memory: { type: "string" },
  roofline: { type: "string" },
  measure: { type: "boolean", default: false },
  json: { type: "boolean", default: false },
  help: { type: "boolean", short: "h", default: false },
} as const;

const COMMAND = "configure";
/** Numbers that a shape can have. */
const SIZES = {
  "seq-len": ["seqLen", 2 ** 30],
  heads: ["numHeads", 65_536],
  "kv-heads": ["numKvHeads", 65_536],
  "head-dim": ["headDim", 65_536],
  width: ["dModel", 2 ** 20],
  vocabulary: ["vocabSize", 2 ** 24],
  memory: ["memory", 2 ** 32],
} as const;
/** Options that describe no model that exists. */
const FOR_BUDGETS = ["parameter-budget", "target", "attention", "roofline", "measure", "heads", "kv-heads", "head-dim"];

/** `headwise configure`. */
export async function configure(args: string[]): Promise<void> {
  const { values, positionals } = readArguments(COMMAND, args, OPTIONS);
  if (values.help) return console.log(HELP);
  refusePositionals(COMMAND, positionals);
  const sizes = Object.fromEntries(
    Object.entries(SIZES).flatMap(([name, [field, most]]) => {
      const text = values[name as keyof typeof SIZES];
      return text === undefined ? [] : [[field, readCount(COMMAND, `--${name}`, text, 1, most)]];
    }),
  );
  const formats = {
    weights: readChoice(COMMAND, "--weights", values.weights, WEIGHT_FORMATS),
    cache: readChoice(COMMAND, "--cache", values.cache, CACHE_FORMATS),
  };
  const print = <T>(result: T, textOf: (result: T) => string) =>
    console.log(values.json ? JSON.stringify(result, null, 2) : textOf(result));
  if (values.model !== undefined) {
    const other = [...FOR_BUDGETS, "width", "vocabulary", "memory"].find((name) => values[name as keyof typeof values]);
    if (other !== undefined) throw new UsageError(`${COMMAND}: --${other} expected none beside --model`);
    const { weights, cache: format } = formats;
    return print(await costAt(values.model, { ...sizes, weights, format }), costText);
  }
  const target = readChoice(COMMAND, "--target", values.target, TARGET_NAMES);
  const budget = values["parameter-budget"];
  if (budget === undefined || target === undefined || values["seq-len"] === undefined)
    throw new UsageError(`${COMMAND}: expected --model, or --parameter-budget, --seq-len and --target`);
  const attention = readChoice(COMMAND, "--attention", values.attention, PROJECTION_KINDS);
  const options = { ...sizes, ...formats, attention, target, parameterBudget: readBudget(budget) } as ConfigureOptions;
  const given = values.roofline === undefined ? undefined : readRoofline(values.roofline);
  if (given && !values.measure) return print(chooseModel({ ...options, roofline: given }), configurationText);
  await withKernels(chooseModel(options), async (kernels, first) => {
    const roofline = given ?? (await measureRoofline(kernels, rooflineOptions(first)));
    const chosen = chooseModel({ ...options, roofline });
    const layer = values.measure ? await measureLayer(kernels, chosen) : undefined;
    print({ ...chosen, roofline, layer }, (result) =>
      [configurationText(result), ...(layer ? [measurementText(layer)] : [])].join("\n\n"),
    );
  });
}

/** Starts the kernels that a configuration needs. */
async function withKernels(
  first: Configuration,
  work: (kernels: Kernels, first: Configuration) => Promise<void>,
): Promise<void> {
  const kernels = await startKernels(1, false, { models: true, latent: first.projection.kind === "mla" });
  try {
    await work(kernels, first);
  } finally {
    kernels.release();
  }
}

/** What the model at a path or URL costs. Errors of the library get the path. */
async function costAt(model: string, options: DescribeOptions): Promise<ModelCost> {
  const isFile = /\.json$/i.test(model) && !/^https?:/.test(model);
  if (!isFile) await expectModelPath(COMMAND, model.replace(/config\.json$/, ""));
  try {
    if (isFile) return describeModel(await readFile(model, "utf8"), options);
    return await describeFiles(model.replace(/config\.json$/, ""), options);
  } catch (error) {
    throw aboutFile(COMMAND, model, error);
  }
}

const UNITS: Readonly<Record<string, number>> = { "": 1, k: 1e3, m: 1e6, b: 1e9, t: 1e12 };

/** A number of parameters, such as 125M. */
function readBudget(text: string): number {
  const [, digits = "", unit = ""] = /^(\d+(?:\.\d+)?)([kmbt]?)$/i.exec(text) ?? [];
  const budget = Math.round(Number(digits) * (UNITS[unit.toLowerCase()] ?? 0));
  if (digits !== "" && budget >= 10_000 && budget <= 1e12) return budget;
  throw new UsageError(`${COMMAND}: --parameter-budget expected 10k to 1T, such as 125M or 1.5B, got ${text}`);
}

/** A roofline in 10^9 operations and bytes a second. */
function readRoofline(text: string): Roofline {
  const [flops = 0, bytes = 0, ...more] = text.split(",").map(Number);
  if (flops > 0 && bytes > 0 && more.length === 0 && flops < 1e9 && bytes < 1e9)
    return { flops: 1e9 * flops, bytes: 1e9 * bytes };
  throw new UsageError(`${COMMAND}: --roofline expected two numbers > 0, such as 50,12, got ${text}`);
}
