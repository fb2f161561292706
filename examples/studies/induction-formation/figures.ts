import { bandOf, drawFigure } from "../chart.ts";
import { drawHeatMaps } from "../heat-map.ts";
import { mean } from "../study.ts";
import { byLayers, contextOf, halfway, inductionOf, last, previousOf } from "./facts.ts";
import type { Checkpoint, FormationResult, Run } from "./result.ts";

export const drawFigures = (result: FormationResult): Record<string, string> => {
  return { "formation.svg": drawFormation(result), "heads.svg": drawHeads(result) };
};

/** The mean of the seeds at each step, and their range. */
function lineOf(name: string, runs: readonly Run[], of: (checkpoint: Checkpoint) => number) {
  const steps = runs[0]!.checkpoints.map(({ step }) => step);
  return bandOf(
    name,
    steps,
    runs.map(({ checkpoints }) => checkpoints.map(of)),
  );
}

function drawFormation(result: FormationResult): string {
  const { two, one } = byLayers(result);
  const { steps } = result.setup;
  const x = { title: "training step", ticks: [0, 1, 2, 3, 4].map((i) => (i * steps) / 4) };
  const change = Math.round(mean(two.map((run) => halfway(run, contextOf))));
  const marks = [{ name: "half of the change", x: change }];
  const most = Math.max(...result.runs.flatMap(({ checkpoints }) => checkpoints.map(({ early }) => early)));
  const nats = { title: "loss in nats", ticks: Array.from({ length: Math.ceil(most) + 1 }, (_, tick) => tick) };
  const frequencies = { name: "frequencies alone", points: [0, steps].map((step) => ({ x: step, y: result.entropy })) };
  const copies = (runs: readonly Run[]) => [
    lineOf("first copy", runs, ({ early }) => early),
    lineOf("second copy", runs, ({ late }) => late),
  ];
  const heads = (runs: readonly Run[]) => [
    lineOf("best previous-token head of layer 0", runs, previousOf),
    lineOf("best induction head of the last layer", runs, inductionOf),
  ];
  const score = { title: "mean weight", ticks: [0, 0.25, 0.5, 0.75, 1] };
  return drawFigure({
    title: "Loss and scores of heads over training",
    description:
      `With two layers, the loss in the second copy of a segment falls from ${mean(two.map((run) => run.checkpoints[0]!.late)).toFixed(2)} ` +
      `to ${mean(two.map((run) => last(run).late)).toFixed(2)} nats, half of it by step ${change}, as a previous-token head and an ` +
      `induction head appear; with one layer it ends at ${mean(one.map((run) => last(run).late)).toFixed(2)}. Bands are the range of the seeds.`,
    panels: [
      { title: "Two layers", x, y: nats, lines: [...copies(two), frequencies], marks },
      { title: "One layer", x, y: nats, lines: [...copies(one), frequencies] },
      { title: "Two layers", x, y: score, lines: heads(two), marks },
      { title: "One layer", x, y: score, lines: heads(one) },
    ],
  });
}

function drawHeads(result: FormationResult): string {
  const { two } = byLayers(result);
  return drawHeatMaps({
    title: "Scores of all heads at the end",
    description: `Previous-token and induction score of each head of the ${two.length} models of two layers.`,
    maps: two.flatMap((run) => [
      { title: `seed ${run.seed}: previous token`, values: last(run).previous },
      { title: `seed ${run.seed}: induction`, values: last(run).induction },
    ]),
    most: 1,
    print: (value) => value.toFixed(2),
  });
}
