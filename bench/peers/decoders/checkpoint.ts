// A folder as Hugging Face has it: config.json and model.safetensors in bfloat16.

import { writeFileSync } from "node:fs";
import { join } from "node:path";
import { FileWriter } from "./file-writer.ts";
import type { RandomWeights } from "./random-weights.ts";
import { type DecoderShape, elements } from "./shape.ts";

/** Values that are converted at once. */
const PIECE = 2 ** 24;

export function writeCheckpoint(folder: string, shape: DecoderShape, weights: RandomWeights): void {
  writeFileSync(join(folder, "config.json"), JSON.stringify(shape.config));
  let end = 0;
  const header = Object.fromEntries(
    weights.tensors.map(({ name, shape: size }) => {
      const begin = end;
      end += 2 * elements(size);
      return [name, { dtype: "BF16", shape: size, data_offsets: [begin, end] }];
    }),
  );
  const text = JSON.stringify(header);
  const bytes = new TextEncoder().encode(text.padEnd(Math.ceil(text.length / 8) * 8));
  const file = new FileWriter(join(folder, "model.safetensors"));
  file.write(BigUint64Array.of(BigInt(bytes.length)));
  file.write(bytes);
  for (const tensor of weights.tensors) {
    const count = elements(tensor.shape);
    for (let begin = 0; begin < count; begin += PIECE)
      file.write(upperHalves(weights.read(tensor, begin, Math.min(count, begin + PIECE))));
  }
  file.close();
}

/** bfloat16, without loss because the lower halves are 0. */
function upperHalves(floats: Float32Array): Uint16Array {
  const halves = new Uint16Array(floats.buffer);
  const upper = new Uint16Array(floats.length);
  for (let i = 0; i < upper.length; i++) upper[i] = halves[2 * i + 1]!;
  return upper;
}
