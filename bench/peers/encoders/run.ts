// npm run bench:peers -- encoders [--quick] [--rounds N]: vectors a second of MiniLM's shape, and the time to the first one, beside
// onnxruntime-web on the same ids, and transformers.js on the same texts. Each peer has one thread and a process of its own, and all
// alternate.

import { execFileSync } from "node:child_process";
import { mkdirSync, mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { parseArgs } from "node:util";
import { build } from "esbuild";
import { median } from "../../../src/tools/diagnostics/timing.ts";
import { originOf } from "../../lib/machine.ts";
import { root, versionOf } from "../packages.ts";
import { fileNameOf, texts } from "./embedder.ts";
import { onnxEncoder } from "./onnx-encoder.ts";
import { CONFIG, folderOf, randomTensors } from "./shape.ts";
import { tokenizerFiles } from "./vocabulary.ts";

/** Rows are compared with those of the same inputs and kind of weights. */
const VARIANTS = [
  { peer: "headwise", format: "f32", kind: "f32", inputs: "ids" },
  { peer: "onnxruntime-web", format: "fp32", kind: "f32", inputs: "ids" },
  { peer: "headwise", format: "q8", kind: "q8", inputs: "ids" },
  { peer: "headwise", format: "q8 fast", kind: "q8", inputs: "ids" },
  { peer: "onnxruntime-web", format: "q8", kind: "q8", inputs: "ids" },
  { peer: "headwise", format: "f32 text", kind: "f32", inputs: "text" },
  { peer: "transformers-js", format: "fp32", kind: "f32", inputs: "text" },
  { peer: "transformers-js", format: "fp32 native", kind: "f32", inputs: "text" },
  { peer: "headwise", format: "q8 text", kind: "q8", inputs: "text" },
  { peer: "headwise", format: "q8 fast text", kind: "q8", inputs: "text" },
  { peer: "transformers-js", format: "q8", kind: "q8", inputs: "text" },
  { peer: "transformers-js", format: "q8 native", kind: "q8", inputs: "text" },
] as const;

interface Report {
  readonly startMs: number;
  readonly single: number;
  readonly batch: number;
  readonly vectors: readonly (readonly number[])[];
}

const { values: options } = parseArgs({
  options: { quick: { type: "boolean", default: false }, rounds: { type: "string" } },
});
const rounds = Number(options.rounds ?? (options.quick ? 1 : 5));
if (!(Number.isInteger(rounds) && rounds > 0))
  throw new RangeError(`--rounds expected an integer > 0, got ${options.rounds}`);
const seconds = options.quick ? 1 : 3;

const folder = mkdtempSync(join(tmpdir(), "headwise-encoders-"));
process.once("exit", () => rmSync(folder, { recursive: true, force: true }));
const tensors = randomTensors();
mkdirSync(join(folder, "onnx"));
mkdirSync(join(folder, "q8"));
for (const [format, own] of [
  ["f32", folder],
  ["q8", join(folder, "q8")],
] as const)
  for (const [name, bytes] of Object.entries({ ...folderOf(tensors, format), ...tokenizerFiles(CONFIG.vocab_size) }))
    writeFileSync(join(own, name), bytes);
for (const format of ["fp32", "q8"] as const)
  writeFileSync(join(folder, "onnx", fileNameOf(format)), onnxEncoder(tensors, format));
// Bundled, so that no process spends time on removing types; inside of this package, so that the peers' packages are found.
const scripts = join(root, `bench/peers/build/${process.pid}`);
mkdirSync(scripts, { recursive: true });
process.once("exit", () => rmSync(scripts, { recursive: true, force: true }));
for (const peer of new Set(VARIANTS.map((variant) => variant.peer)))
  await build({
    stdin: {
      contents: `import { load } from "./peers/${peer}.ts"; import { runChild } from "./child.ts"; await runChild(load);`,
      ...{ resolveDir: import.meta.dirname, loader: "ts" },
    },
    ...{ outfile: join(scripts, `${peer}.mjs`), bundle: true, format: "esm", platform: "node", packages: "external" },
  });

const reports = new Map<(typeof VARIANTS)[number], Report[]>(VARIANTS.map((variant) => [variant, []]));
for (let round = 0; round < rounds; round++)
  for (let turn = 0; turn < VARIANTS.length; turn++) {
    const variant = VARIANTS[(round + turn) % VARIANTS.length]!;
    const args = [join(scripts, `${variant.peer}.mjs`), variant.format, folder, `${seconds}`];
    const stdio: ["ignore", "pipe", "ignore"] = ["ignore", "pipe", "ignore"];
    const text = execFileSync(process.execPath, args, { encoding: "utf8", stdio, maxBuffer: 2 ** 26 });
    reports.get(variant)?.push(JSON.parse(text) as Report);
  }

const expected = reports.get(VARIANTS[0])?.[0]?.vectors ?? [];
/** The largest difference of a component from headwise's in float32; vectors have length 1. */
const errorOf = (vectors: Report["vectors"]) =>
  Math.max(...vectors.flatMap((vector, i) => vector.map((x, j) => Math.abs(x - (expected[i]?.[j] ?? Number.NaN)))));
const { machine, engine, date, commit } = originOf();
console.log(
  `MiniLM's shape, 64 texts of 6 to 64 tokens (mean ${(texts().flatMap(({ ids }) => ids).length / 64).toFixed(1)}); ` +
    `${machine.cpu}, one thread, Node ${engine.node}, onnxruntime-web ${versionOf("onnxruntime-web")}, transformers.js ` +
    `${versionOf("@huggingface/transformers")}, ${date.slice(0, 10)}, ${commit?.slice(0, 7)}`,
);
console.log("\n| | vectors/s, one at a time | in batches of 32 | ms to the first | error |\n|---|---:|---:|---:|---:|");
for (const [variant, all] of reports) {
  const of = (part: "single" | "batch" | "startMs") => median(all.map((each) => each[part]));
  const error = errorOf(all[0]?.vectors ?? []);
  if (variant.kind === "f32" && !(error < 1e-3)) throw new Error(`${variant.peer}: vectors differ by ${error}`);
  const cells = [of("single").toFixed(0), of("batch").toFixed(0), of("startMs").toFixed(0), error.toExponential(1)];
  console.log(`| ${variant.peer} ${variant.format} | ${cells.join(" | ")} |`);
}
for (const [variant, all] of reports)
  for (const [other, others] of reports) {
    if (variant.peer !== "headwise" || other.peer === "headwise") continue;
    if (other.kind !== variant.kind || other.inputs !== variant.inputs) continue;
    const times = (ratioOf: (own: Report, other: Report) => number) =>
      `${median(all.map((each, i) => ratioOf(each, others[i] as Report))).toFixed(2)}x`;
    console.log(
      `- headwise ${variant.format} beside ${other.peer} ${other.format}: one at a time ${times((a, b) => a.single / b.single)}, ` +
        `batches ${times((a, b) => a.batch / b.batch)}, the first vector ${times((a, b) => b.startMs / a.startMs)} sooner`,
    );
  }
