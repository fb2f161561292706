// What loadModel needs for GGUF files, apart from it, so that only those who read them import it.

import type { Handle } from "../../base/util/lifetime.ts";
import { openGgufParts } from "../../files/gguf/gguf.ts";
import type { OpenGguf } from "../../files/model-files.ts";
import { readGgufDecoder } from "../spec/read-gguf.ts";

/** What reads GGUF files: `gguf`. */
export interface GgufReader extends Handle {
  /** @internal */
  readonly open: OpenGguf;
  /** @internal */
  readonly read: typeof readGgufDecoder;
}

/**
 * Lets `loadModel`, and `loadEncoder` of `headwise/models`, read GGUF files: pass it as the option `gguf`.
 * @example
 * import { type Kernels, loadKernels } from "headwise";
 * import { gguf, loadModel, type Model, models } from "headwise/models";
 * import { quantized } from "headwise/quantized";
 * const load = async (file: File): Promise<Model> => loadModel(await loadKernels({ models, quantized }), file, { gguf });
 * console.log(typeof load); // function: load(file) keeps the file's formats, such as those of Q4_K_M
 */
export const gguf: GgufReader = { open: openGgufParts, read: readGgufDecoder } as GgufReader;
