import { drawFigure, type Line } from "../chart.ts";
import { mean, table } from "../study.ts";
import { METHODS } from "./convert.ts";
import type { Converted, GqaConversion } from "./measure.ts";

export function writeGqaConversion(result: GqaConversion): Record<string, string> {
  return { "README.md": page(result), "losses.svg": drawLosses(result) };
}

type Method = Converted["method"];
type Loss = "loss" | "uptrained";

const MEANING: Readonly<Record<Method, string>> = {
  none: "as it was",
  mean: "mean of the heads of a group",
  first: "first head of a group",
  svd: "best common basis of a group",
  random: "random key and value heads",
};

/** The value of each seed. */
function valuesOf(
  { models }: GqaConversion,
  method: Method,
  kvHeads: number,
  of: (model: Converted) => number,
): number[] {
  return models.filter((model) => model.method === method && model.kvHeads === kvHeads).map(of);
}

const kvHeadsOf = ({ models }: GqaConversion) => [...new Set(models.map(({ kvHeads }) => kvHeads))];

function drawLosses(result: GqaConversion): string {
  const [all, ...fewer] = kvHeadsOf(result) as [number, ...number[]];
  const lineOf = (method: (typeof METHODS)[number], of: Loss) => ({
    name: MEANING[method],
    points: [...fewer].reverse().map((kvHeads) => {
      const values = valuesOf(result, method, kvHeads, (model) => model[of]);
      return { x: kvHeads, y: mean(values), low: Math.min(...values), high: Math.max(...values) };
    }),
  });
  const panel = (title: string, of: Loss) => {
    const level = (name: string, y: number) => ({ name, points: [fewer.at(-1)!, fewer[0]!].map((x) => ({ x, y })) });
    const lines: Line[] = [
      ...METHODS.map((method) => lineOf(method, of)),
      level(`all ${all} heads`, mean(valuesOf(result, "none", all, (model) => model[of]))),
      level("frequencies alone", result.entropy),
    ];
    const most = Math.max(...lines.flatMap(({ points }) => points.map(({ y, high = y }) => high)));
    const ticks = Array.from({ length: Math.ceil(most) + 1 }, (_, nats) => nats);
    return {
      ...{ title, lines, x: { title: `key-value heads of ${all}`, ticks: [...fewer].reverse(), log: true } },
      y: { title: "nats a token", ticks },
    };
  };
  return drawFigure({
    title: "Loss of converted models, before and after some more training",
    description: `Loss over the number of key-value heads for four ways of making them, on the left at once and on the right after ${result.upSteps} steps of training. Bands are the range of the seeds.`,
    panels: [panel("converted", "loss"), panel(`after ${result.upSteps} more steps`, "uptrained")],
  });
}

const nats = (values: readonly number[]) => mean(values).toFixed(3);

/** A mean and its range. */
const spread = (values: readonly number[]) =>
  `${nats(values)} (${Math.min(...values).toFixed(3)} to ${Math.max(...values).toFixed(3)})`;

