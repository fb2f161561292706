import { listText, pageOf, percent, rowOf, spread, table } from "../page.ts";
import { mean } from "../study.ts";
import { METHODS } from "./convert.ts";
import {
  bestOf,
  fewerHeads,
  type Loss,
  lossesOf,
  MEANING,
  type Method,
  ownLosses,
  regained,
  seedsBetter,
  valuesOf,
} from "./facts.ts";
import type { GqaResult } from "./result.ts";

export function writePage(result: GqaResult): string {
  const { setup, sequences, entropy, difference, models } = result;
  const { seeds, steps, upSteps, upRate, layers, dModel, heads, rows, segment, torch } = setup;
  const fewer = fewerHeads(result);
  return pageOf({
    name: "gqa-conversion",
    title: "GQA from MHA",
    from: rowOf("S4-18"),
    question: `Ainslie et al. (2023) turn a trained model of multi-head attention into one of fewer key-value heads: one head takes the place of each group, and ${percent(upSteps / steps)} of the training's steps make up for what is lost. They found the mean of the heads better than the first of them, and both better than random heads. Does that hold for a small decoder, and does the third method of \`convertToGqa\`, which finds the best common basis of a group, do better?`,
    answer: `${fewer.map((kvHeads) => winner(result, kvHeads)).join("\n")}

The model itself has ${nats(ownLosses(result, "loss"))} nats, and ${nats(ownLosses(result, "uptrained"))} after the further steps. Losses are means of ${seeds.length} seeds.

${table([
  [
    "after the further steps, less loss in how many of the seeds",
    ...fewer.map((kvHeads) => `${kvHeads} of ${heads} heads`),
  ],
  ...(
    [
      ["svd", "mean"],
      ["mean", "first"],
      ["mean", "random"],
      ["first", "random"],
    ] as const
  ).map(([one, other]) => [
    `${MEANING[one]} < ${MEANING[other]}`,
    ...fewer.map((kvHeads) => `${seedsBetter(result, one, other, kvHeads)} of ${seeds.length}`),
  ]),
])}`,
    results: `*Error*: the mean distance of a head from what takes its place, relative to its length, of keys and of values. Losses are in nats a token: the mean of the seeds, and their range.

![Loss of converted models](losses.svg)

${mainTable(result)}`,
    method: `Decoders of ${layers} layers (Llama, d_model ${dModel}, ${heads} heads, as many key-value heads) learn sequences that repeat a segment of random tokens, for ${steps} steps of ${rows} sequences. They continue a segment by the heads of [induction-formation](../induction-formation/README.md). \`convertToGqa\` of headwise/weights makes ${listText(fewer)} key-value heads of the ${heads} by each method ([convert.md](../../../docs/guide/convert.md#from-mha-to-gqa-or-mqa)). Every model, the unconverted one too, is then trained on for ${upSteps} steps on the same new sequences. headwise measures the loss of all of them in the second copy of ${sequences} segments of ${segment} tokens, from its second token on. It is 0 for a model that copies without doubt, and ${entropy.toFixed(2)} for one that knows the frequencies of tokens only. The losses of PyTorch and headwise differ by at most ${difference} nats over the ${2 * models.length} models.`,
    limits: `${layers} small layers without MLPs and one task, which a few heads do all of: the seeds differ by which of these share a group. Language models were not tried. The rate of the further steps (${upRate} after a rise, falling to 0, with a new optimiser) was not tuned for any method, and other numbers of steps were not tried.`,
    minutes: 5,
    torch,
  });
}

/** Nats: a model whose loss is so near to that of the frequencies of tokens does not copy. */
const COPYLESS = 0.1;

const nats = (values: readonly number[]) => mean(values).toFixed(3);

/** What is best with a number of key-value heads, at once and after the further steps, and what becomes of the others. */
function winner(result: GqaResult, kvHeads: number): string {
  const loss = (method: Method, which: Loss) => mean(lossesOf(result, method, kvHeads, which));
  const of = (method: Method, which: Loss) => `${loss(method, which).toFixed(3)} nats`;
  const [now, later] = [bestOf(result, kvHeads, "loss"), bestOf(result, kvHeads, "uptrained")];
  const least =
    now === later
      ? `the ${MEANING[now]} has the least loss, at once (${of(now, "loss")}) and after the further steps (${of(later, "uptrained")})`
      : `the least loss at once is that of the ${MEANING[now]} (${of(now, "loss")}), and after the further steps that of the ${MEANING[later]} (${of(later, "uptrained")})`;
  const others = METHODS.filter((method) => method !== later).map(
    (method) => `${MEANING[method]} ${loss(method, "uptrained").toFixed(3)}`,
  );
  const [first, second, third] = (["mean", "first", "random"] as const).map((method) => loss(method, "uptrained"));
  const order = first! < second! && second! < third! ? "is" : "is not";
  const copyless = METHODS.filter((method) => loss(method, "uptrained") > result.entropy - COPYLESS);
  const lost =
    copyless.length === 0
      ? ""
      : ` These do not copy (their loss is within ${COPYLESS} of what the frequencies of tokens give): ${copyless.map((method) => MEANING[method]).join(", ")}.`;
  return `- **With ${kvHeads} of ${result.setup.heads} key-value heads, ${least}.** The steps bring back ${percent(regained(result, kvHeads))} of what the best loses at once. The others end at: ${others.join(", ")}. This ${order} the order that the paper found.${lost}`;
}

function mainTable(result: GqaResult): string {
  const { setup, models } = result;
  const errorOf = (method: Method, kvHeads: number, part: "key" | "value") => {
    const errors = valuesOf(result, method, kvHeads, ({ error }) => error?.[part] ?? Number.NaN);
    return errors.every(Number.isFinite) ? mean(errors).toFixed(2) : "";
  };
  const row = (method: Method, kvHeads: number) => [
    kvHeads,
    models.find((model) => model.kvHeads === kvHeads)!.cacheBytes,
    MEANING[method],
    ...[errorOf(method, kvHeads, "key"), errorOf(method, kvHeads, "value")],
    ...(["loss", "uptrained"] as const).map((which) => spread(lossesOf(result, method, kvHeads, which), 3)),
  ];
  return table([
    [
      ...["key-value heads", "cache bytes a token", "made from", "error of keys", "of values", "loss"],
      `after ${setup.upSteps} steps`,
    ],
    row("none", setup.heads),
    ...fewerHeads(result).flatMap((kvHeads) => METHODS.map((method) => row(method, kvHeads))),
  ]);
}
