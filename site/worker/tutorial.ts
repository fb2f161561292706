// Figures of the tutorial on multi-head attention, from its code in examples/seeds.

import { drawProjections, drawShapes, drawSplit } from "headwise/inspect";
import { HAND_HEADS, handWeights, TOKENS } from "../../examples/seeds/hand-heads.ts";
import { drawMixing, runSmall, SMALL } from "../../examples/seeds/mixing.ts";
import { startKernels } from "./load.ts";

/** A figure as SVG: for wide and for narrow pages. */
export type Figure = readonly [wide: string, narrow: string];

const LAYER = { batch: 2, seqLen: 10, dModel: 512, numHeads: 8 } as const;

/** What the tutorial computes and draws. */
export interface TutorialFigures {
  /** The two heads that are built by hand: their sentence, and weights [heads, tokens, tokens]. */
  readonly tokens: readonly string[];
  readonly handHeads: readonly string[];
  readonly handWeights: Float32Array;
  /** Mixing: x0 [8], W [8, 8] and q0 [8]. */
  readonly x0: Float32Array;
  readonly W: Float32Array;
  readonly q0: Float32Array;
  /** Weights of the small layer [batch, heads, tokens, tokens], and their sizes. */
  readonly small: Float32Array;
  readonly sizes: typeof SMALL;
  /** The sizes of the figures below; `split` is that of the small layer. */
  readonly layer: typeof LAYER;
  readonly projections: Figure;
  readonly split: Figure;
  readonly shapes: Figure;
}

export async function tutorialTask({ deterministic }: { readonly deterministic: boolean }): Promise<TutorialFigures> {
  const kernels = await startKernels(deterministic);
  const mixing = drawMixing();
  const floats = ({ data }: { readonly data: ArrayLike<number> }) => Float32Array.from(data);
  const figure = (draw: (labels: "beside" | "above") => string): Figure => [draw("beside"), draw("above")];
  const { dModel, numHeads } = SMALL;
  return {
    ...{ tokens: TOKENS, handHeads: HAND_HEADS.map(({ name }) => name), handWeights: floats(handWeights(kernels)) },
    ...{ x0: floats(mixing.x0), W: floats(mixing.W), q0: floats(mixing.q0) },
    ...{ small: floats(runSmall(kernels, mixing).maps), sizes: SMALL },
    layer: LAYER,
    projections: figure((labels) => drawProjections({ dModel: LAYER.dModel, numHeads: LAYER.numHeads }, { labels })),
    split: figure((labels) => drawSplit({ dModel, numHeads }, { labels })),
    shapes: figure((labels) => drawShapes(LAYER, { labels })),
  };
}