function page(result: GqaConversion): string {
  const [all, ...fewer] = kvHeadsOf(result) as [number, ...number[]];
  const seeds = valuesOf(result, "none", all, ({ seed }) => seed);
  const of = (method: Method, kvHeads: number, which: Loss) =>
    valuesOf(result, method, kvHeads, (model) => model[which]);
  const errorOf = (method: Method, kvHeads: number, part: "key" | "value") => {
    const errors = valuesOf(result, method, kvHeads, ({ error }) => error?.[part] ?? Number.NaN);
    return errors.every(Number.isFinite) ? mean(errors).toFixed(2) : "";
  };
  const bytesOf = (kvHeads: number) => result.models.find((model) => model.kvHeads === kvHeads)!.cacheBytes;
  const rows = [
    [all, bytesOf(all), MEANING.none, "", "", spread(of("none", all, "loss")), spread(of("none", all, "uptrained"))],
    ...fewer.flatMap((kvHeads) =>
      METHODS.map((method) => [
        ...[
          kvHeads,
          bytesOf(kvHeads),
          MEANING[method],
          errorOf(method, kvHeads, "key"),
          errorOf(method, kvHeads, "value"),
        ],
        ...[spread(of(method, kvHeads, "loss")), spread(of(method, kvHeads, "uptrained"))],
      ]),
    ),
  ];
  const pooled = METHODS.filter((method) => method !== "random");
  /** The method with the least mean loss. */
  const bestOf = (kvHeads: number, which: Loss) =>
    [...pooled].sort((a, b) => mean(of(a, kvHeads, which)) - mean(of(b, kvHeads, which)))[0]!;
  const wins = fewer.map((kvHeads) => {
    const [now, later] = [bestOf(kvHeads, "loss"), bestOf(kvHeads, "uptrained")];
    const [lossNow, lossLater] = [nats(of(now, kvHeads, "loss")), nats(of(later, kvHeads, "uptrained"))];
    const least =
      now === later
        ? `the ${MEANING[now]} has the least loss, at once (${lossNow}) and after the further steps (${lossLater})`
        : `the least loss at once is that of the ${MEANING[now]} (${lossNow}), and after the further steps that of the ${MEANING[later]} (${lossLater})`;
    return `With ${kvHeads} of ${all} key-value heads, ${least}; random heads have ${nats(of("random", kvHeads, "uptrained"))} then.`;
  });
  const own = nats(of("none", all, "uptrained"));
  const lost = (kvHeads: number, which: Loss) =>
    mean(of(bestOf(kvHeads, which), kvHeads, which)) - mean(of("none", all, which));
  const regained = fewer.map((kvHeads) => 1 - lost(kvHeads, "uptrained") / lost(kvHeads, "loss"));
  /** In how many seeds a method has less loss than another after the further steps, for each number of heads. */
  const better = (one: Method, other: Method) =>
    fewer.map((kvHeads) => {
      const [ours, theirs] = [of(one, kvHeads, "uptrained"), of(other, kvHeads, "uptrained")];
      return `${ours.filter((loss, i) => loss < theirs[i]!).length} of ${ours.length} with ${kvHeads}`;
    });
  return `# GQA from MHA

**Question.** Ainslie et al. (2023) turn a trained model of multi-head attention into one of fewer key-value heads: one head takes the place of each group, and ${Math.round((100 * result.upSteps) / result.steps)} % of the training's steps make up for what is lost. They found the mean of the heads better than the first of them, and both better than random heads. Does that hold for a small decoder, and does the third method of \`convertToGqa\`, which finds the best common basis of a group, do better?

**Method.** Decoders of two layers (Llama, d_model 64, ${all} heads, as many key-value heads) learn sequences that repeat a segment of random tokens, for ${result.steps} steps, with ${seeds.length} seeds. They go on with a segment by the heads of [induction-formation](../induction-formation/README.md). \`convertToGqa\` of headwise/weights makes ${fewer.join(" and ")} key-value heads of the ${all} by each method ([convert.md](../../../docs/guide/convert.md#from-mha-to-gqa-or-mqa)). Every model, the unconverted one too, is then trained on for ${result.upSteps} steps on the same new sequences. headwise measures the loss of all of them in the second copy of ${result.sequences} segments of ${result.segment} tokens, from its second token on. It is 0 for a model that copies without doubt, and ${result.entropy.toFixed(2)} for one that knows the frequencies of tokens only.

**Result.** *Error*: the mean distance of a head from what takes its place, relative to its length, of keys and of values. Losses are in nats a token: the mean of the seeds, and their range.

![Loss of converted models](losses.svg)

${table([["key-value heads", "cache bytes a token", "made from", "error of keys", "of values", "loss", `after ${result.upSteps} steps`], ...rows])}

**Answer.** The models of ${all} key-value heads have ${nats(of("none", all, "loss"))} nats, and ${own} after the further steps. ${wins.join(" ")} Of what the best method loses at once, the further steps bring back ${regained.map((share) => `${Math.round(100 * share)} %`).join(" and ")}. After them, the common basis has less loss than the mean in ${better("svd", "mean").join(" and ")} key-value heads, the mean less than the first head in ${better("mean", "first").join(" and ")}, and the mean less than random heads in ${better("mean", "random").join(" and ")} (numbers of seeds).

**Limits.** Two small layers without MLPs and one task, which a few heads do all of: the seeds differ by which of these share a group. Language models were not tried. The rate of the further steps (1e-3 after a rise, falling to 0, with a new optimiser) was not tuned for any method, and other numbers of steps were not tried.

**Run.** \`npm run study -- gqa-conversion\`: with PyTorch, some five minutes of one core. \`--figures\` writes this page and the figure from result.json. The losses of PyTorch and headwise differ by at most ${result.difference} nats over the ${2 * result.models.length} models.
`;
}
