// npm run bench:peers -- encoders [--model NAME] [--quick] [--rounds N] [--most MULTIPLY_ADDS]: vectors a second of whole encoders for
// lengths and batches of texts, and the time to the first vector, beside transformers.js on the same texts. Each peer has one thread and
// a process of its own, and all alternate.

import { execFileSync } from "node:child_process";
import { mkdirSync, mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { parseArgs } from "node:util";
import { build } from "esbuild";
import { originOf } from "../../lib/machine.ts";
import { peakLoopBytes } from "../../lib/peak-loops.ts";
import { root, versionOf } from "../packages.ts";
import type { Report } from "./child.ts";
import { BATCHES, type Job, LENGTHS } from "./embedder.ts";
import { writeOnnxEncoder } from "./onnx-encoder.ts";
import { type EncoderShape, multiplyAdds, randomWeights, SHAPES, writeFolder } from "./shape.ts";
import { differenceOf, linesOf, tableOf, type Variant } from "./table.ts";

/** headwise's are compared with others of the same kind of weights. */
const VARIANTS: readonly Variant[] = [
  { peer: "headwise", format: "f32", kind: "f32", name: "headwise f32" },
  { peer: "headwise", format: "q8", kind: "q8", name: "headwise q8" },
  { peer: "headwise", format: "q8 fast", kind: "q8", name: "headwise q8 fast" },
  { peer: "transformers-js", format: "fp32", kind: "f32", name: "wasm fp32" },
  { peer: "transformers-js", format: "fp32 native", kind: "f32", name: "native fp32" },
  { peer: "transformers-js", format: "q8", kind: "q8", name: "wasm q8" },
  { peer: "transformers-js", format: "q8 native", kind: "q8", name: "native q8" },
];

const { values: options } = parseArgs({
  options: {
    model: { type: "string", default: "" },
    quick: { type: "boolean", default: false },
    rounds: { type: "string" },
    most: { type: "string" },
  },
});
const rounds = Number(options.rounds ?? (options.quick ? 1 : 3));
if (!(Number.isInteger(rounds) && rounds > 0))
  throw new RangeError(`--rounds expected an integer > 0, got ${options.rounds}`);
/** Cells of more multiply-adds than this are left out: 20 seconds of wasm's peak, or 1. */
const most = Number(options.most ?? (options.quick ? 2.5e10 : 5e11));
const shapes = SHAPES.filter(({ name }) => name.toLowerCase().includes(options.model.toLowerCase()));
if (shapes.length === 0)
  throw new RangeError(`--model expected part of ${SHAPES.map(({ name }) => name).join(", ")}, got ${options.model}`);

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
const loops = join(scripts, "loops.wasm");
writeFileSync(loops, await peakLoopBytes("relaxed"));

const { machine, engine, date, commit } = originOf();
console.log(
  `${machine.cpu}, one thread, Node ${engine.node}, transformers.js ${versionOf("@huggingface/transformers")}, ` +
    `${date.slice(0, 10)}, ${commit?.slice(0, 7)}, rounds: ${rounds}`,
);
for (const shape of shapes) measure(shape);

function measure(shape: EncoderShape): void {
  const folder = mkdtempSync(join(tmpdir(), "headwise-encoders-"));
  const remove = () => rmSync(folder, { recursive: true, force: true });
  process.once("exit", remove);
  const weights = randomWeights(shape);
  for (const format of ["f32", "q8"] as const) writeFolder(join(folder, format), shape, weights, format);
  mkdirSync(join(folder, "f32/onnx"));
  for (const format of ["fp32", "q8"] as const) writeOnnxEncoder(join(folder, "f32/onnx"), format, shape, weights);

  const cells = LENGTHS.flatMap((tokens) => BATCHES.map((texts) => ({ tokens, texts }))).filter(
    ({ tokens, texts }) => texts * multiplyAdds(shape, weights, tokens) <= most,
  );
  const { task, pooling, external } = shape;
  const job = { folder, loops, cells, task, pooling, external, givesVectors: shape.dense.length > 0 };
  const results = new Map<Variant, Report[]>(VARIANTS.map((variant) => [variant, []]));
  for (let round = 0; round < rounds; round++)
    for (let turn = 0; turn < VARIANTS.length; turn++) {
      const variant = VARIANTS[(round + turn) % VARIANTS.length]!;
      const own: Job = { ...job, format: variant.format, ms: options.quick ? 300 : 700 };
      const args = [join(scripts, `${variant.peer}.mjs`), JSON.stringify(own)];
      const stdio: ["ignore", "pipe", "inherit"] = ["ignore", "pipe", "inherit"];
      const text = execFileSync(process.execPath, args, { encoding: "utf8", stdio, maxBuffer: 2 ** 26 });
      results.get(variant)!.push(JSON.parse(text) as Report);
    }
  remove();
  const expected = results.get(VARIANTS[0]!)![0]!.vectors;
  for (const [{ name, kind }, [first]] of results) {
    const error = differenceOf(first!.vectors, expected);
    if (kind === "f32" && !(error < 1e-3)) throw new Error(`${shape.name}, ${name}: vectors differ by ${error}`);
  }
  console.log(`\n### ${shape.name}\n`);
  console.log(tableOf(results, cells, ({ tokens }) => multiplyAdds(shape, weights, tokens)));
  console.log(`\n${linesOf(results)}`);
}
