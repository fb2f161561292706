// npm run bench:peers -- decoders [--quick] [--model M,N] [--peers A,B] [--rounds N] [--folder FOLDER] [--json FILE] [--show]
// M and N are parts of the names of models; A and B of those of variants ("wllama q8"). FILE keeps the rows of earlier runs
// that this one does not measure; with --show it is only printed. FOLDER keeps the models that are written for the peers.

import { existsSync, readFileSync, writeFileSync } from "node:fs";
import { parseArgs } from "node:util";
import { originOf } from "../../lib/machine.ts";
import { reasonOf } from "../measure.ts";
import { errorOf, expectExact } from "./check.ts";
import { chromiumMissing } from "./chromium.ts";
import type { Effort } from "./measure-decoder.ts";
import { modelFiles } from "./model-files.ts";
import type { DecoderResult, DecoderRow, Round } from "./result.ts";
import { prepareTasks, runTask } from "./run-task.ts";
import type { DecoderShape } from "./shape.ts";
import { SHAPES } from "./shapes.ts";
import { printTables } from "./table.ts";
import type { Outcome } from "./task.ts";
import { nameOf, peerVersions, reasonAgainst, VARIANTS, type Variant } from "./variants.ts";

/** Tokens of the longest sequence: 1024, and the single ones behind them. */
const MAX_SEQ_LEN = 1152;
const FULL: Effort = { prompts: [128, 512], pasts: [128, 1024], promptTimes: 5, tokens: 48, mostSeconds: 8 };
const QUICK: Effort = { prompts: [128], pasts: [128], promptTimes: 2, tokens: 16, mostSeconds: 3 };

/** What --quick leaves out: slow, or much like another. */
const NOT_QUICK = [
  "headwise q8",
  "headwise q8 fast",
  "headwise q8-row",
  "headwise q8-row fast with q8 caches",
  "headwise q4",
  "headwise q4 fast with q8 caches",
  "onnxruntime-web q4",
  "wllama q8_0",
  "headwise f32 file",
  "headwise q8_0 file",
  "headwise q4_k_m file",
];

const { values: options } = parseArgs({
  options: {
    quick: { type: "boolean", default: false },
    model: { type: "string" },
    peers: { type: "string", default: "" },
    rounds: { type: "string" },
    folder: { type: "string" },
    json: { type: "string" },
    show: { type: "boolean", default: false },
  },
});
const { json, quick } = options;
const versions = peerVersions();
const earlier =
  json !== undefined && existsSync(json) ? (JSON.parse(readFileSync(json, "utf8")) as DecoderResult) : undefined;
let result: DecoderResult = earlier && options.show ? earlier : { rows: [], ...earlier, ...originOf(), versions };

const rounds = Number(options.rounds ?? (quick ? 1 : 3));
const modelName = options.model ?? (quick ? "SmolLM2" : "");
const isNamed = (name: string, parts: string) => parts.split(",").some((part) => name.includes(part));
const shapes = options.show ? [] : SHAPES.filter(({ name }) => isNamed(name, modelName));
const isChosen = (name: string) =>
  options.peers === "" ? !(quick && NOT_QUICK.includes(name)) : isNamed(name, options.peers);
const chosen = VARIANTS.filter((variant) => isChosen(nameOf(variant)));
if (!(Number.isInteger(rounds) && rounds > 0))
  throw new RangeError(`--rounds expected an integer > 0, got ${options.rounds}`);
if (!options.show && shapes.length === 0)
  throw new RangeError(`--model expected a part of ${SHAPES.map(({ name }) => name).join(", ")}, got ${modelName}`);
if (chosen.length === 0)
  throw new RangeError(`--peers expected parts of ${VARIANTS.map(nameOf).join(", ")}, got ${options.peers}`);
// So that what this process started ends with it.
for (const signal of ["SIGINT", "SIGTERM", "SIGHUP"]) process.once(signal, () => process.exit(1));
if (!options.show) await prepareTasks(VARIANTS);
for (const shape of shapes) await measureShape(shape);
printTables(result);

function keep(row: DecoderRow): void {
  const isOld = ({ model, variant }: DecoderRow) => model === row.model && variant === row.variant;
  result = { ...result, rows: [...result.rows.filter((one) => !isOld(one)), row] };
  if (json !== undefined) writeFileSync(json, `${JSON.stringify(result, null, 2)}\n`);
}

/** Rounds in which the variants alternate (A B C, B C A, …), each in a process or page of its own. */
async function measureShape(shape: DecoderShape): Promise<void> {
  const files = modelFiles(shape, MAX_SEQ_LEN, options.folder);
  const rows = new Map<Variant, DecoderRow>();
  const expected = await referenceOf(shape);
  for (let round = 0; round < rounds; round++)
    for (let turn = 0; turn < chosen.length; turn++) {
      const variant = chosen[(round + turn) % chosen.length]!;
      const row = rows.get(variant) ?? { model: shape.name, variant: nameOf(variant), rounds: [] };
      if (row.reason !== undefined) continue;
      const measured = await measureRow(variant, row);
      rows.set(variant, measured);
      keep(measured);
      console.error(`${shape.name} ${nameOf(variant)}: ${measured.reason ?? lineOf(measured.rounds.at(-1)!)}`);
    }
  files.remove();

  async function measureRow(variant: Variant, row: DecoderRow): Promise<DecoderRow> {
    try {
      const outcome = await run(variant, quick ? QUICK : FULL);
      const error = errorOf(outcome.logits, expected.logits);
      if (variant.kind === "f32") expectExact(error, outcome.greedy, expected.greedy);
      const { rates, startSeconds, peakBytes } = outcome;
      return { ...row, error, rounds: [...row.rounds, { rates, startSeconds, peakBytes }] };
    } catch (error) {
      return { ...row, reason: reasonOf(error) };
    }
  }

  function run(variant: Variant, effort: Effort): Promise<Outcome> {
    const reason = reasonAgainst(variant, shape) ?? (variant.inPage ? chromiumMissing : undefined);
    if (reason !== undefined) throw new Error(reason);
    const request = { source: files.path(variant.model), format: variant.format, maxSeqLen: MAX_SEQ_LEN };
    return runTask(variant, { request, vocabSize: shape.vocabSize, effort });
  }

  /** What headwise computes with all bits of the checkpoint: in float32, or in bfloat16 if that does not fit into wasm. */
  async function referenceOf({ vocabSize }: DecoderShape): Promise<Outcome> {
    const exact = shape.hybrid ? VARIANTS.find((variant) => nameOf(variant) === "headwise f32 file")! : VARIANTS[0]!;
    const format = reasonAgainst(exact, shape) === undefined ? exact.format : "bf16";
    const request = { source: files.path(exact.model), format, maxSeqLen: MAX_SEQ_LEN };
    const effort = { prompts: [], pasts: [], promptTimes: 0, tokens: 0, mostSeconds: 0 };
    return runTask(exact, { request, vocabSize, effort });
  }
}

function lineOf({ rates, startSeconds }: Round): string {
  const parts = Object.entries(rates).map(
    ([work, { rate, peak }]) => `${work} ${rate.toFixed(1)} (loop ${peak.toFixed(1)})`,
  );
  return `${parts.join(", ")}, start ${startSeconds.toFixed(1)} s`;
}
