// `npm start -- "qz7 mfk qz7 m"`: a trained two-layer decoder continues a text whose beginning repeats, and its attention
// maps show how: a previous-token head in layer 0 and induction heads in layer 1.

import { readFileSync } from "node:fs";
import { parseArgs } from "node:util";
import { loadKernels } from "headwise";
import { quantized } from "headwise/quantized";
import { argmax, createDecoder } from "../decoder/decoder.ts";
import { type HeldOut, measureAccuracy } from "./accuracy.ts";
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
// Kernels of other formats are loaded only if they are needed.
const isQuantized = [formats.weights, formats.cache].some((format) => format !== undefined && format !== "f32");
const kernels = await loadKernels({
  deterministic: values.deterministic,
  quantized: isQuantized ? quantized : undefined,
});
const decoder = load(formats.weights);
const caches = decoder.createCaches(prompt.length + count, formats.cache);
const tokens = Array.from(prompt, (character) => {
  const token = decoder.vocabulary.indexOf(character);
  return token < 0 ? refuse(`the character ${JSON.stringify(character)}`) : token;
});

const started = performance.now();
let next = argmax(decoder.next({ tokens, caches }));
const firstToken = performance.now() - started;
const made = [next];
while (made.length < count) {
  next = argmax(decoder.next({ tokens: [next], caches }));
  made.push(next);
}
const decodeSeconds = (performance.now() - started - firstToken) / 1000;

const text = made.map((token) => decoder.vocabulary[token]).join("");
const bold = process.stdout.isTTY ? ["\x1b[1m", "\x1b[0m"] : ["", ""];
console.log(`prompt        ${prompt}`);
console.log(`continuation  ${bold[0]}${text}${bold[1]}`);
console.log(`first token   ${firstToken.toFixed(2)} ms for ${tokens.length} tokens of prompt`);
if (count > 1)
  console.log(`decode        ${Math.round((count - 1) / decodeSeconds)} tokens/s, ${caches.length} layers, KV cache`);
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
    `The model was trained on texts of ${shown.length} characters and this one has ${all.length}: later ` +
      "characters mean little, and the maps leave them out.",
  );
for (const cache of caches) cache.release();
decoder.release();
kernels.release();

function load(weights?: (typeof WEIGHTS)[number]) {
  const bytes = readFileSync(new URL("model.safetensors", model));
  return createDecoder(kernels, bytes, readFileSync(new URL("config.json", model), "utf8"), weights);
}

/** Prints the bytes and the accuracy of the formats and of float32. */
function compare(): void {
  const heldOut = JSON.parse(readFileSync(new URL("heldout.json", model), "utf8")) as HeldOut;
  const measure = (weights?: (typeof WEIGHTS)[number], cache?: (typeof CACHES)[number]) => {
    const decoder = load(weights);
    const caches = decoder.createCaches(decoder.trainedLen, cache);
    const { hits, targets } = measureAccuracy(decoder, caches, heldOut);
    const cacheBytes = caches.reduce((sum, { bytes }) => sum + bytes, 0);
    for (const cache of caches) cache.release();
    decoder.release();
    const share = `${((100 * hits) / targets).toFixed(2)} %`;
    return { weights: decoder.weightBytes, cache: cacheBytes, share, targets };
  };
  const [some, exact] = [measure(formats.weights, formats.cache), measure()];
  const count = (n: number) => n.toLocaleString("en");
  const bytes = (part: "weights" | "cache") =>
    `${count(some[part])} bytes in ${formats[part] ?? "f32"}, ${count(exact[part])} in f32`;
  console.log(`weights       ${bytes("weights")}`);
  console.log(`cache         ${bytes("cache")}, for ${decoder.trainedLen} tokens`);
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
