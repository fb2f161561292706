// The files of a decoder in a temporary folder, each written when it is first needed.

import { existsSync, mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { writeCheckpoint } from "./checkpoint.ts";
import { type GgufFormat, writeGgufDecoder } from "./gguf.ts";
import { writeOnnxDecoder } from "./onnx-decoder.ts";
import type { OnnxFormat } from "./onnx-weights.ts";
import { randomWeights } from "./random-weights.ts";
import type { DecoderShape } from "./shape.ts";

export type ModelFile =
  | { readonly kind: "checkpoint" }
  | { readonly kind: "onnx"; readonly format: OnnxFormat }
  | { readonly kind: "gguf"; readonly format: GgufFormat };

export interface ModelFiles {
  /** The path of a file, or of the folder of a checkpoint. */
  path(file: ModelFile): string;
  remove(): void;
}

export function modelFiles(shape: DecoderShape, maxSeqLen: number): ModelFiles {
  const folder = mkdtempSync(join(tmpdir(), "headwise-decoders-"));
  const remove = () => rmSync(folder, { recursive: true, force: true });
  process.once("exit", remove);
  const weights = randomWeights(shape);
  const write = (file: ModelFile, path: string) => {
    if (file.kind === "checkpoint") writeCheckpoint(path, shape, weights);
    else if (file.kind === "onnx") writeOnnxDecoder(path, file.format, shape, weights, maxSeqLen);
    else writeGgufDecoder(path, file.format, shape, weights);
  };
  return {
    path(file) {
      const path = join(folder, file.kind === "checkpoint" ? file.kind : `${file.format}.${file.kind}`);
      if (!existsSync(path)) write(file, path);
      return path;
    },
    remove,
  };
}
