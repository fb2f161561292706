// How commands load kernels and whole models.

import { readFileSync } from "node:fs";
import { stat } from "node:fs/promises";
import { createRequire } from "node:module";
import { dirname, join } from "node:path";
import { cacheFolder } from "../base/platform/machine.ts";
import { parseJson } from "../base/util/strings.ts";
import type { Build, Kernels } from "../entries/core.ts";
import type { StatisticsKernels } from "../entries/inspect.ts";
import {
  createFolderStore,
  gguf,
  type LoadModelOptions,
  loadModel,
  type Model,
  type ModelStore,
} from "../entries/models.ts";
import { readGgufMetadata } from "../files/gguf.ts";
import { hubHint, readTexts } from "../files/model-files.ts";
import { ENCODERS, GGUF_ENCODERS } from "../models/families/index.ts";
import { FileError, UsageError } from "./args.ts";
import { aboutFile, faultOf } from "./files.ts";
import { createProgress, type ProgressStream, sizeText } from "./terminal.ts";

// The optional packages of `headwise/text`, for commands that need them.

/**
 * What `find` finds beside headwise, or else in the current directory: npx keeps headwise in a folder of its own, where nobody
 * installs anything.
 */
export async function findLibrary<Library extends object>(
  command: string,
  name: string,
  find: (where: string, given: Library | undefined) => Promise<Library>,
): Promise<Library> {
  try {
    return await find(command, undefined);
  } catch (error) {
    if (Object(error).code !== "NO_LIBRARY") throw error;
  }
  const folder = process.cwd();
  let found: Library;
  try {
    found = createRequire(join(folder, "package.json"))(name) as Library;
  } catch (cause) {
    const text = `${command}: text expected the package ${name}, got none in ${folder}: run npm install ${name} there`;
    throw new Error(text, { cause });
  }
  return find(command, found);
}

// How commands load whole models: what they read of URLs is kept for the next time, and a terminal shows how far they are.

/** Options of the library's loaders, and what is called once the model is loaded or refused. */
export interface Loading {
  readonly store: ModelStore | undefined;
  readonly onProgress: (done: number, all: number) => void;
  readonly end: () => void;
}

/** The values of `LOAD_OPTIONS`. */
interface LoadValues {
  readonly "no-store": boolean;
  readonly quiet: boolean;
}

/** How the `model` of a command is loaded. Progress is written to `stderr` if it is a terminal. */
export function readLoading(
  model: string,
  { "no-store": noStore, quiet }: LoadValues,
  stderr: ProgressStream = process.stderr,
): Loading {
  // Without a terminal, lines about a download would stand among the remarks of the command.
  const progress = createProgress(stderr.isTTY && !quiet ? stderr : undefined, () => performance.now());
  return {
    store: storeOf(model, noStore),
    onProgress: (done, all) => progress.at(done / all, `${sizeText(done)} of ${sizeText(all)}  ${model}`),
    end: () => progress.end(),
  };
}

/** The user's store, for a model at a URL. */
export function storeOf(model: string, noStore: boolean): ModelStore | undefined {
  const folder = noStore || !/^https?:/.test(model) ? undefined : userFolder();
  return folder === undefined ? undefined : createFolderStore(folder);
}

/** The folder of the user's store. */
export const userFolder = (): string | undefined => cacheFolder();

// What is wrong with the MODEL of a command, before anything is started.

const URL_OF_HOST = /^https?:/;

/** Throws unless `model` is a folder or a GGUF file that exists, or a URL. */
export async function expectModelPath(command: string, model: string): Promise<void> {
  const fail = (got: string, remedy = "") =>
    new FileError(`${command}: MODEL expected a folder, a GGUF file or the URL of one, got ${model}, ${got}${remedy}`);
  const hub = await hubHint(model);
  if (/^(https?|file):/.test(model)) {
    if (hub) throw fail("a page", hub);
    return;
  }
  const found = await stat(model).catch((error: unknown) => {
    throw fail(faultOf(error), hub);
  });
  if (found.isFile() && !/\.gguf$/i.test(model)) throw fail("another file", `: give its folder, ${dirname(model)}`);
}

