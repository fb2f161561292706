// The peers, and the formats in which each runs a decoder.

import { fileOf, versionOf } from "../packages.ts";
import { type GgufFormat, ggufBytes } from "./gguf.ts";
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
  readonly kind: "f32" | "q8" | "q4" | "q4_k_m" | "q1";
  /** Bytes of the matrices that a token is multiplied with, scales among them. */
  readonly bytes: (shape: DecoderShape) => number;
  readonly model: ModelFile;
}

/** With the bits of a weight with its share of a scale. */
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
const GGUF: readonly (readonly [GgufFormat, Variant["kind"]])[] = [
  ["f32", "f32"],
  ["q8_0", "q8"],
  ["q4_0", "q4"],
  ["q4_k_m", "q4_k_m"],
  ["q1_0", "q1"],
];

const made = <Format extends string>(
  formats: Formats<Format>,
  of: (format: Format) => Omit<Variant, "format" | "kind" | "bytes">,
) =>
  formats.map(([format, kind, bits]): Variant => {
    const bytes = (shape: DecoderShape) => (weightsRead(shape) * bits) / 8;
    return { ...of(format), format, kind, bytes };
  });

/** Variants that read a GGUF file. */
const ofFile = (formats: typeof GGUF, of: Pick<Variant, "peer" | "file" | "inPage" | "native">, suffix = "") =>
  formats.map(([format, kind]): Variant => {
    const bytes = (shape: DecoderShape) => ggufBytes(format, shape);
    return { ...of, format: `${format}${suffix}`, kind, bytes, model: { kind: "gguf", format } };
  });

/** The files that headwise reads as they are stored. */
const HEADWISE_FILES = GGUF.filter(([format]) => ["f32", "q8_0", "q4_k_m", "q1_0"].includes(format));

/** headwise's first variant is what the logits of the others are compared with. */
export const VARIANTS: readonly Variant[] = [
  ...made(HEADWISE, () => ({ peer: "headwise", file: "headwise.ts", model: { kind: "checkpoint" } })),
  ...made(ONNX, (format) => ({
    ...{ peer: "onnxruntime-web", file: "onnxruntime-web.ts", model: { kind: "onnx", format } },
  })),
  ...ofFile(HEADWISE_FILES, { peer: "headwise", file: "headwise.ts" }, " file"),
  ...ofFile(HEADWISE_FILES.slice(1), { peer: "headwise", file: "headwise.ts" }, " file fast"),
  // Nobody runs float32 in wllama, and it does not know q1_0.
  ...ofFile(GGUF.slice(1, -1), { peer: "wllama", file: "wllama.ts", inPage: true }),
  ...ofFile(GGUF, { peer: "native llama.cpp", file: "llama-cpp.ts", native: true }),
];

export const nameOf = ({ peer, format }: Variant) => `${peer} ${format}`;

const MEMORY_BYTES = 2 ** 32;

/** Why a variant cannot run a decoder, as far as that is known before. */
export function reasonAgainst({ native, model, bytes }: Variant, shape: DecoderShape): string | undefined {
  if (shape.hybrid && model.kind !== "gguf") return "hybrids are compared in GGUF files alone";
  const all = bytes(shape);
  if (!native && all > MEMORY_BYTES) return `${(all / 1e9).toFixed(1)} GB of weights, and wasm has 4 GiB`;
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
