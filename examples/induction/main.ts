// `npm start -- --model induction "qz7 mfk qz7 m"`: a trained two-layer decoder continues a text whose beginning repeats, and its attention
// maps show how: a previous-token head in layer 0 and induction heads in layer 1.

import { readFileSync } from "node:fs";
import { parseArgs } from "node:util";
import { loadKernels } from "headwise";
import { createSession, forward, loadModel, models } from "headwise/models";
import { quantized } from "headwise/quantized";
import { type HeldOut, measureAccuracy } from "./accuracy.ts";
import { heatMap, sideBySide } from "./heatmap.ts";
import { attentionMaps } from "./maps.ts";
import { scoreHead } from "./scores.ts";

/** The fields of config.json that are read here. */
interface Config {
  readonly vocabulary: string;
  readonly max_position_embeddings: number;
}

const USAGE = `npm start -- --model induction [options] [a text whose beginning repeats]
  --tokens N        how many characters to continue (default 24)
  --weights FORMAT  keep the attentions' weights in f16, bf16, q8, q8-row or q4 (default f32)
  --cache FORMAT    keep keys and values in f16, q8 or q4 (default f32); with either, the accuracy is shown
  --deterministic   the build that gives the same bits on every engine`;

const WEIGHTS = ["f32", "f16", "bf16", "q8", "q8-row", "q4"] as const;
const CACHES = ["f32", "f16", "q8", "q4"] as const;

const { values, positionals } = readArguments();
if (values.help) {
  console.log(USAGE);
  process.exit();
}
const prompt = positionals.length === 0 ? "qz7 mfk qz7 m" : positionals.join(" ");
const count = Number(values.tokens);
if (prompt === "") refuse("an empty prompt");
if (!Number.isInteger(count) || count < 1 || count > 10_000) refuse(`--tokens ${values.tokens}`);
const formats = {
  weights: chosen("--weights", values.weights, WEIGHTS),
  cache: chosen("--cache", values.cache, CACHES),
};

const folder = new URL("../../model/", import.meta.url);
const json = readFileSync(new URL("config.json", folder), "utf8");
const { vocabulary, max_position_embeddings: trainedLen } = JSON.parse(json) as Config; // a token is a character
// Kernels of other formats are loaded only if they are needed.
const isQuantized = [formats.weights, formats.cache].some((format) => format !== undefined && format !== "f32");
const kernels = await loadKernels({
  deterministic: values.deterministic,
  models,
  quantized: isQuantized ? quantized : undefined,
});
const model = await load(formats.weights);
const session = createSession(model, { maxSeqLen: prompt.length + count, format: formats.cache });
const tokens = Array.from(prompt, (character) => {
  const token = vocabulary.indexOf(character);
  return token < 0 ? refuse(`the character ${JSON.stringify(character)}`) : token;
});

const started = performance.now();
const made = [likeliest(tokens)];
const firstToken = performance.now() - started;
while (made.length < count) made.push(likeliest(made.slice(-1)));
const decodeSeconds = (performance.now() - started - firstToken) / 1000;

const text = made.map((token) => vocabulary[token]).join("");
const bold = process.stdout.isTTY ? ["\x1b[1m", "\x1b[0m"] : ["", ""];
console.log(`prompt        ${prompt}`);
console.log(`continuation  ${bold[0]}${text}${bold[1]}`);
console.log(`first token   ${firstToken.toFixed(2)} ms for ${tokens.length} tokens of prompt`);
if (count > 1)
  console.log(`decode        ${Math.round((count - 1) / decodeSeconds)} tokens/s, ${model.layers} layers, KV cache`);
console.log(`build         ${kernels.build}: ${kernels.reason}`);
if (formats.weights ?? formats.cache) await compare();
console.log();

const all = [...tokens, ...made];
const shown = all.slice(0, trainedLen);
const colours = process.stdout.isTTY && /truecolor|24bit/.test(process.env.COLORTERM ?? "");
const bytes = readFileSync(new URL("model.safetensors", folder));
for (const [layer, maps] of attentionMaps(kernels, bytes, json, shown, formats.weights).entries()) {
  const heads = Array.from({ length: maps.shape[0] as number }, (_, head) => {
    const { previous, induction, entropy, role } = scoreHead(maps, head, shown);
    console.log(
      `layer ${layer} head ${head}   previous token ${previous.toFixed(2)}   induction ${induction.toFixed(2)}   ` +
        `entropy ${entropy.toFixed(2)} bits   ${role}`,
    );
    return { title: `layer ${layer} head ${head}: ${role}`, lines: heatMap(maps, head, colours), width: shown.length };
  });
  console.log(`\n${sideBySide(heads, process.stdout.columns ?? 120)}`);
}
console.log(
  "Rows are queries, columns the keys they look at, from the first character to the last. A previous-token head lights",
);
console.log(
  "up the diagonal below the main one; an induction head the diagonals one step after an earlier copy of the text.",
);
if (all.length > shown.length)
  console.log(
    `The model was trained on texts of ${shown.length} characters and this one has ${all.length}: later ` +
      "characters mean little, and the maps leave them out.",
  );
kernels.release();

/** The likeliest token behind `ids`, which the session reads. */
function likeliest(ids: readonly number[]): number {
  return forward(session, ids, { top: 1 }).ids?.[0] as number;
}

/** The model, with its attention's weights in a format. */
function load(attention?: (typeof WEIGHTS)[number]) {
  return loadModel(kernels, folder, { weights: { attention } });
}

/** Prints the bytes and the accuracy of the formats and of float32. */
async function compare(): Promise<void> {
  const heldOut = JSON.parse(readFileSync(new URL("heldout.json", folder), "utf8")) as HeldOut;
  const measure = async (weights?: (typeof WEIGHTS)[number], format?: (typeof CACHES)[number]) => {
    const model = await load(weights);
    const session = createSession(model, { maxSeqLen: trainedLen, format });
    const { hits, targets } = measureAccuracy(session, vocabulary, heldOut);
    const share = `${((100 * hits) / targets).toFixed(2)} %`;
    session.release();
    model.release();
    return { weights: model.bytes, cache: session.bytes, share, targets };
  };
  const [some, exact] = [await measure(formats.weights, formats.cache), await measure()];
  const count = (n: number) => n.toLocaleString("en");
  const bytes = (part: "weights" | "cache") =>
    `${count(some[part])} bytes in ${formats[part] ?? "f32"}, ${count(exact[part])} in f32`;
  console.log(`weights       ${bytes("weights")}`);
  console.log(`cache         ${bytes("cache")}, for ${trainedLen} tokens`);
  console.log(`accuracy      ${some.share} of ${count(some.targets)} held-out characters, ${exact.share} in f32`);
}

function chosen<T extends string>(name: string, value: string | undefined, formats: readonly T[]): T | undefined {
  const format = formats.find((each) => each === value);
  if (value !== undefined && format === undefined) stop(`${name} takes ${formats.join(", ")}; got ${value}.`);
  return format;
}

function readArguments() {
  const options = {
    tokens: { type: "string", default: "24" },
    weights: { type: "string" },
    cache: { type: "string" },
    deterministic: { type: "boolean", default: false },
    help: { type: "boolean", short: "h", default: false },
  } as const;
  try {
    return parseArgs({ allowPositionals: true, options });
  } catch (error) {
    return stop((error as Error).message);
  }
}

function refuse(what: string): never {
  return stop(`The model reads printable ASCII, at least one character, and makes 1 to 10000 more; got ${what}.`);
}

function stop(message: string): never {
  console.error(`${message}\n\n${USAGE}`);
  process.exit(1);
}
