// What the layers of a model keep of a sequence: keys and values, latents, or a state that does not grow.

import type { ModelSpec } from "../models/decoder/spec.ts";
import type { ModelParts } from "./other-models.ts";

/** What layers of one kind keep of a sequence. */
export interface LayerMemory {
  /**
   * "heads": keys and values of heads; "latent": latents, of which both are computed (MLA); "shared": nothing of their own, since
   * they attend to the keys and values of earlier layers; "recurrent": a state; "both": keys, values and a state; "none": nothing.
   */
  readonly kind: "heads" | "latent" | "shared" | "recurrent" | "both" | "none";
  /** How many layers of the model are of this kind. */
  readonly layers: number;
  /** Numbers that each of them keeps of a token. */
  readonly perToken: number;
  /** The most tokens that each of them keeps; undefined without a window. */
  readonly window: number | undefined;
  /** Numbers of each layer's state, whatever the length of the sequence. */
  readonly state: number;
}

type OneLayer = Omit<LayerMemory, "layers">;

/** Layers that keep the same, counted, in the order of the first of each kind. */
export function groupLayers(layers: readonly OneLayer[]): LayerMemory[] {
  const groups = new Map<string, OneLayer[]>();
  for (const layer of layers) {
    const key = [layer.kind, layer.perToken, layer.window, layer.state].join();
    groups.set(key, [...(groups.get(key) ?? []), layer]);
  }
  return Array.from(groups.values(), (same) => ({ ...(same[0] as OneLayer), layers: same.length }));
}

/** Of a decoder that this package runs. */
export function memoryOfSpec({ blocks, order }: ModelSpec): LayerMemory[] {
  const layers = blocks.map(({ attention }): OneLayer => {
    if (attention.kind === "latent") {
      const { kvLoraRank, ropeDim } = attention.config;
      return { kind: "latent", perToken: kvLoraRank + ropeDim, window: undefined, state: 0 };
    }
    const { dModel, numHeads, numKvHeads = numHeads, headDim = dModel / numHeads, window } = attention.config;
    const { valueDim = headDim } = attention.config;
    const left = window?.left;
    return {
      kind: "heads",
      perToken: numKvHeads * (headDim + valueDim),
      window: left === undefined ? left : left + 1,
      state: 0,
    };
  });
  return groupLayers(order ? order.map((i) => layers[i] as OneLayer) : layers);
}

/** Of another model. */
export function memoryOfParts({ layers }: ModelParts): LayerMemory[] {
  return groupLayers(
    layers.map(({ mixers, shares }): OneLayer => {
      if (shares) return { kind: "shared", perToken: 0, window: undefined, state: 0 };
      const sum = (name: "perToken" | "state") => mixers.reduce((all, mixer) => all + (mixer[name] ?? 0), 0);
      return layerOf(sum("perToken"), sum("state"), mixers.find(({ window }) => window !== undefined)?.window);
    }),
  );
}

/** A layer that keeps so many numbers of each token, and so many of a state. */
export function layerOf(perToken: number, state: number, window?: number): OneLayer {
  const kind = perToken > 0 ? (state > 0 ? "both" : "heads") : state > 0 ? "recurrent" : "none";
  return { kind, perToken, window: perToken > 0 ? window : undefined, state };
}

/** Numbers that the caches hold after `seqLen` tokens, and those of all states. */
export function countMemory(layers: readonly LayerMemory[], seqLen: number): { cached: number; state: number } {
  const sum = (of: (layer: LayerMemory) => number) => layers.reduce((all, each) => all + each.layers * of(each), 0);
  return {
    cached: sum(({ perToken, window = seqLen }) => perToken * Math.min(window, seqLen)),
    state: sum(({ state }) => state),
  };
}
