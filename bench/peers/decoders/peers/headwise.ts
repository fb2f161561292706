import { join } from "node:path";
import { pathToFileURL } from "node:url";
import type * as Headwise from "../../../../src/entries/index.ts";
import type * as Models from "../../../../src/entries/models.ts";
import type * as Quantized from "../../../../src/entries/quantized.ts";
import { root } from "../../packages.ts";
import type { LoadDecoder } from "../decoder.ts";

const entry = (name: string) => import(pathToFileURL(join(root, `dist/${name}.js`)).href);

/**
 * The format is that of the weights, or "… file" for those of a GGUF as they are stored; with " fast" activations are fast,
 * and with " with q8 caches" caches are q8.
 */
export const load: LoadDecoder = async ({ source, format, maxSeqLen }) => {
  const [numbers = "", caches] = format.split(" with ");
  const weights = numbers.split(" ")[0] as Models.ModelFormats["mlp"];
  const activations = numbers.endsWith(" fast") ? "fast" : "exact";
  const { loadKernels } = (await entry("index")) as typeof Headwise;
  const { createSession, forward, gguf, loadModel, models } = (await entry("models")) as typeof Models;
  const quantized = weights === "f32" ? undefined : ((await entry("quantized")) as typeof Quantized).quantized;
  const kernels = await loadKernels({ models, ...(quantized && { quantized }) });
  const stored = numbers.includes(" file") ? { gguf } : { weights };
  const model = await loadModel(kernels, source, { ...stored, activations });
  const session = createSession(model, { maxSeqLen, ...(caches && { format: caches.split(" ")[0] as "q8" }) });
  const reset = () => session.truncate(0);
  return {
    reset,
    read: (ids) => forward(session, ids, { top: 1 }).ids![0]!,
    logits(ids) {
      reset();
      return forward(session, ids).logits;
    },
  };
};
