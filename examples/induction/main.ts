// The main job: `npm start -- "qz7 mfk qz7 m"`. A trained two-layer decoder continues a text whose beginning repeats, and
// shows the heads that let it: a previous-token head in layer 0 and induction heads in layer 1.

import { readFileSync } from "node:fs";
import { parseArgs } from "node:util";
import { loadKernels } from "headwise";
import { quantized } from "headwise/quantized";
import { argmax, type HeldOut, measureAccuracy } from "./accuracy.ts";
import { createDecoder, type Decoder, type DecoderFormats } from "./decoder.ts";
import { heatMap, sideBySide } from "./heatmap.ts";
import { scoreHead } from "./scores.ts";

const USAGE = `npm start -- [options] [a text whose beginning repeats]
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

const model = new URL("../../model/", import.meta.url);
// What is not asked for is not loaded.
const inFewerBits = [formats.weights, formats.cache].some((format) => format !== undefined && format !== "f32");
const kernels = await loadKernels({
  deterministic: values.deterministic,
  quantized: inFewerBits ? quantized : undefined,
});
const decoder = load(prompt.length + count, formats);
const tokens = Array.from(prompt, (character) => {
  const token = decoder.vocabulary.indexOf(character);
  return token < 0 ? refuse(`the character ${JSON.stringify(character)}`) : token;
});

const started = performance.now();
let next = argmax(decoder.next(tokens));
const firstToken = performance.now() - started;
const made = [next];
while (made.length < count) {
  next = argmax(decoder.next([next]));
  made.push(next);
}
const decodeSeconds = (performance.now() - started - firstToken) / 1000;

const text = made.map((token) => decoder.vocabulary[token]).join("");
const bold = process.stdout.isTTY ? ["\x1b[1m", "\x1b[0m"] : ["", ""];
console.log(`prompt        ${prompt}`);
console.log(`continuation  ${bold[0]}${text}${bold[1]}`);
console.log(`first token   ${firstToken.toFixed(2)} ms for ${tokens.length} tokens of prompt`);
if (count > 1)
  console.log(
    `decode        ${Math.round((count - 1) / decodeSeconds)} tokens/s, ${decoder.caches.length} layers, KV cache`,
  );
console.log(`build         ${kernels.build}: ${kernels.reason}`);
if (formats.weights ?? formats.cache) compare();
console.log();

const all = [...tokens, ...made];
const shown = all.slice(0, decoder.trainedLen);
const colours = process.stdout.isTTY && /truecolor|24bit/.test(process.env.COLORTERM ?? "");
for (const [layer, maps] of decoder.maps(shown).entries()) {
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
    `The model was trained on texts of ${shown.length} characters and this one has ${all.length}: what comes after those ` +
      "means little, and the maps leave it out.",
  );
decoder.release();
kernels.release();

function load(maxSeqLen: number, formats: DecoderFormats): Decoder {
  const bytes = readFileSync(new URL("induction.safetensors", model));
  return createDecoder(kernels, bytes, readFileSync(new URL("config.json", model), "utf8"), maxSeqLen, formats);
}

/** Says what the formats save and what they cost, beside float32. */
function compare(): void {
  const heldOut = JSON.parse(readFileSync(new URL("heldout.json", model), "utf8")) as HeldOut;
  const [some, exact] = [formats, {}].map((each) => {
    const tried = load(decoder.trainedLen, each);
    const { hits, targets } = measureAccuracy(tried, heldOut);
    const cache = tried.caches.reduce((sum, { bytes }) => sum + bytes, 0);
    tried.release();
    return { weights: tried.weightBytes, cache, share: `${((100 * hits) / targets).toFixed(2)} %`, targets };
  }) as [Measured, Measured];
  const count = (n: number) => n.toLocaleString("en");
  const bytes = (part: "weights" | "cache") =>
    `${count(some[part])} bytes in ${formats[part] ?? "f32"}, ${count(exact[part])} in f32`;
  console.log(`weights       ${bytes("weights")}`);
  console.log(`cache         ${bytes("cache")}, for ${decoder.trainedLen} tokens`);
  console.log(`accuracy      ${some.share} of ${count(some.targets)} held-out characters, ${exact.share} in f32`);
}

interface Measured {
  readonly weights: number;
  readonly cache: number;
  readonly share: string;
  readonly targets: number;
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
