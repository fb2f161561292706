import { listText, pageOf, table } from "../page.ts";
import { mean } from "../study.ts";
import {
  byLayers,
  composedBy,
  contextOf,
  formed,
  HIGH,
  halfway,
  inductionOf,
  last,
  PARTS,
  type PartName,
  partOf,
  previousOf,
  RISEN,
  risen,
} from "./facts.ts";
import { type FormationResult, PLACES, type Run } from "./result.ts";

export function writePage(result: FormationResult): string {
  const { setup, sequences, entropy, difference, runs } = result;
  const { seeds, steps, dModel, heads, rows, length, tokens, shortest, segment, torch } = setup;
  const { two } = byLayers(result);
  const every = two[0]!.checkpoints[1]!.step;
  const checkpoints = runs.reduce((sum, run) => sum + run.checkpoints.length, 0);
  return pageOf({
    name: "induction-formation",
    title: "Formation of the induction circuit",
    from: "After Olsson et al. (2022), In-context Learning and Induction Heads.",
    question:
      "When does a small decoder learn to continue what it has read, and do the heads that do it appear at that moment? Olsson et al. found that in-context learning comes in one short part of the training, together with *induction heads*: heads that look for what followed the present token before. They need a *previous-token head* in an earlier layer, so one layer should not be enough.",
    answer: answer(result, every),
    results: `![Loss and scores over training](formation.svg)

At the end, with the best head of layer 0 and of the last layer:

${endTable(result)}

The first steps with two layers at which the best previous-token and induction scores are ${RISEN}, and at which the induction score and the in-context score have gone half of their way:

${table([
  ["seed", `previous-token ${RISEN}`, `induction ${RISEN}`, "induction, half", "in-context, half"],
  ...two.map((run) => [
    ...[run.seed, risen(run, previousOf), risen(run, inductionOf)],
    ...[halfway(run, inductionOf), halfway(run, contextOf)],
  ]),
])}

All heads at the end:

![Scores of all heads](heads.svg)

What the circuit consists of: late loss and score of the best induction head when the best previous-token head gives 0, when another head of layer 0 does, and when only the keys, queries or values of layer 1 become what they are without it (their inputs are computed in a run without the head, and patched in).

${table([
  ["", ...two.flatMap(({ seed }) => [`seed ${seed}: late`, "induction score"])],
  ...(Object.keys(PARTS) as PartName[]).map((part) => [
    PARTS[part],
    ...two.flatMap(({ circuit }) => [circuit![part].late.toFixed(2), circuit![part].induction.toFixed(2)]),
  ]),
])}`,
    method: `Decoders of attention alone (d_model ${dModel}, ${heads} heads, RoPE), with two layers and with one, ${seeds.length} seeds each, are trained for ${steps} steps of ${rows} sequences of ${length} tokens. A sequence is a segment of ${shortest} to ${segment} random tokens of ${tokens}, some more frequent than others, again and again. They are written as Llama checkpoints with MLPs of zeros, every ${every} steps at first, and measured by headwise on ${sequences} new sequences of two copies of ${segment} tokens:

- *early* and *late*: the loss at the last ${PLACES} places of the first and of the second copy. Of a token in the first copy only its frequency can be known: ${entropy.toFixed(2)} nats at best. The *in-context score* is late minus early.
- *previous-token score* and *induction score* of a head: the mean weight on the previous token, and on what followed earlier places of the same token, over the tokens that have such a place (\`headScores\` of [headwise/inspect](../../../docs/guide/heads.md#what-a-head-does), measure "overlap").

The losses of PyTorch and headwise differ by at most ${difference} nats over the ${checkpoints} checkpoints.`,
    limits: `Sequences repeat and hold nothing else, so that the circuit forms within some hundred steps, and the first copies teach frequencies only. Language and models with MLPs were not tried. ${seeds.length} seeds, one size. Other heads of layer 0 are not without effect, as the last table shows.`,
    minutes: 6,
    torch,
  });
}

function answer(result: FormationResult, every: number): string {
  const { two, one } = byLayers(result);
  const apart = two.map((run) => Math.abs(halfway(run, inductionOf) - halfway(run, contextOf)));
  const earlier = two.map((run) => risen(run, inductionOf) - risen(run, previousOf));
  const composed = composedBy(two);
  const of = (part: PartName, which: "late" | "induction") => partOf(two, part, which).toFixed(2);
  const scores = (runs: readonly Run[]) => listText(runs.map((run) => contextOf(last(run)).toFixed(2)));
  return `**With two layers, ${formed(two)} of ${two.length} models end with an induction head (a score of at least ${HIGH}); with one layer, ${formed(one)} of ${one.length}.** The in-context score ends at ${scores(two)} nats with two layers and at ${scores(one)} with one.

- **At the same moment**: half of the change of the in-context score comes within ${Math.max(...apart)} steps of half of that of the induction score in every seed (a checkpoint comes every ${every} steps then). The previous-token score reaches ${RISEN} before the induction score does in ${earlier.filter((steps) => steps > 0).length} of ${two.length} seeds, ${Math.round(mean(earlier))} steps earlier in the mean${Math.max(...earlier) <= every ? ", which is as fine as the checkpoints are" : ""}.
- **By the previous-token head**: without it, the late loss rises from ${of("all", "late")} to ${of("withoutPrevious", "late")} nats, and without another head of layer 0 to ${of("withoutOther", "late")}.
- **Through the ${composed}**: the score of the induction head is ${of("all", "induction")}; if only the keys of its layer lose the previous-token head, ${of("keys", "induction")}; only the queries, ${of("queries", "induction")}; only the values, ${of("values", "induction")}. It depends most on the ${composed}${composed === "keys" ? ": K-composition, as in the paper" : ""}.`;
}

function endTable(result: FormationResult): string {
  const { two, one } = byLayers(result);
  const rows = [...two, ...one].map((run) => {
    const end = last(run);
    const values = [end.early, end.late, contextOf(end), previousOf(end), inductionOf(end)];
    return [run.layers, run.seed, ...values.map((value) => value.toFixed(2))];
  });
  return table([
    ["layers", "seed", "early", "late", "in-context score", "previous-token score", "induction score"],
    ...rows,
  ]);
}
