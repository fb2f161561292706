// `headwise inspect`: what the heads of a decoder do in a text, where they look, why, and what changes without some.

import { OPTION_VALUES } from "../entries/configure.ts";
import type { CacheFormat, WeightFormat } from "../entries/core.ts";
import { type AnyRecord, decodeRecord, replay, statistics } from "../entries/inspect.ts";
import type { Tokenizer } from "../entries/text.ts";
import { readArguments, readChoice, readCount, UsageError } from "./args.ts";
import {
  checkText,
  type HeadPlace,
  type InspectWork,
  inspectionJson,
  inspectionText,
  inspectModel,
  keysThatFit,
  labelsOf,
  MOST_TOKENS,
} from "./inspection.ts";

import { findLibraries, type LoadValues, openDecoder, readIds } from "./load.ts";
import {
  type CommonChoices,
  FORMAT_OPTIONS,
  helpOf,
  KERNEL_OPTIONS,
  LOAD_OPTIONS,
  OUTPUT_OPTIONS,
  readCommon,
} from "./options.ts";
import { COLOUR_CHOICES, coloursOf, columnsOf, print, readPrompt, standardOutput } from "./terminal.ts";

// The address of what `headwise inspect` shows, on the inspector page of the site (`npm run site`).

/** What the address says. */
interface PageView {
  readonly path: string;
  readonly text: string;
  /** The head that is large. */
  readonly place: HeadPlace | undefined;
  readonly work: Pick<InspectWork, "why" | "without">;
  readonly weights: WeightFormat | undefined;
  readonly cache: CacheFormat | undefined;
  readonly deterministic: boolean;
}

/** Formats of weights that the page can switch to. */
const PAGE_WEIGHTS: readonly string[] = ["f32", "q8", "q4"];

/** The address, relative to that of the site. A page cannot open files by a path: it names the model only if that has a URL. */
export function inspectorAddress({ path, text, place, work, weights, cache, deterministic }: PageView): string {
  const fields = {
    model: /^https?:/.test(path) ? path : undefined,
    ...{ text, layer: place?.layer, head: place?.head, ...work.why },
    edits: work.without.map(({ layer, head }) => `${layer}.${head}*0`).join(),
    weights: PAGE_WEIGHTS.find((format) => format === weights),
    cache,
    deterministic: deterministic ? "yes" : undefined,
  };
  const given = Object.entries(fields).flatMap(([name, value]) =>
    value === undefined || value === "" ? [] : [[name, String(value)] as [string, string]],
  );
  return `inspector.html#${new URLSearchParams(given)}`;
}

// `headwise inspect MODEL --replay LINK`: repeats what a link of `--link` names, and compares the bits.

/** The options that count beside the link. Weights are those of the record unless others are asked for. */
type ReplayOptions = Pick<CommonChoices, "weights" | "activations" | "threads"> & {
  readonly json: boolean;
  readonly loading: LoadValues;
};

/** Prints whether the results have the recorded bits; if not, the process exits with 1. */
async function replayLink(
  command: string,
  path: string,
  link: string,
  { weights, activations, threads, json, loading }: ReplayOptions,
): Promise<void> {
  const record = readLink(command, link);
  const { formats, kernels: recorded, request } = record;
  const { opened, model } = await openDecoder(command, path, loading, {
    weights: weights ?? OPTION_VALUES.weights.find((format) => format === formats),
    ...{ activations, threads, deterministic: recorded.build === "simd" },
    ...("statistics" in request && { statistics }),
  });
  try {
    // Whoever runs a command can end it.
    const { same, record: found } = await replay(model, record, { maxTokens: Number.MAX_SAFE_INTEGER }).catch(
      (error: unknown) => {
        // Another model, format or build than the record names.
        throw error instanceof RangeError ? new UsageError(`${command}: ${error.message}`) : error;
      },
    );
    const [name, bits, wanted] = [record.inspect, found.results, record.results];
    const text = `${name}  ${same ? "the same bits" : `other bits than recorded: expected ${wanted}, got`} ${bits}`;
    print(json ? JSON.stringify({ inspect: name, same, recorded: wanted, found: bits }, null, 2) : text);
    if (!same) process.exitCode = 1;
  } finally {
    opened.release();
  }
}

function readLink(command: string, link: string): AnyRecord {
  try {
    return decodeRecord(link);
  } catch {
    throw new UsageError(`${command}: --replay expected a link that --link prints for a result, got ${link}`);
  }
}

