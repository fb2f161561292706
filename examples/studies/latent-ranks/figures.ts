import { bandOf, drawFigure, type Line, type Panel } from "../chart.ts";
import { mean } from "../study.ts";
import { answer, groupOf } from "./facts.ts";
import type { Group, RanksResult } from "./result.ts";

const BITS = { title: "validation loss, bits a token", ticks: [0, 1, 2, 3, 4, 5, 6] };
/** Variants whose training is drawn: as many as a chart has styles of lines. */
const DRAWN = ["MHA", "MQA", "MLA 4", "MLA 6", "MLA 11", "MLA 32"];

export const drawFigures = (result: RanksResult): Record<string, string> => {
  return { "ranks.svg": drawRanks(result), "curves.svg": drawCurves(result) };
};

/** Loss against what a layer keeps of a token. */
function drawRanks(result: RanksResult): string {
  const lineOf = (name: string, groups: readonly Group[], labels?: readonly string[]): Line => {
    const bytes = groups.map(({ floats }) => 4 * floats);
    const seeds = result.setup.seeds.map((_, seed) => groups.map(({ bits }) => bits[seed]!));
    return bandOf(name, bytes, seeds, labels);
  };
  const variants = result.groups.filter(({ rank }) => rank === null).toReversed();
  const latents = result.groups.filter(({ rank }) => rank !== null);
  const { floats, layers, heads } = groupOf(result, "MHA");
  const panel: Panel = {
    title: `${layers} layers of ${heads} heads, width ${result.setup.dModel}`,
    x: { title: "bytes of a token in a layer's cache, float32", ticks: [32, 64, 128, 256, 512], log: true },
    y: { title: "validation loss, bits a token", ticks: [0.001, 0.01, 0.1, 1, 10], log: true },
    lines: [
      lineOf(
        "MLA, by rank",
        latents,
        latents.map(({ rank }) => String(rank)),
      ),
      lineOf(variants.map(({ name }) => name).join(", "), variants),
    ],
    marks: [{ name: "1/8 of MHA", x: (4 * floats) / 8 }],
  };
  const losses = result.groups.map(
    ({ name, floats, bits }) => `${name}, ${4 * floats} bytes: ${mean(bits).toFixed(2)} bits`,
  );
  return drawFigure({
    title: "Loss on the copy task against the bytes of the cache",
    description: `${answer(result).replaceAll("**", "")} Means of ${result.setup.seeds.length} seeds: ${losses.join("; ")}.`,
    panels: [panel],
  });
}

/** Loss while training. */
function drawCurves(result: RanksResult): string {
  const { steps, every, seeds } = result.setup;
  const at = Array.from({ length: steps / every + 1 }, (_, i) => i * every);
  const panel: Panel = {
    title: "While training",
    x: { title: "steps", ticks: [0, 0.25, 0.5, 0.75, 1].map((share) => share * steps) },
    y: BITS,
    lines: DRAWN.map((name) => bandOf(name, at, groupOf(result, name).curves)),
  };
  return drawFigure({
    title: "Loss on the copy task while training, with MHA, MQA and latent attention",
    description: `Validation loss in bits against steps, for ${DRAWN.join(", ")}: mean of ${seeds.length} seeds, with their range as a band.`,
    panels: [panel],
  });
}
