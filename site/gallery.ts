// What the heads of the models of the site do, as the gallery shows it before the page has measured anything.

import { readFileSync } from "node:fs";
import { join } from "node:path";
import { loadKernels } from "headwise";
import { gguf, loadModel, models } from "headwise/models";
import { quantized } from "headwise/quantized";
import { loadTokenizer } from "headwise/text";
import { type Detection, detectIn, type Shipped } from "./worker/gallery-run.ts";

/** Of each model its source and its held-out texts, in the repository. */
const MODELS: Readonly<Record<Shipped, readonly [source: string, heldOut: string]>> = {
  induction: ["model", "model/heldout.json"],
  "stories.gguf": ["model/stories/stories.gguf", "model/stories/heldout.json"],
};

/** Digits behind the point of what is stored; the pages show two. */
const DIGITS = 5;

/** Runs the models, with the kernels that have the same bits in every engine: as JSON, by the names of the models. */
export async function recordGallery(root: string): Promise<string> {
  const kernels = await loadKernels({ deterministic: true, models, quantized });
  const found: Partial<Record<Shipped, Detection>> = {};
  try {
    for (const [name, [source, heldOut]] of Object.entries(MODELS)) {
      const model = await loadModel(kernels, join(root, source), { gguf });
      const texts = JSON.parse(readFileSync(join(root, heldOut), "utf8"));
      found[name as Shipped] = detectIn(name as Shipped, model, await loadTokenizer(join(root, source)), texts);
      model.release();
    }
  } finally {
    kernels.release();
  }
  return JSON.stringify(found, (_, value) => (typeof value === "number" ? Number(value.toFixed(DIGITS)) : value));
}
