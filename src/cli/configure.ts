// `headwise configure`: a decoder for a budget, and what a model costs.

import { readFile } from "node:fs/promises";
import {
  type CacheFormat,
  type Configuration,
  type ConfigureOptions,
  configure as chooseModel,
  type DescribeOptions,
  describeFiles,
  describeModel,
  type Kernels,
  type LayerMeasurement,
  type LayerMemory,
  type ModelCost,
  type ModelPlan,
  type ModelStore,
  measureLayer,
  measureRoofline,
  OPTION_VALUES,
  type Roofline,
  type WeightFormat,
} from "../entries/configure.ts";
import { createFolderStore, defaultStoreFolder } from "../entries/models.ts";
import { readArguments, readChoice, readCount, refusePositionals, UsageError } from "./args.ts";
import { aboutFile } from "./files.ts";
import { startKernels } from "./load.ts";
import { OUTPUT_OPTIONS, STORE_OPTIONS } from "./options.ts";
import { columnsText, print, sizeText } from "./terminal.ts";

// What `headwise configure` prints.

/** 1234567 as 1,234,567. */
const countText = (count: number): string => String(count).replace(/\B(?=(\d{3})+$)/g, ",");
const bytesText = (bytes: number): string => `${countText(bytes)} bytes${bytes < 1000 ? "" : ` (${sizeText(bytes)})`}`;

/** A configuration: choices with reasons, costs, rules. */
export function configurationText(found: Configuration & { readonly roofline?: Roofline | undefined }): string {
  const { choices, parameters, cacheBytes, memory, speed, roofline } = found;
  const rows = choices.map(({ what, value, reason }) => [what, String(value), reason]);
  const costs = [
    ["parameters", countText(parameters)],
    ["caches", `${bytesText(cacheBytes)} of a session`],
    ["linear memory", memoryText(memory, found.weights, found.cache)],
    ...(speed
      ? [
          ["prefill", `${speed.prefillTokensPerSecond.toPrecision(3)} tokens/s predicted on one thread`],
          ["decode", `${speed.decodeTokensPerSecond.toPrecision(3)} tokens/s predicted after the longest prompt`],
        ]
      : []),
    ...(roofline ? [["roofline", rooflineText(roofline)]] : []),
  ];
  const rules = choices.map(({ what, rule }) => [what, rule]);
  return [
    columnsText([["choice", "value", "reason"], ...rows], 3),
    columnsText(costs, 2),
    columnsText([["choice", "rule of thumb"], ...rules], 2),
  ]
    .map(trimLines)
    .join("\n\n");
}

const trimLines = (text: string): string => text.replace(/ +$/gm, "");

/** Bytes by part, and the formats of weights and caches. */
function memoryText({ weights, sessions, scratch, total }: ModelPlan, matrices: string, cache: string): string {
  const parts = [`weights ${countText(weights)} (${matrices})`, `a session ${countText(sessions)} (${cache})`];
  return `${bytesText(total)}: ${parts.join(", ")}, calls ${countText(scratch)}`;
}

/** The peaks of a machine, and what kernels reach of them, by which speed is predicted. */
function rooflineText({ flops, bytes, weights = {}, attention, other }: Roofline): string {
  const giga = (rate: number) => (rate / 1e9).toPrecision(3);
  const micro = (seconds: number) => (1e6 * seconds).toPrecision(3);
  const reached = Object.entries(weights).map(([format, { flops, bytes }]) => {
    const reading = bytes.map(([size, perSecond]) => `${giga(perSecond)} GB/s of ${sizeText(size)}`).join(", ");
    return `; with ${format} ${giga(flops)} GFLOP/s, reading ${reading}`;
  });
  const pairs = attention
    ? `; attention ${giga(attention.prompt)} GFLOP/s in a prompt, ${giga(attention.token)} of a token`
    : "";
  const others = other
    ? `; besides, a layer ${micro(other.layer)} us of a token, ${micro(other.row)} of each in a prompt`
    : "";
  return `${giga(flops)} GFLOP/s, ${giga(bytes)} GB/s at most${reached.join("")}${pairs}${others}`;
}

const CLOCKS: Readonly<Record<LayerMeasurement["clock"], string>> = {
  thread: "Milliseconds are processor time of the thread, which other programs on the machine do not add to.",
  wall: "Milliseconds are those of the clock: other programs on the machine make them longer.",
};

/** A layer as predicted and as measured. */
function measurementText({ tokens, clock, predicted, measured }: LayerMeasurement): string {
  const row = (name: string, of: (cost: LayerMeasurement["measured"]) => number, text: (value: number) => string) => {
    const [a, b] = [of(predicted), of(measured)];
    return [name, text(a), text(b), a === b ? "equal" : `${(100 * (a / b - 1)).toFixed(0)} %`];
  };
  const ms = (value: number) => value.toPrecision(3);
  const table = columnsText(
    [
      ["one layer", "predicted", "measured", "difference"],
      row("weights, bytes", ({ weightBytes }) => weightBytes, countText),
      row("session, bytes", ({ sessionBytes }) => sessionBytes, countText),
      row(`prompt of ${tokens} tokens, ms`, ({ prefillMs }) => prefillMs, ms),
      row(`a token after ${tokens}, ms`, ({ decodeMs }) => decodeMs, ms),
    ],
    1,
  );
  return `${table}\n${CLOCKS[clock]}`;
}

