import { join } from "node:path";
import { pathToFileURL } from "node:url";
import type * as Encoders from "../../../../src/entries/encoders.ts";
import type * as Headwise from "../../../../src/entries/index.ts";
import type * as Models from "../../../../src/entries/models.ts";
import type * as Quantized from "../../../../src/entries/quantized.ts";
import { root } from "../../packages.ts";
import type { LoadEmbedder } from "../embedder.ts";

const entry = (name: string) => import(pathToFileURL(join(root, `dist/${name}.js`)).href);

/** `format` is that of the weights, behind which "fast" may stand. */
export const load: LoadEmbedder = async (folder, format) => {
  const [weights, activations = "exact"] = format.split(" ") as ["f32" | "q8", ("exact" | "fast")?];
  const { loadKernels } = (await entry("index")) as typeof Headwise;
  const { models } = (await entry("models")) as typeof Models;
  const { embed, loadEncoder } = (await entry("encoders")) as typeof Encoders;
  const quantized = weights === "f32" ? undefined : ((await entry("quantized")) as typeof Quantized).quantized;
  const kernels = await loadKernels({ models, ...(quantized && { quantized }) });
  const model = await loadEncoder(kernels, folder, { weights, activations });
  return { embed: (batch) => embed(model, batch, { pooling: "mean", normalize: true }) };
};