/**
 * Throws if the model is an encoder, which no command for decoders runs, whatever else is missing. `remedy` is the end of the
 * message. The header of a GGUF file at a URL, which may be large, is not read for that.
 */
export async function refuseEncoder(
  command: string,
  model: string,
  { store }: Pick<Loading, "store">,
  remedy = ": use headwise embed",
): Promise<void> {
  const readGguf = URL_OF_HOST.test(model) ? async () => ({ metadata: new Map() }) : readGgufMetadata;
  let type: unknown;
  try {
    const found = await readTexts(command, model, ["config.json"], readGguf, undefined, store);
    if ("metadata" in found) type = found.metadata.get("general.architecture");
    else type = Object(parseJson(command, "config.json", found.get("config.json") ?? "{}")).model_type;
  } catch (error) {
    throw aboutFile(command, model, error);
  }
  if (ENCODERS.has(type) || GGUF_ENCODERS.has(type))
    throw new FileError(`${command}: MODEL expected a decoder, got ${model}, an encoder (${type})${remedy}`);
}

/** Kernels besides those of all formats. */
interface MoreKernels {
  readonly latent?: boolean;
  readonly models?: boolean;
  readonly statistics?: boolean;
}

/** The kernels of statistics, as files beside the command line: in it they would be in the package once more. */
function readStatistics(): StatisticsKernels {
  const read = (build: Build) => ({ statistics: readFileSync(new URL(`./statistics-${build}.wasm`, import.meta.url)) });
  return { simd: read("simd"), relaxed: read("relaxed") };
}

/**
 * Starts the kernels of all formats, and those of latent attention, of whole decoders and of statistics where they are asked
 * for. The entries with inlined modules are imported only when they are needed.
 */
export async function startKernels(
  threads: number | "auto",
  deterministic: boolean,
  more: MoreKernels = {},
): Promise<Kernels> {
  const [{ loadKernels }, { quantized }, { latent }, { models }] = await Promise.all([
    import("../entries/threads.ts"),
    import("../entries/quantized.ts"),
    more.latent ? import("../entries/latent.ts") : { latent: undefined },
    more.models ? import("../entries/models.ts") : { models: undefined },
  ]);
  return loadKernels({
    ...{ threads, deterministic, quantized },
    ...(latent && { latent }),
    ...(models && { models }),
    ...(more.statistics && { statistics: readStatistics() }),
  });
}

// Whole decoders for the commands that run one.

/** Token ids, separated by commas. */
export function readIds(command: string, name: string, text: string): number[] {
  const ids = text.split(",").map((each) => each.trim());
  if (ids.every((each) => /^\d+$/.test(each))) return ids.map(Number);
  throw new UsageError(`${command}: ${name} expected token ids, separated by commas, got ${text}`);
}

/** Starts the kernels of all kinds of decoders, with those of statistics where they are asked for. */
export function startDecoderKernels(
  threads: number | "auto",
  deterministic: boolean,
  statistics = false,
): Promise<Kernels> {
  return startKernels(threads, deterministic, { latent: true, models: true, statistics });
}

/** Loads the decoder in a folder or at a URL, and times it. Errors of the library get the folder. */
export async function loadDecoder(
  command: string,
  kernels: Kernels,
  folder: string,
  options: LoadModelOptions,
  { store, onProgress, end }: Loading,
): Promise<{ model: Model; loadMs: number }> {
  const began = performance.now();
  try {
    const model = await loadModel(kernels, folder, { ...options, gguf, store, onProgress });
    return { model, loadMs: performance.now() - began };
  } catch (error) {
    throw aboutFile(command, folder, error);
  } finally {
    end();
  }
}
