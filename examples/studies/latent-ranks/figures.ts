import { bandOf, drawFigure, type Line, type Panel } from "../chart.ts";
import { mean } from "../study.ts";
import { groupOf } from "./facts.ts";
import { answer } from "./page.ts";
import type { Group, RanksResult } from "./study.ts";

const BITS = { title: "validation loss, bits a token", ticks: [0, 1, 2, 3, 4, 5, 6] };
/** Variants whose training is drawn: as many as lines can be told apart. */
const DRAWN = ["MHA", "MQA", "MLA 4", "MLA 6", "MLA 11", "MLA 32"];

/** Loss against what a layer keeps of a token. */
export function drawRanks(result: RanksResult): string {
  const lineOf = (name: string, groups: readonly Group[], labels?: readonly string[]): Line => {
    const bytes = groups.map(({ floats }) => 4 * floats);
    const seeds = result.seeds.map((_, seed) => groups.map(({ bits }) => bits[seed]!));
    return bandOf(name, bytes, seeds, labels);
  };
  const heads = result.groups.filter(({ rank }) => rank === null).toReversed();
  const latents = result.groups.filter(({ rank }) => rank !== null);
  const eighth = (4 * groupOf(result, "MHA").floats) / 8;
  const panel: Panel = {
    title: "Two layers of 8 heads, width 64",
    x: { title: "bytes of a token in a layer's cache, float32", ticks: [32, 64, 128, 256, 512], log: true },
    y: { title: "validation loss, bits a token", ticks: [0.001, 0.01, 0.1, 1, 10], log: true },
    lines: [
      lineOf(
        "MLA, by rank",
        latents,
        latents.map(({ rank }) => String(rank)),
      ),
      lineOf(heads.map(({ name }) => name).join(", "), heads),
    ],
    marks: [{ name: "1/8 of MHA", x: eighth }],
  };
  const losses = result.groups.map(
    ({ name, floats, bits }) => `${name}, ${4 * floats} bytes: ${mean(bits).toFixed(2)} bits`,
  );
  return drawFigure({
    title: "Loss on the copy task against the bytes of the cache",
    description: `${answer(result).replaceAll("**", "")} Means of ${result.seeds.length} seeds: ${losses.join("; ")}.`,
    panels: [panel],
  });
}

/** Loss while training. */
export function drawCurves(result: RanksResult): string {
  const { steps, every, seeds } = result;
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
