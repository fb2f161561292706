// Mixers side by side as the mixer of a layer.

import { createParallelLayer, placeParallelSum } from "../../layers/recurrent/parallel.ts";
import type { MixerSpec, ParallelSpec } from "../spec/spec.ts";
import type { MixerKind, MixerLoader, MixerMemory, MixerPlan, MixerTensor } from "./mixer.ts";

/** What is known of the kinds that lie side by side: `kinds` gives what is known of each. */
export const parallelOf = (kinds: () => Readonly<Record<MixerSpec["kind"], MixerKind>>): MixerKind<ParallelSpec> => ({
  readsInOrder: () => true,

  *weights({ parts }, of) {
    for (const { mixer } of parts) yield* kinds()[mixer.kind].weights(mixer, of);
  },

  plan(where, { parts, config }, formatOf): MixerPlan {
    const all = parts.map(({ mixer }) => kinds()[mixer.kind].plan(where, mixer, formatOf));
    return {
      bytes: all.reduce((sum, { bytes }) => sum + bytes, 0),
      rope: all.find(({ rope }) => rope !== undefined)?.rope,
      chunkRows: Math.min(...all.map(({ chunkRows }) => chunkRows)),
      state(...given) {
        const states = all.map(({ state }) => state(...given));
        return {
          bytes: states.reduce((sum, { bytes }) => sum + bytes, 0),
          formats: states.reduce((sum, { formats }) => sum | formats, 0),
        };
      },
      place(layout, rows, formats, rotations) {
        placeParallelSum(layout, config.dModel, rows);
        for (const { place } of all) place(layout, rows, formats, rotations);
      },
    };
  },
});

/** What all of them keep. */
export const parallelMemory = (
  kinds: () => Readonly<Record<MixerSpec["kind"], MixerMemory>>,
): MixerMemory<ParallelSpec> => ({
  kind: "both",
  keeps({ parts }) {
    const all = parts.map(({ mixer }) => kinds()[mixer.kind].keeps(mixer));
    return {
      perToken: all.reduce((sum, { perToken }) => sum + perToken, 0),
      window: all.find(({ window }) => window !== undefined)?.window,
      state: all.reduce((sum, { state }) => sum + state, 0),
    };
  },
});

/** The tensors of all, each below the prefix of its part. */
export const parallelTensors = (
  { parts }: ParallelSpec,
  tensorsOf: (mixer: MixerSpec) => readonly MixerTensor[],
): readonly MixerTensor[] =>
  parts.flatMap(({ at, mixer }) =>
    tensorsOf(mixer).map(({ name, bias, ...rest }) => ({
      ...{ ...rest, name: `${at}${name}`, bias: bias && ([`${at}${bias[0]}`, bias[1]] as const) },
    })),
  );

export const parallelLoader = (
  loaders: () => Readonly<Record<MixerSpec["kind"], MixerLoader>>,
): MixerLoader<ParallelSpec> => ({
  load(packing, { parts }) {
    const { prefix, tensors, sources } = packing;
    const layers = parts.map(({ at, mixer, scale }) => {
      const own = `${prefix}${at}`;
      const below = new Map([...tensors].filter(([name]) => name.startsWith(own)));
      const given = {
        ...packing,
        prefix: own,
        tensors: below,
        sources: sources.filter(({ name }) => name.startsWith(own)),
      };
      return { layer: loaders()[mixer.kind].load(given, mixer), scale };
    });
    return createParallelLayer(layers);
  },
});
