// GGUF files from the disk to panels, by the type of their blocks: megabytes a second, beside reading the file alone; and from nothing
// to the first token of two models of a real shape.

import { execFileSync } from "node:child_process";
import { mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { fileURLToPath } from "node:url";
import { type Column, part } from "../lib/part.ts";
import { type BlockType, GGUF_BLOCKS, type LlamaShape, writeRandomGguf } from "../lib/random-gguf.ts";

const RUNS = 5;
const QUICK_RUNS = 1;

/** 134 million weights. */
const SHAPE: LlamaShape = { width: 1024, hidden: 3072, layers: 8, heads: 16, kvHeads: 8, vocabulary: 32_768 };
/** Those of SmolLM2 135M, and of a model of 400 MB as Q4_K_M has it. */
const SMOL: LlamaShape = { width: 576, hidden: 1536, layers: 30, heads: 9, kvHeads: 3, vocabulary: 49_152 };
const LARGER: LlamaShape = { width: 1024, hidden: 3072, layers: 36, heads: 16, kvHeads: 8, vocabulary: 151_936 };

const typeOfMix = (name: string): BlockType => (/token_embd|attn_v|ffn_down/.test(name) ? "Q6_K" : "Q4_K");

/** What a process prints, in seconds. */
interface Run {
  readonly started: number;
  readonly read: number;
  readonly loaded: number;
  readonly processor: number;
  readonly first: number;
}

interface LoadingRow extends Run {
  readonly file: string;
  readonly bytes: number;
}

const rate = ({ bytes }: LoadingRow, seconds: number) => (bytes / 1e6 / seconds).toFixed(0);
const columns: readonly Column<LoadingRow>[] = [
  ["blocks", 18, (row) => row.file],
  ["MB", 5, (row) => (row.bytes / 1e6).toFixed(0)],
  ["MB/s", 5, (row) => rate(row, row.loaded)],
  ["by processor time", 17, (row) => rate(row, row.processor)],
  ["reading alone", 13, (row) => rate(row, row.read)],
  ["kernels ms", 10, (row) => (1000 * row.started).toFixed(0)],
  ["first token s", 13, (row) => row.first.toFixed(2)],
];

const median = (values: readonly number[]) => values.toSorted((a, b) => a - b)[values.length >> 1] as number;

const FILES: readonly (readonly [file: string, shape: LlamaShape, typeOf: (name: string) => BlockType])[] = [
  ...(Object.keys(GGUF_BLOCKS) as BlockType[]).map((type) => [type, SHAPE, () => type] as const),
  ["SmolLM2 135M, Q8_0", SMOL, () => "Q8_0"],
  ["Q4_K_M", LARGER, typeOfMix],
];

export const loading = part("loading", columns, async function* rows({ quick, wants }): AsyncGenerator<LoadingRow> {
  const folder = mkdtempSync(join(tmpdir(), "headwise-loading-"));
  const path = join(folder, "model.gguf");
  const child = fileURLToPath(new URL("load-file.mjs", import.meta.url));
  try {
    for (const [file, shape, typeOf] of FILES) {
      if (!wants(file) || (quick && !/^(Q4_K|Q6_K|Q8_0|Q4_0)$/.test(file))) continue;
      const bytes = await writeRandomGguf(path, shape, typeOf);
      const runs = Array.from(
        { length: quick ? QUICK_RUNS : RUNS },
        (): Run => JSON.parse(execFileSync(process.execPath, [child, path], { encoding: "utf8" })),
      );
      const of = (name: keyof Run) => median(runs.map((run) => run[name]));
      const times = { started: of("started"), read: of("read"), loaded: of("loaded") };
      yield { file, bytes, ...times, processor: of("processor"), first: of("first") };
    }
  } finally {
    rmSync(folder, { recursive: true });
  }
});
