// Whole decoders for the commands that run one.

import { gguf } from "../decoder/gguf.ts";
import { type LoadModelOptions, loadModel } from "../decoder/load-model.ts";
import type { Model } from "../decoder/model.ts";
import type { Kernels } from "../wasm/kernels.ts";
import { UsageError } from "./args.ts";
import { aboutFile } from "./files.ts";
import { startKernels } from "./load-kernels.ts";
import type { Loading } from "./loading.ts";

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
