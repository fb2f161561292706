import { drawFigure, type Line } from "../chart.ts";
import { drawHeatMaps } from "../heat-map.ts";
import { mean, table } from "../study.ts";
import { type Checkpoint, type InductionFormation, PLACES, type Run } from "./measure.ts";

/** Heads are said to have a score from here on. */
const HIGH = 0.5;
/** And to have begun to rise from here on: scores of untrained heads are below 0.1. */
const RISEN = 0.2;

/** The parts of the circuit that are taken away. */
const PARTS = [
  ["all", "all heads"],
  ["withoutPrevious", "without the previous-token head"],
  ["withoutOther", "without one other head of layer 0, mean"],
  ["keys", "only keys of layer 1 without it"],
  ["queries", "only queries of layer 1 without it"],
  ["values", "only values of layer 1 without it"],
] as const;

export function writeInductionFormation(result: InductionFormation): Record<string, string> {
  return { "README.md": page(result), "formation.svg": drawFormation(result), "heads.svg": drawHeads(result) };
}

const best = (scores: readonly number[]) => Math.max(...scores);
const previousOf = ({ previous }: Checkpoint) => best(previous[0]!);
const inductionOf = ({ induction }: Checkpoint) => best(induction.at(-1)!);
/** Olsson et al. (2022): the loss at late tokens minus that at early ones. */
const contextOf = ({ early, late }: Checkpoint) => late - early;
const last = ({ checkpoints }: Run) => checkpoints.at(-1)!;

/** The first step at which a value has gone half of its way from the first checkpoint to the last. */
function halfway({ checkpoints }: Run, of: (checkpoint: Checkpoint) => number): number {
  const [from, to] = [of(checkpoints[0]!), of(checkpoints.at(-1)!)];
  return checkpoints.find((each) => (of(each) - from) / (to - from) >= 0.5)!.step;
}

/** The first step at which a score is RISEN. */
const risen = ({ checkpoints }: Run, of: (checkpoint: Checkpoint) => number) =>
  checkpoints.find((each) => of(each) >= RISEN)!.step;

/** The mean of the seeds at each step, and their range. */
function lineOf(name: string, runs: readonly Run[], of: (checkpoint: Checkpoint) => number): Line {
  const points = runs[0]!.checkpoints.map(({ step }, i) => {
    const values = runs.map(({ checkpoints }) => of(checkpoints[i]!));
    return { x: step, y: mean(values), low: Math.min(...values), high: Math.max(...values) };
  });
  return { name, points };
}

function byLayers({ runs }: InductionFormation) {
  return { two: runs.filter(({ layers }) => layers === 2), one: runs.filter(({ layers }) => layers === 1) };
}

function drawFormation(result: InductionFormation): string {
  const { two, one } = byLayers(result);
  const steps = last(two[0]!).step;
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
      {
        ...{ title: "Two layers", x, y: nats },
        lines: [...copies(two), frequencies],
        marks,
      },
      {
        ...{ title: "One layer", x, y: nats },
        lines: [...copies(one), frequencies],
      },
      {
        ...{ title: "Two layers", x, y: score },
        lines: heads(two),
        marks,
      },
      {
        ...{ title: "One layer", x, y: score },
        lines: heads(one),
      },
    ],
  });
}

