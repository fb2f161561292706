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
import type { ModelStore } from "../files/model-store.ts";
import { WEIGHT_FORMATS } from "../linear/formats.ts";
import type { Kernels } from "../wasm/kernels.ts";
import { readArguments, readChoice, readCount, refusePositionals, UsageError } from "./args.ts";
import { OUTPUT_OPTIONS, STORE_OPTIONS } from "./common-options.ts";
import { configurationText, costText, measurementText } from "./configure-text.ts";
import { aboutFile } from "./files.ts";
import { startKernels } from "./load-kernels.ts";
import { storeOf } from "./loading.ts";
import { expectModelPath } from "./model-path.ts";
import { print } from "./output.ts";

const HELP = `headwise configure --parameter-budget N --seq-len N --target PLACE [options]
headwise configure --model MODEL [--seq-len N] [--weights FORMAT] [--cache FORMAT] [--no-store] [--json]

Chooses the sizes of a decoder for a number of parameters (125M, 1.5B), a length of sequences and a place
to run (browser, phone, worker, server): heads, groups of keys or latents, layers, vocabulary, formats;
each with its reason. Predicts linear memory exactly, and speed on one thread from the roofline that it
measures in some seconds.

With --model, says what a model costs: a folder with config.json, that file, or a GGUF file, or the URL
of one, of which only the header is read. Knows models that headwise does not run too.

  --heads N, --kv-heads N, --head-dim N, --width N, --vocabulary N
                       sizes that are not chosen
  --attention KIND     mha, gqa, mqa or mla
  --weights FORMAT     f32, f16, bf16, q8, q8-row, q4 (with --model default: as stored, of config.json alone f32)
  --cache FORMAT       f32, f16, q8, q4 (with --model default f32)
  --memory BYTES       of linear memory for weights, a session and a call (default by the target)
                       Numbers of tokens, parameters and bytes may end in k, M, G, B, T (powers of 1000)
                       or Ki, Mi, Gi (of 1024), bytes in B too: 125M, 4Ki, 1.5GB
  --roofline F,B       10^9 operations and bytes a second to predict with, instead of measuring
  --measure            build one layer, and print what was predicted beside what is measured
  --no-store           with --model, do not keep what is read of URLs, nor use what is kept
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
  ...STORE_OPTIONS,
  ...OUTPUT_OPTIONS,
} as const;

const COMMAND = "configure";
/** Numbers that a shape can have. */
const SIZES = {
  heads: ["numHeads", 65_536],
  "kv-heads": ["numKvHeads", 65_536],
  "head-dim": ["headDim", 65_536],
  width: ["dModel", 2 ** 20],
} as const;
/** Numbers that may have a unit: the field, the least, the most, and an example. */
const AMOUNTS = {
  "parameter-budget": ["parameterBudget", 10_000, 1e12, "10k to 1T, such as 125M or 1.5B"],
  "seq-len": ["seqLen", 1, 2 ** 30, "1 to 1Gi tokens, such as 4096, 4k or 4Ki"],
  vocabulary: ["vocabSize", 1, 2 ** 24, "1 to 16Mi entries, such as 32000 or 32k"],
  memory: ["memory", 1, 2 ** 32, "1 to 4Gi bytes, such as 500MB or 1GiB"],
} as const;
/** Options that describe no model that exists. */
const FOR_BUDGETS = ["parameter-budget", "target", "attention", "roofline", "measure", "heads", "kv-heads", "head-dim"];

/** `headwise configure`. */
export async function configure(args: string[]): Promise<void> {
  const { values, positionals } = readArguments(COMMAND, args, OPTIONS);
  if (values.help) return print(HELP);
  refusePositionals(COMMAND, positionals);
  const sizes = {
    ...readEach(values, SIZES, (name, text, [, most]) => readCount(COMMAND, name, text, 1, most)),
    ...readEach(values, AMOUNTS, readAmount),
  };
  const formats = {
    weights: readChoice(COMMAND, "--weights", values.weights, WEIGHT_FORMATS),
    cache: readChoice(COMMAND, "--cache", values.cache, CACHE_FORMATS),
  };
  const show = <T>(result: T, textOf: (result: T) => string) =>
    print(values.json ? JSON.stringify(result, null, 2) : textOf(result));
  const showChosen = <T extends Configuration>(found: T, textOf: (found: T) => string) => {
    for (const warning of values.json ? [] : found.warnings) warn(warning);
    show(found, textOf);
    if (!found.fits) process.exitCode = 1;
  };
  if (values.model !== undefined) {
    const other = [...FOR_BUDGETS, "width", "vocabulary", "memory"].find((name) => values[name as keyof typeof values]);
    if (other !== undefined) throw new UsageError(`${COMMAND}: --${other} expected none beside --model`);
    const { weights, cache: format } = formats;
    const cost = await costAt(values.model, { ...sizes, weights, format }, storeOf(values.model, values["no-store"]));
    if (cost.maxSeqLen !== undefined && cost.seqLen > cost.maxSeqLen)
      warn(`${cost.seqLen} tokens are more than the ${cost.maxSeqLen} that the model states`);
    return show(cost, () => costText(cost, formats));
  }
  const target = readChoice(COMMAND, "--target", values.target, TARGET_NAMES);
  if (values["parameter-budget"] === undefined || target === undefined || values["seq-len"] === undefined)
    throw new UsageError(`${COMMAND}: expected --model, or --parameter-budget, --seq-len and --target`);
  const attention = readChoice(COMMAND, "--attention", values.attention, PROJECTION_KINDS);
  const options = { ...sizes, ...formats, attention, target } as ConfigureOptions;
  const given = values.roofline === undefined ? undefined : readRoofline(values.roofline);
  if (given && !values.measure) return showChosen(chooseModel({ ...options, roofline: given }), configurationText);
  await withKernels(chooseModel(options), async (kernels, first) => {
    const roofline = given ?? (await measureRoofline(kernels, rooflineOptions(first)));
    const chosen = chooseModel({ ...options, roofline });
    const layer = values.measure ? await measureLayer(kernels, chosen) : undefined;
    showChosen({ ...chosen, roofline, layer }, (result) =>
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
async function costAt(model: string, options: DescribeOptions, store: ModelStore | undefined): Promise<ModelCost> {
  const isFile = /\.json$/i.test(model) && !/^https?:/.test(model);
  if (!isFile) await expectModelPath(COMMAND, model.replace(/config\.json$/, ""));
  try {
    if (isFile) return describeModel(await readFile(model, "utf8"), options);
    return await describeFiles(model.replace(/config\.json$/, ""), { ...options, store });
  } catch (error) {
    throw aboutFile(COMMAND, model, error);
  }
}

/** What is doubtful, beside the result. */
const warn = (text: string): void => console.error(`warning: ${text}`);

/** The fields of `names` whose options were given. */
function readEach<Rule extends readonly [field: string, ...rest: unknown[]]>(
  values: object,
  names: Readonly<Record<string, Rule>>,
  read: (name: string, text: string, rule: Rule) => number,
): Record<string, number> {
  const given = Object.entries(values).filter(([name]) => Object.hasOwn(names, name));
  return Object.fromEntries(
    given.map(([name, text]) => [names[name]?.[0], read(`--${name}`, text as string, names[name] as Rule)]),
  );
}

const UNITS: Readonly<Record<string, number>> = {
  ...{ "": 1, k: 1e3, m: 1e6, g: 1e9, b: 1e9, t: 1e12 },
  ...{ ki: 2 ** 10, mi: 2 ** 20, gi: 2 ** 30 },
};

/** A number with a unit, such as 125M or, of bytes, 1GiB. */
function readAmount(name: string, text: string, [field, least, most, rule]: readonly [string, number, number, string]) {
  const plain = field === "memory" ? text.replace(/b$/i, "") : text;
  const [, digits = "", unit = ""] = /^(\d+(?:\.\d+)?)([a-z]*)$/i.exec(plain) ?? [];
  const factor = Object.hasOwn(UNITS, unit.toLowerCase()) ? (UNITS[unit.toLowerCase()] as number) : 0;
  const amount = Math.round(Number(digits) * factor);
  if (digits !== "" && amount >= least && amount <= most) return amount;
  throw new UsageError(`${COMMAND}: ${name} expected ${rule}, got ${text}`);
}

/** A roofline in 10^9 operations and bytes a second. */
function readRoofline(text: string): Roofline {
  const [flops = 0, bytes = 0, ...more] = text.split(",").map(Number);
  if (flops > 0 && bytes > 0 && more.length === 0 && flops < 1e9 && bytes < 1e9)
    return { flops: 1e9 * flops, bytes: 1e9 * bytes };
  throw new UsageError(`${COMMAND}: --roofline expected two numbers > 0, such as 50,12, got ${text}`);
}
