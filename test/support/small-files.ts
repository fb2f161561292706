// A folder of files for tests that quantise, with a small decoder to write into it.

import { mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { afterAll } from "vitest";
import type { Tensor } from "../../src/entries/core.ts";
import { type WritableTensor, writeSafetensors } from "../../src/entries/weights.ts";
import { createRandom } from "../../src/tools/diagnostics/random.ts";
import { floats } from "./harness.ts";

/** To be called once in a file of tests, behind whose last one the folder is removed. */
export function createSmallFiles() {
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

  const folder = mkdtempSync(join(tmpdir(), "headwise-files-"));
  afterAll(() => rmSync(folder, { recursive: true, force: true }));

  const at = (name: string) => join(folder, name);

  /** Writes a safetensors file; returns its path. */
  const write = (name: string, tensors: Record<string, WritableTensor>, metadata?: Record<string, string>) => {
    writeFileSync(at(name), writeSafetensors(tensors, metadata));
    return at(name);
  };
  return { at, folder, model, random, tensor, write };
}
