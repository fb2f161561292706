// How commands open models and start kernels.

import { createRequire } from "node:module";
import { join } from "node:path";
import type { Kernels } from "../entries/core.ts";
import type { OpenedModel, OpenModelOptions } from "../entries/index.ts";
import type { Model } from "../entries/models.ts";
import type { Tokenizer } from "../entries/text.ts";
import { FileError, UsageError } from "./args.ts";
import { aboutFile } from "./files.ts";
import { createProgress, type ProgressStream, sizeText } from "./terminal.ts";

/**
 * An optional package of headwise, beside it or in the current directory: npx keeps headwise in a folder of its own, where nobody
 * installs anything.
 */
function findLibrary<Library extends object>(command: string, name: string): Library {
  const folder = process.cwd();
  let cause: unknown;
  for (const place of [import.meta.url, join(folder, "package.json")])
    try {
      return createRequire(place)(name) as Library;
    } catch (error) {
      cause = error;
    }
  const text = `${command}: text expected the package ${name}, got none in ${folder}: run npm install ${name} there`;
  throw new Error(text, { cause });
}

/** What reads tokenizers, and what renders templates if conversations are written. */
export const findLibraries = (command: string, chats = false): NonNullable<OpenModelOptions["libraries"]> => ({
  tokenizers: findLibrary(command, "@huggingface/tokenizers"),
  ...(chats && { jinja: findLibrary(command, "@huggingface/jinja") }),
});

/** For commands that are given ids: text is their numbers, and the model needs no tokenizer. */
export const NUMBERS: Tokenizer = {
  encode: (text) => text.split(" ").map(Number),
  decode: (ids) => ids.map((id) => ` ${id}`).join(""),
};

/** Token ids, separated by commas. */
export function readIds(command: string, name: string, text: string): number[] {
  const ids = text.split(",").map((each) => each.trim());
  if (ids.every((each) => /^\d+$/.test(each))) return ids.map(Number);
  throw new UsageError(`${command}: ${name} expected token ids, separated by commas, got ${text}`);
}

/** The values of `LOAD_OPTIONS`. */
export interface LoadValues {
  readonly "no-store": boolean;
  readonly quiet: boolean;
}

/** Shows on `stderr` how far a model is opened, if that is a terminal: lines elsewhere would stand among remarks of the command. */
export function showOpening(
  source: string,
  quiet: boolean,
  stderr: ProgressStream = process.stderr,
): { readonly onProgress: NonNullable<OpenModelOptions["onProgress"]>; readonly end: () => void } {
  const progress = createProgress(stderr.isTTY && !quiet ? stderr : undefined, () => performance.now());
  return {
    onProgress({ bytes, allBytes, secondsLeft }) {
      const left = secondsLeft === undefined ? "" : `, ${Math.ceil(secondsLeft)} s left`;
      progress.at(bytes / allBytes, `${sizeText(bytes)} of ${sizeText(allBytes)}${left}  ${source}`);
    },
    end: () => progress.end(),
  };
}

/** Opens the model that a command names, and times it. Errors of the library get its name. */
export async function openSource(
  command: string,
  source: string,
  { "no-store": noStore, quiet }: LoadValues,
  options: OpenModelOptions,
): Promise<{ readonly model: OpenedModel; readonly loadMs: number }> {
  const { onProgress, end } = showOpening(source, quiet);
  const { open } = await import("../entries/open.ts");
  const began = performance.now();
  try {
    const model = await open(source, { ...options, onProgress, ...(noStore && { store: false }) });
    return { model, loadMs: performance.now() - began };
  } catch (error) {
    throw aboutFile(command, source, error);
  } finally {
    end();
  }
}

/**
 * `openSource` for commands that read logits and states of a decoder, by synchronous calls too: on one thread unless more are asked
 * for.
 */
export async function openDecoder(
  command: string,
  source: string,
  values: LoadValues,
  options: Omit<OpenModelOptions, "for">,
): Promise<{
  readonly opened: OpenedModel;
  readonly model: Model;
  readonly kernels: Kernels;
  readonly loadMs: number;
}> {
  const asked = {
    tokenizer: NUMBERS,
    ...options,
    threads: options.threads ?? 1,
    for: "text",
    keptBytes: 0,
    perLayer: "resident",
  } as const;
  const { model: opened, loadMs } = await openSource(command, source, values, asked);
  const { model, kernels } = opened.parts;
  if (model.encoder === undefined) return { opened, model: model as Model, kernels, loadMs };
  opened.release();
  throw new FileError(`${command}: ${source}: expected a decoder, got ${model.type}, a model with two halves`);
}

/** Starts kernels of all formats for single layers. The entries with inlined modules are imported only when they are needed. */
export async function startKernels(
  threads: number | "auto" = 1,
  deterministic = false,
  more: { readonly latent?: boolean; readonly models?: boolean } = {},
): Promise<Kernels> {
  const [{ loadKernels }, { quantized }, { latent }, { models }] = await Promise.all([
    import("../entries/threads.ts"),
    import("../entries/quantized.ts"),
    more.latent ? import("../entries/latent.ts") : { latent: undefined },
    more.models ? import("../entries/models.ts") : { models: undefined },
  ]);
  return loadKernels({ threads, deterministic, quantized, ...(latent && { latent }), ...(models && { models }) });
}

/** Numbers in [-1, 1) as float32, the same on every engine: `seededFloats(seed)(length)` gives the next ones. */
export function seededFloats(seed: number): (length: number) => Float32Array {
  let state = seed * 7919 + 17;
  return (length) => {
    const values = new Float32Array(length);
    for (let i = 0; i < length; i++) {
      state = (Math.imul(state, 1664525) + 1013904223) >>> 0;
      values[i] = 2 * (state / 2 ** 32) - 1;
    }
    return values;
  };
}
