// The peers, and the formats in which each runs a decoder.

import { fileOf, versionOf } from "../packages.ts";
import type { GgufFormat } from "./gguf.ts";
import type { ModelFile } from "./model-files.ts";
import type { OnnxFormat } from "./onnx-weights.ts";
import { type DecoderShape, weightsRead } from "./shape.ts";

export interface Variant {
  readonly peer: string;
  /** Its file in peers/. */
  readonly file: string;
  /** Runs in a page of Chromium. */
  readonly inPage?: boolean;
  /** Native code, as an upper bound. */
  readonly native?: boolean;
  readonly format: string;
  /** With which formats of other peers it is compared. */
  readonly kind: "f32" | "q8" | "q4";
  /** Bits of a weight with its share of a scale. */
  readonly bits: number;
  readonly model: ModelFile;
}

type Formats<Format extends string = string> = readonly (readonly [Format, Variant["kind"], number])[];

const HEADWISE: Formats = [
  ["f32", "f32", 32],
  ["q8", "q8", 9],
  ["q8 fast", "q8", 9.5],
  ["q8-row", "q8", 8],
  ["q8-row fast", "q8", 8],
  ["q8-row fast with q8 caches", "q8", 8],
  ["q4", "q4", 5],
  ["q4 fast", "q4", 5],
  ["q4 fast with q8 caches", "q4", 5],
];
const ONNX: Formats<OnnxFormat> = [
  ["fp32", "f32", 32],
  ["q8", "q8", 8],
  ["q4", "q4", 5],
];
const GGUF: Formats<GgufFormat> = [
  ["f32", "f32", 32],
  ["q8_0", "q8", 8.5],
  ["q4_0", "q4", 4.5],
];

const made = <Format extends string>(
  formats: Formats<Format>,
  of: (format: Format) => Omit<Variant, "format" | "kind" | "bits">,
) => formats.map(([format, kind, bits]): Variant => ({ ...of(format), format, kind, bits }));

/** headwise's first variant is what the logits of the others are compared with. */
export const VARIANTS: readonly Variant[] = [
  ...made(HEADWISE, () => ({ peer: "headwise", file: "headwise.ts", model: { kind: "checkpoint" } })),
  ...made(ONNX, (format) => ({
    ...{ peer: "onnxruntime-web", file: "onnxruntime-web.ts", model: { kind: "onnx", format } },
  })),
  // Nobody runs float32 in wllama.
  ...made(GGUF.slice(1), (format) => ({
    ...{ peer: "wllama", file: "wllama.ts", inPage: true, model: { kind: "gguf", format } },
  })),
  ...made(GGUF, (format) => ({
    ...{ peer: "native llama.cpp", file: "llama-cpp.ts", native: true, model: { kind: "gguf", format } },
  })),
];

export const nameOf = ({ peer, format }: Variant) => `${peer} ${format}`;

const MEMORY_BYTES = 2 ** 32;

/** Why a variant cannot run a decoder, as far as that is known before. */
export function reasonAgainst({ native, bits }: Variant, shape: DecoderShape): string | undefined {
  const bytes = (weightsRead(shape) * bits) / 8;
  if (!native && bytes > MEMORY_BYTES) return `${(bytes / 1e9).toFixed(1)} GB of weights, and wasm has 4 GiB`;
  return undefined;
}

/** The versions of the peers that are installed. */
export function peerVersions(): Record<string, string> {
  const packages = {
    "onnxruntime-web": "onnxruntime-web",
    wllama: "@wllama/wllama",
    "native llama.cpp": "@node-llama-cpp/linux-x64",
  };
  return Object.fromEntries(
    Object.entries(packages).flatMap(([peer, name]) => {
      try {
        return [[peer, versionOf(name)]];
      } catch {
        return []; // no binary for this machine
      }
    }),
  );
}

/** The wasm that a page of wllama loads. */
export const wllamaWasm = () => fileOf("@wllama/wllama", "esm/single-thread/wllama.wasm");
