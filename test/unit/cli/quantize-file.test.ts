// Files quantised in pieces.

import { mkdtempSync, readFileSync, rmSync, statSync, writeFileSync } from "node:fs";
import { open } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { afterAll, beforeAll, expect, test } from "vitest";
import { HeadwiseError } from "../../../src/base/util/errors.ts";
import { isLinearName, PIECE_BYTES, PIECE_ELEMENTS, quantizeFile } from "../../../src/cli/quantize.ts";
import type { Tensor } from "../../../src/entries/core.ts";
import {
  fileSource,
  quantizeTensor,
  readSafetensors,
  type WritableTensor,
  writeSafetensors,
} from "../../../src/entries/weights.ts";
import { createRandom } from "../../../src/tools/diagnostics/random.ts";
import { floats } from "../../support/harness.ts";

let folder: string;
beforeAll(() => {
  folder = mkdtempSync(join(tmpdir(), "headwise-cli-"));
});
afterAll(() => rmSync(folder, { recursive: true, force: true }));

const at = (name: string) => join(folder, name);
const random = createRandom(7);

const tensor = (...shape: number[]): Tensor => ({
  data: floats(
    random,
    shape.reduce((a, b) => a * b, 1),
  ),
  shape,
});

/** A small decoder in Llama's words, with what a file may hold besides. */
const model: Record<string, WritableTensor> = {
  "model.embed_tokens.weight": tensor(10, 64),
  "lm_head.weight": tensor(10, 64),
  "model.norm.weight": tensor(64),
  "model.layers.0.input_layernorm.weight": tensor(64),
  "model.layers.0.mlp.gate.weight": tensor(4, 64),
  "model.layers.0.mlp.down_proj.weight": tensor(64, 80),
  "model.layers.0.self_attn.rotary.steps": { dtype: "I64", shape: [3], bytes: new Uint8Array(24).fill(7) },
  ...Object.fromEntries(
    ["q", "k", "v", "o"].map((part) => [`model.layers.0.self_attn.${part}_proj.weight`, tensor(64, 64)]),
  ),
};

const write = (name: string, tensors: Record<string, WritableTensor>, metadata?: Record<string, string>) => {
  writeFileSync(at(name), writeSafetensors(tensors, metadata));
  return at(name);
};

test.each([
  ["model.layers.3.mlp.up_proj.weight", true],
  ["in_proj_weight", true],
  ["encoder.block.0.layer.0.SelfAttention.q.weight", true],
  ["model.layers.3.mlp.gate_proj.weight", true],
  ["model.layers.3.mlp.gate.weight", false],
  ["model.embed_tokens.weight", false],
  ["lm_head.weight", false],
  ["transformer.wte.weight", false],
  ["shared.weight", false],
  ["model.layers.3.post_attention_layernorm.weight", false],
  ["block.0.SelfAttention.relative_attention_bias.weight", false],
  ["model.layers.3.self_attn.q_proj.bias", false],
])("whether %s is a linear weight of a layer: %s", (name, is) => expect(isLinearName(name)).toBe(is));

test("no read and no write is larger than a piece, whatever the tensors are, and no byte is read twice", async () => {
  const rows = 3 * Math.ceil(PIECE_ELEMENTS / 1024) + 5;
  const input = write("pieces.safetensors", {
    "a.weight": { data: floats(random, rows * 1024), shape: [rows, 1024] },
    "embed.weight": { data: floats(random, PIECE_BYTES / 4 + 3), shape: [PIECE_BYTES / 4 + 3] },
  });
  const handle = await open(input);
  const reads: number[] = [];
  const source = await fileSource({
    stat: () => handle.stat(),
    read: (into, offset, length, position) => {
      reads.push(length);
      return handle.read(into, offset, length, position);
    },
  });
  const writes: Uint8Array[] = [];
  const steps: number[] = [];
  await quantizeFile("quantize", source, async (bytes) => void writes.push(bytes), {
    format: "Q8_0",
    onProgress: (done, total) => void steps.push(done / total),
  });
  await handle.close();
  expect(Math.max(...reads)).toBe(4 * PIECE_ELEMENTS);
  expect(Math.max(...writes.map(({ length }) => length))).toBeLessThanOrEqual(PIECE_BYTES);
  expect(reads.reduce((sum, length) => sum + length, 0)).toBe(statSync(input).size);
  expect(steps.length).toBe(4 + 2);
  expect(steps.at(-1)).toBe(1);
  expect(steps).toEqual(steps.toSorted((a, b) => a - b));
  // Pieces of a matrix are the matrix.
  const given = readSafetensors(readFileSync(input)).tensors;
  const expected = writeSafetensors({
    "embed.weight": given.get("embed.weight")!,
    "a.weight": quantizeTensor(given.get("a.weight")!, "Q8_0"),
  });
  expect(Buffer.compare(Buffer.concat(writes), expected)).toBe(0);
  rmSync(input);
});

test("a source that breaks off is BAD_FILE", async () => {
  const bytes = writeSafetensors(model);
  const source = {
    size: bytes.length,
    read: async (offset: number, length: number) =>
      offset > 20_000 ? new Uint8Array(0) : bytes.slice(offset, offset + length),
  };
  const refused = quantizeFile("quantize", source, async () => {}, { format: "Q8_0" });
  await expect(refused).rejects.toThrow(HeadwiseError);
  await expect(refused).rejects.toThrow(/^quantize: source expected \d+ bytes at \d+, got 0$/);
});
