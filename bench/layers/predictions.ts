// One layer of each variant of attention, small and large: what the configurator predicts, and what the layer takes.

import { PROJECTION_KINDS, type ProjectionKind } from "../../src/tools/configure/choose.ts";
import { configure } from "../../src/tools/configure/configure.ts";
import { measureLayer } from "../../src/tools/configure/measure.ts";
import { loadBuild } from "../lib/builds.ts";
import { type Column, fasterBuild, part } from "../lib/part.ts";

interface PredictionRow {
  readonly layer: string;
  readonly weights: string;
  readonly bytes: number;
  /** Whether the predicted bytes of weights and session are the measured ones. */
  readonly exact: boolean;
  /** Milliseconds, predicted and measured: of a prompt of 512 tokens, and of a token behind it. */
  readonly prompt: readonly [number, number];
  readonly token: readonly [number, number];
}

const both = ([predicted, measured]: readonly [number, number]) => {
  const percent = Math.round(100 * (predicted / measured - 1));
  return `${predicted.toPrecision(3)}, ${measured.toPrecision(3)} (${percent > 0 ? "+" : ""}${percent} %)`;
};

const columns: readonly Column<PredictionRow>[] = [
  ["layer", 26, (row) => row.layer],
  ["weights", 7, (row) => row.weights],
  ["bytes", 11, ({ bytes }) => bytes.toString()],
  ["equal", 5, ({ exact }) => (exact ? "yes" : "no")],
  ["prompt, ms", 20, ({ prompt }) => both(prompt)],
  ["token, ms", 20, ({ token }) => both(token)],
];

/** Widths with heads and their size. */
const WIDTHS = [
  [128, 4, 32],
  [512, 8, 64],
  [2048, 16, 128],
] as const;
const FORMATS = ["f32", "q8"] as const;
/** Tokens of a prompt, and one behind it. */
const SEQ_LEN = 513;

function layerOf([dModel, numHeads, headDim]: (typeof WIDTHS)[number], attention: ProjectionKind) {
  // Four layers, whose MLP is near the usual width.
  const parameterBudget = 4 * 12 * dModel * dModel;
  const sizes = { dModel, numHeads, headDim, attention, memory: 2 ** 32 };
  return { parameterBudget, seqLen: SEQ_LEN, target: "server", cache: "f16", ...sizes } as const;
}

export const predictions = part("predictions", columns, async function* rows(context): AsyncGenerator<PredictionRow> {
  for (const width of context.quick ? WIDTHS.slice(0, 1) : WIDTHS)
    for (const attention of PROJECTION_KINDS)
      for (const weights of FORMATS) {
        const layer = `${attention} ${width[0]}, ${width[1]} heads of ${width[2]}`;
        if (!context.wants(`${layer} ${weights}`)) continue;
        const { host } = await loadBuild(fasterBuild(context));
        const { predicted, measured } = await measureLayer(host, configure({ ...layerOf(width, attention), weights }));
        host.release();
        const { weightBytes: bytes, sessionBytes } = measured;
        yield {
          ...{
            layer,
            weights,
            bytes,
            exact: predicted.weightBytes === bytes && predicted.sessionBytes === sessionBytes,
          },
          prompt: [predicted.prefillMs, measured.prefillMs],
          token: [predicted.decodeMs, measured.decodeMs],
        };
      }
});