const HELP = `headwise inspect MODEL TEXT [options]
headwise inspect MODEL --ids LIST [options]
headwise inspect MODEL --replay LINK [--weights FORMAT] [--activations KIND] [--threads N|auto] [--json]

Opens the decoder MODEL, a GGUF file or a folder, its URL, or "owner/name" of a model on a hub, reads TEXT, or the tokens of LIST, and prints what each head does, and maps of where some of them
look. TEXT "-" is standard input. Text needs the model's tokenizer, and the package @huggingface/tokenizers.

  --ids LIST          token ids, separated by commas
  --layer N           maps of the heads of this layer instead of the strongest ones
  --head N            with --layer, the map of this head alone
  --maps N            how many maps: of the strongest head of each kind (default 3, with --json 0)
  --from N            the first token that maps show (default 0)
  --statistics        of each head, means over the tokens: log-sum-exp, entropy, the largest weight, that
                      on the first token, and the distance
  --pair QUERY,KEY    the token at the first position refers to that at the second, as a question does to its
                      answer: a score "reference" says which heads look there
  --why QUERY,KEY     with --layer and --head: the score of two tokens, by their positions, split by what
                      wrote to either
  --next N            the N most probable next tokens (default 0, with --without 10)
  --without LIST      heads as LAYER.HEAD, separated by commas: what comes next without them
  --link              the address of the same text and head on the inspector page, relative to that of the site,
                      and for each result a link, from which --replay repeats it
  --replay LINK       repeat such a result, and say whether every bit is the same: with 1 as exit code if not
  --colour WHEN       auto, always or never (default auto: on a terminal, unless NO_COLOR is set)
  --width N           columns of the output (default those of the terminal, elsewhere 100)
${helpOf("weights", "activations", "cache", "threads", "deterministic", "no-store", "quiet", "json")}`;

const OPTIONS = {
  ids: { type: "string" },
  layer: { type: "string" },
  head: { type: "string" },
  maps: { type: "string" },
  from: { type: "string" },
  statistics: { type: "boolean", default: false },
  pair: { type: "string" },
  why: { type: "string" },
  next: { type: "string" },
  without: { type: "string" },
  link: { type: "boolean", default: false },
  replay: { type: "string" },
  colour: { type: "string" },
  width: { type: "string" },
  ...FORMAT_OPTIONS,
  ...KERNEL_OPTIONS,
  ...LOAD_OPTIONS,
  ...OUTPUT_OPTIONS,
} as const;

const COMMAND = "inspect";
const MOST_HEADS = 65_536;
/** Options that a link takes the place of. */
const OF_TEXTS = [
  "ids",
  "layer",
  "head",
  "maps",
  "from",
  "statistics",
  "pair",
  "why",
  "next",
  "without",
  "link",
  "cache",
  "deterministic",
  "colour",
  "width",
] as const;
/** Maps and next tokens that are shown unless others are asked for. */
const [MAPS, NEXT] = [3, 10];

type Values = ReturnType<typeof readArguments<typeof OPTIONS>>["values"];

/** `headwise inspect`. */
export async function inspect(args: string[]): Promise<void> {
  const { values, positionals } = readArguments(COMMAND, args, OPTIONS);
  if (values.help) return print(HELP);
  const [path, given, ...more] = positionals;
  if (path === undefined) throw new UsageError(`${COMMAND}: expected a model and a text, got neither`);
  if (more.length > 0)
    throw new UsageError(
      `${COMMAND}: expected one text, got ${more.length + 1}: quote it, as in ${JSON.stringify([given, ...more].join(" "))}`,
    );
  const common = readCommon(COMMAND, values);
  if (values.replay !== undefined) {
    const option = OF_TEXTS.find((name) => values[name]);
    const other = given === undefined ? option && `--${option}` : "a text";
    if (other) throw new UsageError(`${COMMAND}: --replay expected a model alone beside it, got ${other}`);
    return replayLink(COMMAND, path, values.replay, { ...common, json: values.json, loading: values });
  }
  if ((values.ids === undefined) === (given === undefined))
    throw new UsageError(
      `${COMMAND}: expected a text, or --ids with token ids, got ${given === undefined ? "neither" : "both"}`,
    );
  const { weights, activations, cache, threads } = common;
  const work = readWork(values, cache);
  const { layer, head } = work;
  const stdout = standardOutput();
  const output = {
    colours: coloursOf(readChoice(COMMAND, "--colour", values.colour, COLOUR_CHOICES) ?? "auto", stdout),
    columns: columnsOf(COMMAND, values.width, stdout),
  };
  const listed = values.ids === undefined ? [] : readIds(COMMAND, "--ids", values.ids);

  const text = given === undefined ? undefined : await readPrompt(given);
  const { opened, model, loadMs } = await openDecoder(COMMAND, path, values, {
    ...{ weights, activations, threads, deterministic: values.deterministic },
    ...(text !== undefined && { tokenizer: undefined, libraries: findLibraries(COMMAND) }),
    ...(work.statistics && { statistics }),
  });
  const tokenizer = text === undefined ? undefined : opened.parts.tokenizer;
  try {
    const ids = tokenizer && text !== undefined ? encode(tokenizer, text) : listed;
    const wordOf = (id: number) => (tokenizer ? decode(tokenizer, id) : String(id));
    checkText(COMMAND, model, text === undefined ? "--ids" : "TEXT", ids);
    if (model.maxSeqLen !== undefined && ids.length > model.maxSeqLen)
      console.error(
        `headwise ${COMMAND}: ${ids.length} tokens are more than the ${model.maxSeqLen} that the model states`,
      );
    const unknown = tokenizer ? ids.filter((id) => id === unknownId(tokenizer)).length : 0;
    if (unknown > 0)
      console.error(
        `headwise ${COMMAND}: ${unknown} ${unknown === 1 ? "token of the text is" : "tokens of the text are"} ${tokenizer?.specialTokens?.unk_token}: the vocabulary lacks the word`,
      );
    const view = { ...output, labels: labelsOf(ids.map(wordOf)) };
    const found = await inspectModel(COMMAND, model, ids, work, keysThatFit(view));
    const place = layer === undefined ? found.maps[0] : { layer, head: head ?? 0 };
    const { deterministic } = values;
    const page =
      text === undefined ? undefined : inspectorAddress({ path, text, place, work, weights, cache, deterministic });
    const all = { ...found, text, ids, wordOf, loadMs, page };
    print(values.json ? inspectionJson(all) : inspectionText(all, view, values.link));
  } finally {
    opened.release();
  }
}

