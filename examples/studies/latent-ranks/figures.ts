import { bandOf, drawFigure, type Line, type Panel } from "../chart.ts";
import { groupOf, shareOf } from "./facts.ts";
import { answer } from "./page.ts";
import type { Group, RanksResult } from "./study.ts";

const BITS = { title: "validation loss, bits a token", ticks: [0, 1, 2, 3, 4, 5, 6] };
/** Variants whose training is drawn: as many as lines can be told apart. */
const DRAWN = ["MHA", "MQA", "MLA 4", "MLA 6", "MLA 11", "MLA 32"];

/** Loss against what a layer keeps of a token. */
export function drawRanks(result: RanksResult): string {
  const lineOf = (name: string, groups: readonly Group[]): Line => {
    const bytes = groups.map(({ floats }) => 4 * floats);
    const seeds = result.seeds.map((_, seed) => groups.map(({ bits }) => bits[seed]!));
    const { points } = bandOf(name, bytes, seeds);
    return {
      name,
      points: points.map((point, i) => ({ ...point, label: String(groups[i]!.rank ?? groups[i]!.name) })),
    };
  };
  const heads = result.groups.filter(({ rank }) => rank === null).toReversed();
  const latents = result.groups.filter(({ rank }) => rank !== null);
  const eighth = (4 * groupOf(result, "MHA").floats) / 8;
  const panel: Panel = {
    title: "Two layers of 8 heads, width 64",
    x: { title: "bytes of a token in a layer's cache, float32", ticks: [32, 64, 128, 256, 512], log: true },
    y: { title: "validation loss, bits a token", ticks: [0.001, 0.01, 0.1, 1, 10], log: true },
    lines: [lineOf("MLA, by rank", latents), lineOf("keys and values of heads", heads)],
    marks: [{ name: "1/8 of MHA", x: eighth }],
  };
  return drawFigure({
    title: "Loss on the copy task against the bytes of the cache",
    description: `${answer(result).replaceAll("**", "")} ${result.groups.map((group) => `${group.name}: ${(100 * shareOf(result, group)).toFixed(1)} % of MHA's cache`).join(", ")}.`,
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
