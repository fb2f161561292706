// The package under test. It is handed in, never imported: a host imports it in the way that its users do, and the suite
// is one bundle without it. Adapters of test/conformance and the example's decoder import these names for "headwise".

import type * as Configure from "../../src/entries/configure.ts";
import type * as Doctor from "../../src/entries/doctor.ts";
import type * as Headwise from "../../src/entries/index.ts";
import type * as Inspect from "../../src/entries/inspect.ts";
import type * as Latent from "../../src/entries/latent.ts";
import type * as Models from "../../src/entries/models.ts";
import type * as Text from "../../src/entries/text.ts";
import type * as Weights from "../../src/entries/weights.ts";
import type { Kernels } from "../../src/wasm/kernels.ts";
import type { LoadOptions } from "../../src/wasm/modules.ts";

/** `headwise`, or another entry with the same functions but `openModel`, such as `headwise/threads`. */
export type Entry = Omit<typeof Headwise, "loadKernels" | "openModel"> & {
  readonly openModel?: typeof Headwise.openModel;
  loadKernels(options?: LoadOptions): Promise<Kernels>;
};

/** `headwise/weights`, `headwise/latent`, `headwise/models`, `headwise/text`, `headwise/inspect`, `headwise/configure`, `headwise/doctor`. */
export type WeightsEntry = typeof Weights;
export type LatentEntry = typeof Latent;
export type ModelsEntry = typeof Models;
export type TextEntry = typeof Text;
export type InspectEntry = typeof Inspect;
export type ConfigureEntry = typeof Configure;
export type DoctorEntry = typeof Doctor;

export let HeadwiseError: Entry["HeadwiseError"];
export let attend: Entry["attend"];
export let attendMany: Entry["attendMany"];
export let attendWithMaps: Entry["attendWithMaps"];
export let createAttention: Entry["createAttention"];
export let createCache: Entry["createCache"];
export let createLinear: Entry["createLinear"];
export let linear: Entry["linear"];
export let scaledDotProductAttention: Entry["scaledDotProductAttention"];

export let applyRope: Entry["applyRope"];
export let splitHeads: Entry["splitHeads"];

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
  latents,
}: {
  readonly headwise: Entry;
  readonly weights: WeightsEntry;
  readonly latents: LatentEntry;
}): void {
  ({
    HeadwiseError,
    applyRope,
    attend,
    attendMany,
    attendWithMaps,
    createAttention,
    createCache,
    createLinear,
    linear,
    scaledDotProductAttention,
    splitHeads,
  } = headwise);
  ({ convertToGqa, fromHfConfig, openGguf, quantizeTensor, readAttentionWeights, readSafetensors, toFloats } = weights);
  ({ createLatentAttention } = latents);
}