/** The ids of a text. A text that the vocabulary has no tokens for is an error in the command line. */
function encode(tokenizer: Tokenizer, text: string): readonly number[] {
  try {
    return tokenizer.encode(text);
  } catch (error) {
    throw error instanceof RangeError ? new UsageError(`${COMMAND}: ${error.message}`) : error;
  }
}

/** The id that stands for words outside the vocabulary, if the tokenizer has one. */
function unknownId(tokenizer: Tokenizer): number | undefined {
  const token = tokenizer.specialTokens?.unk_token;
  const ids = token === undefined ? [] : tokenizer.encode(token, { addSpecial: false });
  return ids.length === 1 ? ids[0] : undefined;
}

/** The word of an id. Some models have more ids than their tokenizer has tokens. */
function decode(tokenizer: Tokenizer, id: number): string {
  try {
    return tokenizer.decode([id], { keepSpecial: true });
  } catch (error) {
    if (error instanceof RangeError) return `#${id}`;
    throw error;
  }
}

/** What the options ask for, checked but for what depends on the model. */
function readWork(values: Values, cache: InspectWork["cache"]): InspectWork {
  const index = (name: "layer" | "head") => {
    const text = values[name];
    return text === undefined ? undefined : readCount(COMMAND, `--${name}`, text, 0, MOST_HEADS);
  };
  const [layer, head] = [index("layer"), index("head")];
  if (head !== undefined && layer === undefined)
    throw new UsageError(`${COMMAND}: --head expected --layer beside it, got none`);
  if (values.why !== undefined && head === undefined)
    throw new UsageError(
      `${COMMAND}: --why expected --layer and --head beside it, got ${layer === undefined ? "neither" : "--layer alone"}`,
    );
  const without = values.without === undefined ? [] : readHeads(values.without);
  const next = values.next ?? String(without.length > 0 ? NEXT : 0);
  const maps = values.maps ?? String(values.json ? 0 : MAPS);
  return {
    ...{ layer, head, without },
    maps: readCount(COMMAND, "--maps", maps, 0, MOST_HEADS),
    from: readCount(COMMAND, "--from", values.from ?? "0", 0, MOST_TOKENS - 1),
    whole: values.json,
    statistics: values.statistics,
    pair: values.pair === undefined ? undefined : readPair("--pair", values.pair),
    why: values.why === undefined ? undefined : readPair("--why", values.why),
    next: readCount(COMMAND, "--next", next, 0, 1024),
    cache,
  };
}

/** The option --without: heads as 1.4,1.5. */
function readHeads(text: string): HeadPlace[] {
  return text.split(",").map((each) => {
    const [, layer, head] = /^\s*(\d{1,5})\.(\d{1,5})\s*$/.exec(each) ?? [];
    if (head !== undefined) return { layer: Number(layer), head: Number(head) };
    throw new UsageError(`${COMMAND}: --without expected heads as LAYER.HEAD, separated by commas, got ${text}`);
  });
}

/** Two positions as 9,6. */
function readPair(name: string, text: string): { query: number; key: number } {
  const [, query, key] = /^\s*(\d{1,5})\s*,\s*(\d{1,5})\s*$/.exec(text) ?? [];
  if (key !== undefined) return { query: Number(query), key: Number(key) };
  throw new UsageError(`${COMMAND}: ${name} expected the positions of a query and a key, such as 9,6, got ${text}`);
}
