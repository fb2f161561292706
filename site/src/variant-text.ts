// What the page of variants says: of each variant, of bytes and times, and of what was measured.

import type { Ladder } from "../worker/variants.ts";
import { SHAPES, type ShapeName, type Variant, WINDOW } from "./variant-layers.ts";

export const ABOUT: Readonly<Record<Variant, { readonly name: string; readonly about: string }>> = {
  mha: { name: "MHA: Multi-head", about: "Each head has keys and values of its own." },
  gqa: {
    name: "GQA: Grouped-query",
    about: "Some heads share keys and values: here two, in the layer below four.",
  },
  mqa: { name: "MQA: Multi-query", about: "All heads share one key and one value a token." },
  mla: {
    name: "MLA: Latent",
    about: "One short vector a token, from which each head has its keys and values, and one key with the position.",
  },
  window: {
    name: "Sliding window",
    about: `Older tokens are dropped, page by page: the layer below has a window of ${WINDOW} and keeps 1,024.`,
  },
  sinks: {
    name: "Attention sinks",
    about: "The same window, and a logit for each head that takes weight and adds nothing: it is stored once.",
  },
};

export const bytesText = (bytes: number): string => {
  const [size, unit] = bytes < 1e6 ? [bytes / 1e3, "kB"] : bytes < 1e9 ? [bytes / 1e6, "MB"] : [bytes / 1e9, "GB"];
  return `${size.toLocaleString("en", { maximumSignificantDigits: 3 })} ${unit}`;
};
export const msText = (ms: number): string => `${ms.toLocaleString("en", { maximumSignificantDigits: 3 })} ms`;
export const lengthText = (length: number): string => (length < 1024 ? String(length) : `${length / 1024}k`);

/** What was measured, or will be. */
export function measuredText(shape: ShapeName, most: string, found?: Ladder): string {
  const { dModel, numHeads, headDim } = SHAPES[shape];
  const parts = [
    `One layer of attention, ${dModel} wide, with ${numHeads} heads of ${headDim}, RoPE and float32 weights, for one sequence:`,
    `GQA with ${numHeads / 4} heads of keys and values, MQA with 1, MLA with a latent of ${4 * headDim} and ${headDim / 2} for the`,
    `position, windows of ${WINDOW} tokens. Memory is that of the cache, by plan and planLatent. Time is that of the whole layer,`,
    "projections too, for the last token of the context, with a random cache: the median of nine samples of 20 ms or more,",
    "three in each of three passes. Latents are not stored in q4.",
  ];
  if (found) {
    const threads = found.threads === 1 ? "one thread" : `${found.threads} threads`;
    parts.push(
      `Measured with the ${found.build} kernels on ${threads}. The slowest of nine samples took ${found.spread.toFixed(1)} times`,
      "as long as the fastest, at the median: the less, the quieter this device was.",
    );
    if (found.tooLarge > 0) parts.push(`${found.tooLarge} caches of up to ${most} tokens were too large for memory.`);
  }
  return parts.join(" ");
}
