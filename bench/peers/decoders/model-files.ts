// The files of a decoder, each written when it is first needed: in a temporary folder, or in one that is kept.

import { existsSync, mkdirSync, mkdtempSync, renameSync, rmSync } from "node:fs";
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
  /** Removes the files, unless they are kept. */
  remove(): void;
}

/** `kept` is a folder whose files stay for the next run. */
export function modelFiles(shape: DecoderShape, maxSeqLen: number, kept?: string): ModelFiles {
  const folder = kept === undefined ? mkdtempSync(join(tmpdir(), "headwise-decoders-")) : join(kept, shape.name);
  const remove = () => {
    if (kept === undefined) rmSync(folder, { recursive: true, force: true });
  };
  process.once("exit", remove);
  const weights = randomWeights(shape);
  const write = (file: ModelFile, path: string) => {
    if (file.kind === "checkpoint") writeCheckpoint(path, shape, weights);
    else if (file.kind === "onnx") writeOnnxDecoder(path, file.format, shape, weights, maxSeqLen);
    else writeGgufDecoder(path, file.format, shape, weights);
  };
  return {
    path(file) {
      const [own, name] =
        file.kind === "checkpoint" ? [file.kind, ""] : [`${file.kind}-${file.format}`, `model.${file.kind}`];
      const whole = join(folder, own);
      if (!existsSync(whole)) {
        // What has the name is whole, also after a run that was ended.
        const part = `${whole}.part`;
        mkdirSync(part, { recursive: true });
        write(file, join(part, name));
        renameSync(part, whole);
      }
      return join(whole, name);
    },
    remove,
  };
}
