// What a peer does in this comparison, and the texts that it is given.

import { createRandom } from "../../../src/tools/diagnostics/random.ts";
import { wordOf } from "./vocabulary.ts";

/** A text, and its ids with those around it. */
export interface Text {
  readonly text: string;
  readonly ids: readonly number[];
}

/** 64 texts of 6 to 64 tokens, most of them short, as sentences are; 101 and 102 are [CLS] and [SEP]. */
export function texts(): Text[] {
  const random = createRandom(11).floats(64);
  return Array.from(random, (x, i) => {
    const length = 6 + Math.floor(58 * x * x);
    const words = Array.from({ length: length - 2 }, (_, j) => 1000 + ((i * 7919 + j * 104_729) % 29_000));
    return { text: words.map(wordOf).join(" "), ids: [101, ...words, 102] };
  });
}

/** The ONNX file of a format, as transformers.js calls it. */
export const fileNameOf = (format: "fp32" | "q8"): string =>
  format === "fp32" ? "model.onnx" : "model_quantized.onnx";

/** A loaded model. */
export interface Embedder {
  /** The vector of each text of a batch: the mean of its states, of length 1. */
  embed(batch: readonly Text[]): readonly Float32Array[] | Promise<readonly Float32Array[]>;
}

/** Loads the model of a folder in a format of the peer. */
export type LoadEmbedder = (folder: string, format: string) => Promise<Embedder>;
