// Options that several commands have: what they are, their lines of help, and what they are checked for.

import { type CacheFormat, OPTION_VALUES, type WeightFormat } from "../entries/configure.ts";
import { readChoice, readThreads } from "./args.ts";

/** Formats of a model. */
export const FORMAT_OPTIONS = {
  weights: { type: "string" },
  activations: { type: "string" },
  cache: { type: "string" },
} as const;

/** Of all commands that start kernels. */
export const KERNEL_OPTIONS = {
  threads: { type: "string" },
  deterministic: { type: "boolean", default: false },
} as const;

/** Of all commands that read models at URLs. */
export const STORE_OPTIONS = { "no-store": { type: "boolean", default: false } } as const;

/** Of all commands that load whole models. */
export const LOAD_OPTIONS = {
  ...STORE_OPTIONS,
  quiet: { type: "boolean", default: false },
} as const;

export const OUTPUT_OPTIONS = {
  json: { type: "boolean", default: false },
  help: { type: "boolean", short: "h", default: false },
} as const;

const LINES = {
  weights: "  --weights FORMAT    f32, f16, bf16, q8, q8-row, q4 (default: the formats of the file)",
  activations: "  --activations KIND  exact or fast: how rows are rounded for integer weights (default exact)",
  cache: "  --cache FORMAT      f32, f16, q8, q4 (default f32)",
  "chosen-cache": "  --cache FORMAT      f32, f16, q8, q4 (default what suits the weights)",
  threads: "  --threads N|auto    number of threads, 1 to 64 (default 1)",
  "chosen-threads": "  --threads N|auto    number of threads, 1 to 64 (default what suits the model)",
  deterministic: "  --deterministic     use the build that gives the same bits on every engine",
  "no-store": "  --no-store          do not keep what is read of URLs, nor use what is kept",
  quiet: "  --quiet             nothing on stderr but errors and warnings",
  json: "  --json              print JSON",
} as const;

/** The lines of help of some of these options. */
export const helpOf = (...names: (keyof typeof LINES)[]): string => names.map((name) => LINES[name]).join("\n");

interface CommonValues {
  readonly weights?: string | undefined;
  readonly activations?: string | undefined;
  readonly cache?: string | undefined;
  readonly threads?: string | undefined;
}

/** What is asked for; undefined where a default holds. */
export interface CommonChoices {
  readonly weights: WeightFormat | undefined;
  readonly activations: "exact" | "fast" | undefined;
  readonly cache: CacheFormat | undefined;
  readonly threads: number | "auto" | undefined;
}

/** Reads the formats and threads that a command was given. */
export function readCommon(command: string, values: CommonValues): CommonChoices {
  return {
    weights: readChoice(command, "--weights", values.weights, OPTION_VALUES.weights),
    activations: readChoice(command, "--activations", values.activations, ["exact", "fast"]),
    cache: readChoice(command, "--cache", values.cache, OPTION_VALUES.cache),
    threads: values.threads === undefined ? undefined : readThreads(command, values.threads),
  };
}