/** Formats that were asked for. */
interface AskedFormats {
  readonly weights: WeightFormat | undefined;
  readonly cache: CacheFormat | undefined;
}

/** What a model costs. */
function costText(cost: ModelCost, { weights: asked, cache: askedCache }: AskedFormats): string {
  const {
    type,
    parameters,
    activeParameters,
    weightBytes,
    storedBytes,
    storedAs,
    seqLen,
    tokenBytes,
    memory,
    refusal,
  } = cost;
  const active = activeParameters < parameters ? ` (${countText(activeParameters)} for a token)` : "";
  const weights = Object.entries(weightBytes).map(([format, bytes]) => `${format} ${sizeText(bytes)}`);
  const isWindowed = cost.layers.some(({ window }) => window !== undefined);
  const kept = asked ?? (storedAs ? `as stored: ${storedAs.join(", ")}` : "f32");
  const rows = [
    ["model", type],
    ["parameters", `${countText(parameters)}${active}`],
    ["weights", weights.join(", ")],
    ...(storedBytes === undefined
      ? []
      : [["stored", `${bytesText(storedBytes)}, matrices in ${storedAs?.join(", ")}`]]),
    ["a token", `${bytesText(tokenBytes)} of cache at 16 bits${isWindowed ? ", while no window is full" : ""}`],
    [`${seqLen} tokens`, `${bytesText(cost.cacheBytes)} of caches at 16 bits`],
    ["states", cost.stateBytes === 0 ? "none" : `${bytesText(cost.stateBytes)} at 32 bits`],
    ["linear memory", memory ? memoryText(memory, kept, askedCache ?? "f32") : `not run here: ${refusal}`],
  ];
  const head = ["layers", "keep", "numbers a token", "window", "numbers of a state"];
  const tables = [columnsText(rows, 2), columnsText([head, ...cost.layers.map(layerRow)], 2)].map(trimLines);
  const hint = memory && asked === undefined && askedCache === undefined;
  return [...tables, ...(hint ? ["For linear memory in other formats: --weights q8 --cache q8."] : [])].join("\n\n");
}

function layerRow({ layers, kind, perToken, window, state }: LayerMemory): string[] {
  const cell = (value: number | undefined) => (value ? countText(value) : "-");
  return [String(layers), kind, cell(perToken), cell(window), cell(state)];
}

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
    weights: readChoice(COMMAND, "--weights", values.weights, OPTION_VALUES.weights),
    cache: readChoice(COMMAND, "--cache", values.cache, OPTION_VALUES.cache),
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
    const store = values["no-store"] ? undefined : storeOf(values.model);
    const cost = await costAt(values.model, { ...sizes, weights, format }, store);
    if (cost.maxSeqLen !== undefined && cost.seqLen > cost.maxSeqLen)
      warn(`${cost.seqLen} tokens are more than the ${cost.maxSeqLen} that the model states`);
    return show(cost, () => costText(cost, formats));
  }
  const target = readChoice(COMMAND, "--target", values.target, OPTION_VALUES.target);
  if (values["parameter-budget"] === undefined || target === undefined || values["seq-len"] === undefined)
    throw new UsageError(`${COMMAND}: expected --model, or --parameter-budget, --seq-len and --target`);
  const attention = readChoice(COMMAND, "--attention", values.attention, OPTION_VALUES.attention);
  const options = { ...sizes, ...formats, attention, target } as ConfigureOptions;
  const given = values.roofline === undefined ? undefined : readRoofline(values.roofline);
  if (given && !values.measure) return showChosen(chooseModel({ ...options, roofline: given }), configurationText);
  await withKernels(chooseModel(options), async (kernels, first) => {
    const { weights, cache, dModel, numHeads, headDim, projection } = first;
    const roofline =
      given ?? (await measureRoofline(kernels, { weights, cache, dModel, numHeads, headDim, projection }));
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

/** The user's store, for a model at a URL. */
function storeOf(model: string): ModelStore | undefined {
  const folder = /^https?:/.test(model) ? defaultStoreFolder() : undefined;
  return folder === undefined ? undefined : createFolderStore(folder);
}

/** What the model at a path or URL costs. Errors of the library get the path. */
async function costAt(model: string, options: DescribeOptions, store: ModelStore | undefined): Promise<ModelCost> {
  const isFile = /\.json$/i.test(model) && !/^https?:/.test(model);
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
