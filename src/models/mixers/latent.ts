// Latents as the mixer of a layer.

import { CHUNK_ROWS } from "../../base/util/rows.ts";
import { planCache } from "../../layers/attention/kv-state.ts";
import { checkLatentConfig, LATENT_MATRICES, latentLayout, latentMatrixSizes } from "../../layers/latent/config.ts";
import { createLatentAttention, latentPageShape, placeLatentRows } from "../../layers/latent/latents.ts";
import { latentChunkRows } from "../../layers/latent/paths.ts";

import { eachOf, FORMATS, type LinearSize } from "../../layers/linear/formats.ts";

import { aligned } from "../../wasm/memory.ts";
import type { LatentSpec } from "../spec/spec.ts";
import type { MixerKind, MixerLoader, MixerMemory } from "./mixer.ts";
import { type MixerRole, type WeightOf, weightOf } from "./weight.ts";

/** For messages about a configuration, which whoever read it has checked. */
const WHERE = "weightsOf";

export const LATENT: MixerKind<LatentSpec> = {
  needs: { option: "latent", code: "NO_LATENT" },
  readsInOrder: () => true,

  *weights(mixer, of) {
    const config = checkLatentConfig(WHERE, mixer.config);
    const { numHeads, nopeDim, valueDim, kvLoraRank, qLoraRank } = config;
    const { wq, wqDown, wqUp, wkvDown, wo } = latentMatrixSizes(config);
    const joined = { ...of, part: "attention" } as const;
    const linear = { ...joined, bias: true } as const;
    const matrix = (role: MixerRole, { n, k }: LinearSize, more: WeightOf = linear) =>
      weightOf(role, "matrix", [n, k], more);
    if (qLoraRank > 0) {
      yield matrix("qDown", wqDown);
      yield weightOf("qNorm", "vector", [qLoraRank], of);
    }
    yield matrix("q", qLoraRank > 0 ? wqUp : wq);
    yield matrix("kvDown", wkvDown);
    yield weightOf("kvNorm", "vector", [kvLoraRank], of);
    // The parts of wkvUp.
    yield matrix("k", { n: numHeads * nopeDim, k: kvLoraRank }, joined);
    yield matrix("v", { n: numHeads * valueDim, k: kvLoraRank }, joined);
    yield matrix("o", wo);
  },

  formatOf(role, requested, { nameOf, dtypeOf, formatOf }) {
    if (role !== "k" && role !== "v") return formatOf(role, requested);
    // Keys and values of latents are joined: in float32, unless both are the same 16-bit floats. Those of keys are turned.
    const dtypes = new Set([dtypeOf("k"), dtypeOf("v")]);
    const isKept = nameOf("k") === nameOf("v") || (dtypes.size === 1 && (dtypes.has("F16") || dtypes.has("BF16")));
    const joined = requested ?? (isKept ? formatOf(role, undefined) : "f32");
    return requested === undefined && role === "k" && FORMATS[joined].integers ? "f32" : joined;
  },

  plan(where, mixer, formatOf) {
    const config = checkLatentConfig(where, mixer.config);
    const formats = eachOf(LATENT_MATRICES, formatOf);
    return {
      bytes: aligned(latentLayout(config, formats, false).bytes),
      rope: undefined,
      chunkRows: latentChunkRows(config, "absorbed", CHUNK_ROWS),
      state: (where, maxSeqLen, options) => planCache(where, latentPageShape(config), config, maxSeqLen, options),
      place: (layout, rows, pageFormats) => void placeLatentRows(config, formats, layout, rows, pageFormats),
    };
  },
};

export const LATENT_MEMORY: MixerMemory<LatentSpec> = {
  kind: "latent",
  keeps: ({ config: { kvLoraRank, ropeDim } }) => ({ perToken: kvLoraRank + ropeDim, window: undefined, state: 0 }),
};

export const LATENT_LOADER: MixerLoader<LatentSpec> = {
  load: ({ kernels, weights, activations, tensors, prefix, readers }, mixer) =>
    createLatentAttention(kernels, mixer.config, readers.latent(tensors, prefix, mixer), { weights, activations }),
};