function drawHeads(result: InductionFormation): string {
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

const seedsOf = (runs: readonly Run[], of: (run: Run) => number, digits: number) =>
  runs.map((run) => of(run).toFixed(digits)).join(", ");

function page(result: InductionFormation): string {
  const { two, one } = byLayers(result);
  const rows = [...two, ...one].map((run) => [
    run.layers,
    run.seed,
    last(run).early.toFixed(2),
    last(run).late.toFixed(2),
    contextOf(last(run)).toFixed(2),
    previousOf(last(run)).toFixed(2),
    inductionOf(last(run)).toFixed(2),
  ]);
  const changes = two.map((run) => [
    run.seed,
    risen(run, previousOf),
    risen(run, inductionOf),
    halfway(run, inductionOf),
    halfway(run, contextOf),
  ]);
  const earlier = changes.map(([, previous, induction]) => induction! - previous!);
  const together = changes.map(([, , , induction, context]) => Math.abs(induction! - context!));
  const formed = (runs: readonly Run[]) => runs.filter((run) => inductionOf(last(run)) >= HIGH).length;
  const cases = PARTS.map(([part, name]) => [
    name,
    ...two.flatMap(({ circuit }) => [circuit![part].late.toFixed(2), circuit![part].induction.toFixed(2)]),
  ]);
  const meanOf = (part: (typeof PARTS)[number][0], of: "late" | "induction") =>
    mean(two.map(({ circuit }) => circuit![part][of])).toFixed(2);
  /** What the induction head loses most by. */
  const composed = (["keys", "queries", "values"] as const).reduce((most, part) =>
    Number(meanOf(part, "induction")) < Number(meanOf(most, "induction")) ? part : most,
  );
  const steps = last(two[0]!).step;
  const every = two[0]!.checkpoints[1]!.step;
  return `# Formation of the induction circuit

**Question.** When does a small decoder learn to go on with what it has read, and do the heads that do it appear at that moment? Olsson et al. (2022) found that in-context learning comes in one short part of the training, together with *induction heads*: heads that look for what followed the present token before. They need a *previous-token head* in an earlier layer, so one layer should not be enough.

**Method.** Decoders of attention alone (d_model 64, 4 heads, RoPE), with two layers and with one, ${two.length} seeds each, are trained for ${steps} steps of 32 sequences of 64 tokens. A sequence is a segment of 8 to 32 random tokens of 128, some more frequent than others, again and again. They are written as Llama checkpoints with MLPs of zeros, every ${every} steps at first, and measured by headwise on ${result.sequences} new sequences of two copies of ${result.segment} tokens:

- *early* and *late*: the loss at the last ${PLACES} places of the first and of the second copy. What is in the first copy, only the frequency of tokens tells: ${result.entropy.toFixed(2)} nats at best. The *in-context score* is late minus early.
- *previous-token score* and *induction score* of a head: the mean weight on the previous token, and on what followed earlier places of the same token, over the tokens that have such a place (\`detectionPattern\` and \`headScores\` of [headwise/inspect](../../../docs/guide/heads.md)).

**Result.** Losses and scores over the steps:

![Loss and scores over training](formation.svg)

At the end, with the best head of layer 0 and of the last layer:

${table([["layers", "seed", "early", "late", "in-context score", "previous-token score", "induction score"], ...rows])}

The first steps with two layers at which the best previous-token and induction scores are ${RISEN}, and at which the induction score and the in-context score have gone half of their way:

${table([["seed", `previous-token ${RISEN}`, `induction ${RISEN}`, "induction, half", "in-context, half"], ...changes])}

All heads at the end:

![Scores of all heads](heads.svg)

What the circuit consists of: late loss and score of the best induction head when the best previous-token head gives 0, when another head of layer 0 does, and when only the keys, queries or values of layer 1 become what they are without it (their inputs are computed in a run without the head, and patched in).

${table([["", ...two.flatMap(({ seed }) => [`seed ${seed}: late`, "induction score"])], ...cases])}

**Answer.** With two layers, ${formed(two)} of ${two.length} models end with an induction score of at least ${HIGH}; with one layer, ${formed(one)} of ${one.length}. The in-context score ends at ${seedsOf(two, (run) => contextOf(last(run)), 2)} nats with two layers and at ${seedsOf(one, (run) => contextOf(last(run)), 2)} with one. Half of its change comes within ${Math.max(...together)} steps of half of that of the induction score in every seed (a checkpoint comes every ${every} steps then). The previous-token score reaches ${RISEN} before the induction score does in ${earlier.filter((steps) => steps > 0).length} of ${two.length} seeds, ${Math.round(mean(earlier))} steps earlier in the mean. Without the previous-token head, the late loss rises from ${meanOf("all", "late")} to ${meanOf("withoutPrevious", "late")} nats, and without another head of layer 0 to ${meanOf("withoutOther", "late")}. The score of the induction head is ${meanOf("all", "induction")}; if only the keys of its layer lose the previous-token head, ${meanOf("keys", "induction")}; only the queries, ${meanOf("queries", "induction")}; only the values, ${meanOf("values", "induction")}. It depends most on the ${composed}${composed === "keys" ? ": K-composition, as in the paper" : ""}.

**Limits.** Sequences repeat and hold nothing else, so that the circuit forms within some hundred steps, and the first copies teach frequencies only. Language and models with MLPs were not tried. ${two.length} seeds, one size.

**Run.** \`npm run study -- induction-formation\`: with PyTorch, some five minutes of one core. \`--figures\` writes this page and the figures from result.json. The losses of PyTorch and headwise differ by at most ${result.difference} nats over the ${[...two, ...one].reduce((sum, { checkpoints }) => sum + checkpoints.length, 0)} checkpoints.
`;
}
