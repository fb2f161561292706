import { bandOf, drawFigure, type Panel } from "../chart.ts";
import type { Task } from "../groups.ts";
import { listText } from "../page.ts";
import { groupOf, guessBits, HEADS, LAYERS, TASKS, unorderedBits, verdictText } from "./facts.ts";
import type { CopyResult } from "./result.ts";

export const TITLES: Readonly<Record<Task, string>> = { fixed: "a fixed distance", varied: "a varied distance" };
const LAYER_NAMES = { 1: "one layer", 2: "two layers" } as const;
const BITS = { title: "validation loss, bits a token", ticks: [0, 1, 2, 3, 4, 5, 6] };

export const drawFigures = (result: CopyResult): Record<string, string> => {
  return { "curves.svg": drawCurves(result), "heads.svg": drawHeads(result) };
};

/** Loss while training: a chart for each task and number of layers. */
function drawCurves(result: CopyResult): string {
  const { steps, every, seeds } = result.setup;
  const at = Array.from({ length: steps / every + 1 }, (_, i) => i * every);
  const x = { title: "steps", ticks: [0, 0.25, 0.5, 0.75, 1].map((share) => share * steps) };
  const panels = TASKS.flatMap((task) =>
    LAYERS.map((layers): Panel => {
      const lines = HEADS.map((heads) =>
        bandOf(heads === 1 ? "1 head" : `${heads} heads`, at, groupOf(result, task, layers, heads).curves),
      );
      return { title: `${LAYER_NAMES[layers]}, ${TITLES[task]}`, x, y: BITS, lines };
    }),
  );
  return drawFigure({
    title: "Loss on the copy task while training",
    description: `Validation loss in bits against steps, for ${listText(HEADS)} heads: mean of ${seeds.length} seeds, with their range as a band. ${describeEnds(result)}`,
    panels,
  });
}

/** Loss after training against heads: a chart for each task. */
function drawHeads(result: CopyResult): string {
  const panels = TASKS.map((task): Panel => {
    const lines = LAYERS.map((layers) => {
      const groups = HEADS.map((heads) => groupOf(result, task, layers, heads).bits);
      return bandOf(
        LAYER_NAMES[layers],
        HEADS,
        result.setup.seeds.map((_, seed) => groups.map((bits) => bits[seed]!)),
      );
    });
    const marks = [
      { name: "a guess", y: guessBits(result.setup) },
      { name: "tokens known, order not", y: unorderedBits(result.setup, task) },
    ];
    return {
      title: TITLES[task],
      x: { title: `heads, which share ${result.setup.dModel} dimensions`, ticks: HEADS, log: true },
      y: BITS,
      lines,
      marks,
    };
  });
  return drawFigure({
    title: "Loss on the copy task against the number of heads",
    description: `Validation loss in bits after ${result.setup.steps} steps: mean of ${result.setup.seeds.length} seeds, with their range as a band. ${describeEnds(result)}`,
    panels,
  });
}

const describeEnds = (result: CopyResult) =>
  TASKS.flatMap((task) =>
    LAYERS.map(
      (layers) => `At ${TITLES[task]} with ${LAYER_NAMES[layers]}, more heads: ${verdictText(result, task, layers)}.`,
    ),
  ).join(" ");
