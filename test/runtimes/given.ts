// The package under test. It is handed in, never imported: a host imports it in the way that its users do, and the suite
// is one bundle without it. Adapters of test/conformance and the example's decoder import these names for "headwise".

import type * as Configure from "../../src/entries/configure.ts";
import type * as Encoders from "../../src/entries/encoders.ts";
import type * as Heads from "../../src/entries/heads.ts";
import type * as Headwise from "../../src/entries/index.ts";
import type * as Inspect from "../../src/entries/inspect.ts";
import type * as Latent from "../../src/entries/latent.ts";
import type * as Models from "../../src/entries/models.ts";
import type * as Sessions from "../../src/entries/sessions.ts";
import type * as Text from "../../src/entries/text.ts";
import type * as Weights from "../../src/entries/weights.ts";
import type { Kernels, LoadOptions } from "../../src/wasm/kernels.ts";

/** `headwise`, or another entry with the same functions, such as `headwise/threads`. */
export type Entry = Omit<typeof Headwise, "loadKernels"> & {
  loadKernels(options?: LoadOptions): Promise<Kernels>;
};

/** `headwise/weights`, `headwise/heads`, `headwise/sessions`, `headwise/latent`, `headwise/models`, `headwise/encoders`, `headwise/text`,
 * `headwise/inspect`, `headwise/configure`. */
export type WeightsEntry = typeof Weights;
export type HeadsEntry = typeof Heads;
export type SessionsEntry = typeof Sessions;
export type LatentEntry = typeof Latent;
export type ModelsEntry = typeof Models;
export type EncodersEntry = typeof Encoders;
export type TextEntry = typeof Text;
export type InspectEntry = typeof Inspect;
export type ConfigureEntry = typeof Configure;

export let HeadwiseError: Entry["HeadwiseError"];
export let attend: Entry["attend"];
export let attendMany: Entry["attendMany"];
export let attendWithMaps: Entry["attendWithMaps"];
export let createAttention: Entry["createAttention"];
export let createCache: Entry["createCache"];
export let createLinear: Entry["createLinear"];
export let linear: Entry["linear"];
export let scaledDotProductAttention: Entry["scaledDotProductAttention"];

export let applyRope: HeadsEntry["applyRope"];
export let splitHeads: HeadsEntry["splitHeads"];

export let createLatentAttention: LatentEntry["createLatentAttention"];

export let convertToGqa: WeightsEntry["convertToGqa"];
export let fromHfConfig: WeightsEntry["fromHfConfig"];
export let openGguf: WeightsEntry["openGguf"];
export let quantizeTensor: WeightsEntry["quantizeTensor"];
export let readAttentionWeights: WeightsEntry["readAttentionWeights"];
export let readSafetensors: WeightsEntry["readSafetensors"];
export let toFloats: WeightsEntry["toFloats"];

/** From here on these are the package. */
export function give({
  headwise,
  weights,
  heads,
  latents,
}: {
  readonly headwise: Entry;
  readonly weights: WeightsEntry;
  readonly heads: HeadsEntry;
  readonly latents: LatentEntry;
}): void {
  ({
    HeadwiseError,
    attend,
    attendMany,
    attendWithMaps,
    createAttention,
    createCache,
    createLinear,
    linear,
    scaledDotProductAttention,
  } = headwise);
  ({ convertToGqa, fromHfConfig, openGguf, quantizeTensor, readAttentionWeights, readSafetensors, toFloats } = weights);
  ({ applyRope, splitHeads } = heads);
  ({ createLatentAttention } = latents);
}
