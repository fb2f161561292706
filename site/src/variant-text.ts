// What the page of variants says: of each variant, of bytes and times, and of what was measured.

import { SHAPES, type ShapeName, type Variant, WINDOW } from "../worker/variant-layers.ts";
import type { Conditions } from "../worker/variants.ts";

interface About {
  readonly name: string;
  readonly about: string;
  readonly usedBy: string;
}

export const ABOUT: Readonly<Record<Variant, About>> = {
  mha: {
    name: "MHA: Multi-head",
    about: "Each head has keys and values of its own.",
    usedBy: "In GPT-2, BERT and Llama 2 7B.",
  },
  gqa: {
    name: "GQA: Grouped-query",
    about: "Groups of heads share keys and values: two heads in the picture, four in the measured layer.",
    usedBy: "In Llama 3, Mistral, Qwen2.5 and SmolLM2.",
  },
  mqa: {
    name: "MQA: Multi-query",
    about: "All heads share one key and one value per token.",
    usedBy: "In Falcon 7B and the first Gemma 2B.",
  },
  mla: {
    name: "MLA: Latent",
    about:
      "One short vector per token, from which each head computes its keys and values, and one key with the position.",
    usedBy: "In DeepSeek-V2 and V3.",
  },
  window: {
    name: "Sliding window",
    about: `Older tokens are dropped, a page at a time: the measured layer has a window of ${WINDOW} and keeps up to 1,024 tokens.`,
    usedBy: "In Mistral 7B v0.1, and in some layers of Gemma 2 and 3.",
  },
  sinks: {
    name: "Attention sinks",
    about:
      "The same window, and for each head a learned logit that takes part of the softmax and adds no value. It is stored once.",
    usedBy: "In gpt-oss.",
  },
};

export const bytesText = (bytes: number): string => {
  if (bytes < 1000) return `${bytes} bytes`;
  const [size, unit] = bytes < 1e6 ? [bytes / 1e3, "kB"] : bytes < 1e9 ? [bytes / 1e6, "MB"] : [bytes / 1e9, "GB"];
  return `${size.toLocaleString("en", { maximumSignificantDigits: 3 })} ${unit}`;
};
const digits = (ms: number): string => ms.toLocaleString("en", { maximumSignificantDigits: 3 });
/** A time; of a median, the least and the most of its samples beside it. */
export const msText = (ms: number, range?: readonly [least: number, most: number]): string =>
  `${digits(ms)} ms${range ? ` (${range.map(digits).join(" to ")})` : ""}`;
export const lengthText = (length: number): string => (length < 1024 ? String(length) : `${length / 1024}k`);

/** What was measured, or will be. */
export function measuredText(shape: ShapeName, most: string, found?: Conditions): string {
  const { dModel, numHeads, headDim } = SHAPES[shape];
  const parts = [
    `The measured layer is ${dModel} wide and has ${numHeads} heads of ${headDim}, RoPE and float32 weights; one sequence is in the cache.`,
    `GQA has ${numHeads / 4} key-value heads and MQA one; MLA has a latent of ${4 * headDim} and a rotated key of ${headDim / 2}; windows are`,
    `${WINDOW} tokens. Memory is that of the cache, as plan and planLatent give it. Time is that of the whole layer with its projections,`,
    "for the last token of the context, and the cache is random: the median of nine samples of at least 20 ms,",
    "three in each of three passes. Latents are not stored in q4.",
  ];
  if (found) {
    const threads = found.threads === 1 ? "one thread" : `${found.threads} threads`;
    parts.push(
      `Measured with the ${found.build} kernels on ${threads}. The slowest of nine samples took ${found.spread.toFixed(1)} times`,
      "as long as the fastest (median of all): the nearer to 1, the less other programs disturbed the measurement.",
    );
    if (found.tooLarge > 0) parts.push(`${found.tooLarge} caches of up to ${most} tokens were too large for memory.`);
  }
  return parts.join(" ");
}
