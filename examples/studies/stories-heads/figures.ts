import { drawFigure } from "../chart.ts";
import { drawHeatMaps } from "../heat-map.ts";
import { mean } from "../study.ts";
import type { LookResult, StoriesResult } from "./result.ts";

export const drawFigures = (result: StoriesResult): Record<string, string> => {
  return {
    "weights.svg": drawWeights(result),
    "without.svg": drawWithout(result),
    "together.svg": drawTogether(result),
  };
};

function drawWeights({ looks }: StoriesResult): string {
  return drawHeatMaps({
    title: "Where the heads of the model of stories look",
    description: "The mean weight of each head on the words that it would have to look at, for each kind of word.",
    maps: looks.map(({ name, weights }) => ({ title: name, values: weights })),
    most: 1,
    print: (value) => value.toFixed(2),
  });
}

function drawWithout({ looks }: StoriesResult): string {
  return drawHeatMaps({
    title: "What is lost without one head",
    description: "Percent of words of each kind that are no longer known when the output of the head is set to 0.",
    maps: looks.map(({ name, accuracy, withoutZero }) => ({
      title: name,
      values: withoutZero.map((row) => row.map((share) => Math.max(0, Math.round(100 * (accuracy - share))))),
    })),
    most: 100,
    print: (value) => String(value),
  });
}

function drawTogether({ looks }: StoriesResult): string {
  return drawFigure({
    title: "What is known without several heads",
    description:
      "Share of words that are known without the heads that look most, and without as many random others. Bands are the range of the sets.",
    panels: looks.map(({ name, accuracy, chance, groups }) => {
      const line = (title: string, of: (group: LookResult["groups"][number]) => readonly number[]) => {
        const points = groups.map((group) => {
          const shares = of(group);
          return { x: group.count, y: mean(shares), low: Math.min(...shares), high: Math.max(...shares) };
        });
        return { name: title, points: [{ x: 0, y: accuracy }, ...points] };
      };
      return {
        title: name,
        x: { title: "heads that give nothing", ticks: [0, 2, 4, 6, 8] },
        y: { title: "share of words", ticks: [0, 0.25, 0.5, 0.75, 1] },
        lines: [
          line("heads that look most, set to 0", ({ zero }) => [zero]),
          line("set to their means", ({ mean }) => [mean]),
          line("random others, set to 0", ({ othersZero }) => othersZero),
          line("others, set to their means", ({ othersMean }) => othersMean),
        ],
        marks: [{ name: "chance", y: chance }],
      };
    }),
  });
}
