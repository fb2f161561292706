import { bandOf, drawFigure, type Line } from "../chart.ts";
import { mean } from "../study.ts";
import { METHODS } from "./convert.ts";
import { fewerHeads, type Loss, lossesOf, MEANING, ownLosses } from "./facts.ts";
import type { GqaResult } from "./result.ts";

export const drawFigures = (result: GqaResult): Record<string, string> => ({ "losses.svg": drawLosses(result) });

/** Loss against key-value heads, at once and after the further steps. */
function drawLosses(result: GqaResult): string {
  const { heads, seeds, upSteps } = result.setup;
  const fewer = fewerHeads(result).toReversed();
  const panel = (title: string, of: Loss) => {
    const lines: Line[] = METHODS.map((method) => {
      const losses = fewer.map((kvHeads) => lossesOf(result, method, kvHeads, of));
      return bandOf(
        MEANING[method],
        fewer,
        seeds.map((_, seed) => losses.map((values) => values[seed]!)),
      );
    });
    const level = (name: string, y: number): Line => ({ name, points: fewer.map((x) => ({ x, y })) });
    lines.push(level(`all ${heads} heads`, mean(ownLosses(result, of))), level("frequencies alone", result.entropy));
    const most = Math.max(...lines.flatMap(({ points }) => points.map(({ y, high = y }) => high)));
    const ticks = Array.from({ length: Math.ceil(most) + 1 }, (_, nats) => nats);
    return {
      ...{ title, lines, x: { title: `key-value heads of ${heads}`, ticks: fewer, log: true } },
      y: { title: "nats a token", ticks },
    };
  };
  return drawFigure({
    title: "Loss of converted models, before and after some more training",
    description: `Loss over the number of key-value heads for four ways of making them, on the left at once and on the right after ${upSteps} steps of training. Bands are the range of the seeds.`,
    panels: [panel("converted", "loss"), panel(`after ${upSteps} more steps`, "uptrained")],
  });
}
