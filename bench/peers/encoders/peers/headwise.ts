import { join } from "node:path";
import { pathToFileURL } from "node:url";
import type * as Headwise from "../../../../src/entries/index.ts";
import type * as Encoders from "../../../../src/entries/models.ts";
import type * as Models from "../../../../src/entries/models.ts";
import type * as Quantized from "../../../../src/entries/quantized.ts";
import type * as TextEntry from "../../../../src/entries/text.ts";
import { root } from "../../packages.ts";
import type { LoadEmbedder } from "../embedder.ts";

const entry = (name: string) => import(pathToFileURL(join(root, `dist/${name}.js`)).href);

/** `format` is that of the weights, in a file of their own, behind which "fast" may stand, and "text" for texts instead of ids. */
export const load: LoadEmbedder = async (folder, format) => {
  const [weights, ...words] = format.split(" ") as ["f32" | "q8", ...string[]];
  const activations = words.includes("fast") ? "fast" : "exact";
  const { loadKernels } = (await entry("index")) as typeof Headwise;
  const { models } = (await entry("models")) as typeof Models;
  const { embed, loadEncoder } = (await entry("encoders")) as typeof Encoders;
  const quantized = weights === "f32" ? undefined : ((await entry("quantized")) as typeof Quantized).quantized;
  const kernels = await loadKernels({ models, ...(quantized && { quantized }) });
  const own = weights === "q8" ? join(folder, "q8") : folder;
  const model = await loadEncoder(kernels, own, { activations });
  const options = { pooling: "mean", normalize: true } as const;
  if (!words.includes("text"))
    return {
      embed: (batch) =>
        embed(
          model,
          batch.map(({ ids }) => ids),
          options,
        ),
    };
  const { loadTokenizer } = (await entry("text")) as typeof TextEntry;
  const tokenizer = await loadTokenizer(own);
  return {
    embed: (batch) =>
      embed(
        model,
        batch.map(({ text }) => text),
        { ...options, tokenizer },
      ),
  };
};
