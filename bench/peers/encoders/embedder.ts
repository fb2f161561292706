// What a peer does in this comparison, and the texts that it is given.

import type { EncoderShape } from "./shape.ts";
import { wordOf } from "./vocabulary.ts";

export const LENGTHS = [16, 64, 256];
export const BATCHES = [1, 8, 64];

/** What a query of a pair is. */
export const QUERY = words(0, 6);

function words(text: number, count: number): string {
  return Array.from({ length: count }, (_, i) => wordOf(1000 + ((text * 7919 + i * 104_729) % 29_000))).join(" ");
}

/** 64 texts of so many tokens, of which two are [CLS] and [SEP]; or documents of pairs with the query, and one more [SEP]. */
export function textsOf(task: Job["task"], tokens: number): string[] {
  const count = task === "rank" ? tokens - 9 : tokens - 2;
  return Array.from({ length: 64 }, (_, i) => words(i + 1, count));
}

/** The ONNX file of a format, as transformers.js calls it. */
export const fileNameOf = (format: "fp32" | "q8"): string =>
  format === "fp32" ? "model.onnx" : "model_quantized.onnx";

/** A length of texts, and how many are run together. */
export interface Cell {
  readonly tokens: number;
  readonly texts: number;
}

/** What a process measures. */
export interface Job extends Pick<EncoderShape, "task" | "pooling" | "external"> {
  /** The vectors that the ONNX model gives itself; else its states are pooled. */
  readonly givesVectors: boolean;
  /** Of the peer. */
  readonly format: string;
  readonly folder: string;
  /** The loops of the machine's peak. */
  readonly loops: string;
  readonly cells: readonly Cell[];
  /** Milliseconds of processor time for each cell, at least. */
  readonly ms: number;
}

/** A loaded model. */
export interface Embedder {
  /** The vector of each text, of length 1; or the score of each with the query. */
  embed(batch: readonly string[]): Promise<readonly Float32Array[]>;
}

/** Loads the model of a folder in a format of the peer. */
export type LoadEmbedder = (job: Job) => Promise<Embedder>;
