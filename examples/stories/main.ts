// `npm start -- "the cat sat on the mat because it was"`: a trained four-layer decoder tells a story on, and asks what "it"
// was. One of its heads looks back at the answer, which is drawn over the words.

import { readFileSync } from "node:fs";
import { parseArgs } from "node:util";
import { loadKernels } from "headwise";
import { createSession, generate, loadModel, models } from "headwise/models";
import { attentionMaps } from "../induction/maps.ts";
import { drawWeights, findAnswers, weightsOf } from "./look-back.ts";
import { readWords } from "./text.ts";

/** The fields of logits.json and config.json that are read here. */
interface Described {
  readonly head: { readonly layer: number; readonly head: number };
}
interface Config {
  readonly max_position_embeddings: number;
}

const USAGE = `npm start -- [options] [the beginning of a story]
  --tokens N          words and marks at most (default: until the story ends)
  --temperature T     0 takes the likeliest word, 1 draws by the probabilities (default 0.7)
  --seed N            another story (default 2)
  --deterministic     the build that gives the same bits on every engine
  --model induction   the smaller model, which continues repetitions: npm start -- --model induction --help`;

const { values, positionals } = readArguments();
if (values.help) {
  console.log(USAGE);
  process.exit();
}
const prompt = positionals.length === 0 ? "the cat sat on the mat because it was" : positionals.join(" ");

const folder = new URL("../../model/stories/", import.meta.url);
const text = (file: string) => readFileSync(new URL(file, folder), "utf8");
const words = readWords(text("tokenizer.json"));
const { max_position_embeddings: longest } = JSON.parse(text("config.json")) as Config;
const ids = encode(prompt);
if (ids.length >= longest) stop(`The model reads at most ${longest - 2} words and marks; got ${ids.length - 1}.`);
const maxTokens = integer("tokens", values.tokens, 1, longest) ?? longest;
const seed = integer("seed", values.seed, 0, 2 ** 32 - 1);
const temperature = Number(values.temperature);
if (!(temperature >= 0)) stop(`--temperature takes a number from 0; got ${values.temperature}.`);

const kernels = await loadKernels({ deterministic: values.deterministic, models });
const model = await loadModel(kernels, folder);
const session = createSession(model, { maxSeqLen: longest });

const [bold, plain] = process.stdout.isTTY ? ["\x1b[1m", "\x1b[0m"] : ["", ""];
process.stdout.write(`${written(ids).trim()}${bold}`);
const started = performance.now();
const times: number[] = [];
const made: number[] = [];
for await (const { id } of generate(session, ids, { maxTokens, temperature, seed, stopIds: [words.end] })) {
  times.push(performance.now());
  made.push(id);
  process.stdout.write(words.decode(id));
}
console.log(`${plain}\n`);
const [first = started, last = started] = [times[0], times.at(-1)];
console.log(`first token   ${(first - started).toFixed(2)} ms for ${ids.length} tokens of prompt`);
if (made.length > 1)
  console.log(
    `decode        ${Math.round((1000 * (made.length - 1)) / (last - first))} tokens/s, ${model.layers} layers, KV cache`,
  );
console.log(`build         ${kernels.build}: ${kernels.reason}\n`);

const all = [...ids, ...made];
const spoken = all.map((id) => words.decode(id).trim());
const { head } = JSON.parse(text("logits.json")) as Described;
const answers = findAnswers(spoken);
if (answers.length === 0) console.log("The story answered no question, so there is no look back to draw.");
else {
  const bytes = readFileSync(new URL("model.safetensors", folder));
  const maps = attentionMaps(kernels, bytes, text("config.json"), all)[head.layer] as ReturnType<
    typeof attentionMaps
  >[number];
  console.log(`Layer ${head.layer} head ${head.head}, where it looks for the answer:`);
  const shown = new Set<string>();
  for (const { begin, at } of answers) {
    // A story may ask again what was answered.
    const answered = `${spoken.slice(begin, at).join(" ")} -> ${spoken[at]}`;
    if (shown.has(answered)) continue;
    shown.add(answered);
    const weights = weightsOf(maps, head.head, at - 1);
    const most = weights.indexOf(Math.max(...weights));
    console.log(`\n${answered}: ${(weights[most] as number).toFixed(2)} on "${spoken[most]}"`);
    // The begin token is no word.
    const drawn = drawWeights(spoken.slice(1, at), weights.subarray(1), (process.stdout.columns ?? 100) - 2);
    console.log(drawn.map((line) => `  ${line}`.trimEnd()).join("\n"));
  }
}
kernels.release();

function written(tokens: readonly number[]): string {
  return tokens.map((id) => words.decode(id)).join("");
}

function encode(given: string): number[] {
  try {
    return words.encode(given);
  } catch (error) {
    const { model: vocabulary, added_tokens: special } = JSON.parse(text("tokenizer.json"));
    const known = Object.keys(vocabulary.vocab).length - special.length;
    return stop(`The model knows the ${known} words of model/stories/tokenizer.json; got ${(error as Error).message}.`);
  }
}

function integer(name: string, given: string | undefined, least: number, most: number): number | undefined {
  if (given === undefined) return undefined;
  const value = Number(given);
  if (Number.isInteger(value) && value >= least && value <= most) return value;
  return stop(`--${name} takes an integer from ${least} to ${most}; got ${given}.`);
}

function readArguments() {
  const options = {
    tokens: { type: "string" },
    temperature: { type: "string", default: "0.7" },
    seed: { type: "string", default: "2" },
    deterministic: { type: "boolean", default: false },
    help: { type: "boolean", short: "h", default: false },
  } as const;
  try {
    return parseArgs({ allowPositionals: true, options });
  } catch (error) {
    return stop((error as Error).message);
  }
}

function stop(message: string): never {
  console.error(`${message}\n\n${USAGE}`);
  process.exit(1);
}
