import { mean, table } from "../study.ts";
import {
  bestHeads,
  casesNearBest,
  GUESS,
  groupOf,
  HEADS,
  LAYERS,
  LENGTHS,
  lossOf,
  PLATEAU,
  TASKS,
  unorderedBits,
  type Verdict,
  verdicts,
} from "./facts.ts";
import { TITLES } from "./figures.ts";
import type { CopyResult, Group, Task } from "./study.ts";

const LAYER_WORDS = { 1: "One layer", 2: "Two layers" } as const;
const KINDS = { rope: "RoPE", learned: "learned", none: "none" } as const;
const VERDICT_WORDS: Readonly<Record<Verdict, string>> = {
  helps: "more heads help",
  plateau: "a plateau",
  hurts: "more heads hurt",
  unclear: "the seeds differ too much to say",
};

/** README.md: text alone, so that the same result gives the same page. */
export function writePage(result: CopyResult): string {
  const { seeds, steps, groups, torch } = result;
  const worst = Math.max(...groups.map(({ difference }) => difference));
  const best = bestHeads(result, "varied", 2);
  const circuit = groupOf(result, "varied", 2, best);
  const single = groupOf(result, "varied", 1, bestHeads(result, "varied", 1));
  return `# Do more heads help to copy?

Study S4-13. \`npm run study -- copy-task\` makes every number and figure here; this page is written from \`result.json\`.

**Question.** A model of width 64 may have 1, 2, 4, 8 or 16 heads, of 64 to 4 dimensions each. Do more of them help, change nothing, or hurt, where a text is to be copied?

## Answer

${inShort(result)}

${TASKS.flatMap((task) => LAYERS.map((layers) => `- ${answer(result, task, layers)}`)).join("\n")}

A change counts if it is more than ${PLATEAU} bits and more than two standard errors over the ${seeds.length} seeds. Where more heads hurt, they are too narrow for RoPE: see [positions](#positions).

## The task

\`0 x1 … xn 0 x1 … xn\`: the x are different ones of 31 tokens, in random order. The loss is that of the second x1 … xn, and of nothing else. Everything that is asked for can be known, so the least possible loss is 0 bits. A guess takes log2(31) = ${bits(GUESS)} bits.

- **${upper(TITLES.fixed)}**: n is always ${LENGTHS.fixed[0]}. The answer is always ${LENGTHS.fixed[0]} tokens before the present one, so a position is enough to find it.
- **${upper(TITLES.varied)}**: n is ${LENGTHS.varied[0]} to ${LENGTHS.varied.at(-1)}, and nothing says which. The answer is behind the place where the present token was before: only content leads to it.

Who knows which tokens are still to come, but not their order, takes ${bits(unorderedBits("fixed"))} bits in the first task and ${bits(unorderedBits("varied"))} in the second.

## What was measured

![Loss against heads](heads.svg)

${mainTable(result)}

Means of seeds ${seeds[0]} to ${seeds.at(-1)} in bits, with the lowest and the highest. "Answer" is the share of attention on the place of the answer, "previous" that on the token before, each of the head in which it is largest; a head that attends everything alike has ${bits(uniformAnswer())} and ${bits(uniformPrevious())}. "Other task" is the loss on the task that the model was not trained on.

![Loss while training](curves.svg)

## Why one layer is not enough when the distance varies

A head of the first layer knows of an earlier token which one it is and how far it is, and which token asks. It does not know the token before that. At a fixed distance that is enough: the head attends ${LENGTHS.fixed[0]} tokens back, whatever is there. When the distance varies, the answer differs from other tokens only in that it follows the earlier copy of the present token. A first layer has to write into each place which token is before it, by a head that attends the previous token, and then a head of the second layer can look for it: the two heads of an induction circuit.

The table shows them. With two layers and ${headsText(best)}, a head gives ${bits(mean(circuit.previous))} of its attention to the previous token, and one gives ${bits(mean(circuit.answer))} to the answer. Without the former, set to 0 by \`forwardWith\`, the loss rises from ${bits(mean(circuit.bits))} to ${bits(mean(circuit.bitsWithout))} bits. The best single layer, of ${headsText(single.heads)}, gives the answer ${bits(mean(single.answer))} and has ${bits(mean(single.bits))} bits: ${bits(GUESS - mean(single.bits))} better than a guess, for it can see which tokens were read and how far they are.

What is learned at one distance is that distance. Models of two layers and ${headsText(best)} that were trained on it have ${bits(mean(groupOf(result, "fixed", 2, best).otherBits))} bits where the distance varies, more than a guess: they are sure of wrong tokens. Those trained on varied distances have ${bits(mean(circuit.otherBits))} bits at the fixed one.

## Positions

${positionTable(result)}

**RoPE** rotates queries and keys, so that a head can ask for a distance. A head of d dimensions has d / 2 pairs, each with a speed of its own. With 16 heads there are two: one turns by a radian a token, and so is back after 2π = 6.3 tokens; the other turns by a hundredth, and hardly differs between neighbours. Distances of 4 and of 10 then look alike. That is what hurts, and not the width as such: with a learned table, 16 heads have ${bits(lossOf(result, "varied", 2, 16, "learned"))} bits instead of ${bits(lossOf(result, "varied", 2, 16))} (two layers, varied distance) and ${bits(lossOf(result, "fixed", 1, 16, "learned"))} instead of ${bits(lossOf(result, "fixed", 1, 16))} (one layer, fixed).

**A learned table** of positions also reaches the values, so that a token that is attended gives its position, too. One layer of 4 heads takes that to ${bits(lossOf(result, "varied", 1, 4, "learned"))} bits when the distance varies, beside ${bits(lossOf(result, "varied", 1, 4))} with RoPE. That is better than knowing the tokens and not their order (${bits(unorderedBits("varied"))}): the next token is the earliest one that was not said again, for which no earlier token has to be found. It is not the copying that two layers do (${bits(lossOf(result, "varied", 2, 4, "learned"))}).

**Without positions**, one layer sees a set of tokens without order, and cannot become better than knowing which are still to come. It has ${bits(lossOf(result, "fixed", 1, 4, "none"))} and ${bits(lossOf(result, "varied", 1, 4, "none"))} bits. Two layers can take the order from the causal mask, but slowly: ${bits(lossOf(result, "fixed", 2, 4, "none"))} and ${bits(lossOf(result, "varied", 2, 4, "none"))} bits at the last step.

## Method

- Layers are attention alone, without MLPs, between a table of tokens and a head of its own, with norms before each (Llama's block; GPT-2's layer norms where positions are learned or none). All have the same number of weights, however many heads: 4 · 64² in a layer.
- ${steps} steps of Adam on 24 new sequences each, with the same rate (4e-3, falling to 0 in the second half) for all. PyTorch ${torch}; the models of one shape are trained side by side, each from its own seed.
- Validation: 128 sequences of a seed that no training has. Curves are PyTorch's. All other numbers are computed by headwise from the checkpoints, by \`forward\`, \`forwardWith\` and \`headScores\`. Its logits differ from those of PyTorch by at most ${worst.toExponential(1)}, over ${groups.length * seeds.length} models.

## Limits

One size, one rate and one number of steps: curves that still fall (16 heads, one layer) would go on to fall. "Hurts" means at equal steps. The text is synthetic, and heads in use have mostly 64 dimensions or more, and so 32 speeds of RoPE or more.

## Run it

\`npm run study -- copy-task\` needs PyTorch (Debian: \`apt-get install python3-torch libopenblas0-pthread\`) and takes some six minutes of a free core. \`npm run study -- copy-task --figures\` writes the figures and this page from \`result.json\`, and needs neither. Weights stay in \`node_modules/.cache\`. Another machine may round differently, and its numbers then differ in the last digits, more where a curve is steep.
`;
}

const bits = (value: number) => value.toFixed(2);
const upper = (text: string) => text[0]!.toUpperCase() + text.slice(1);
const headsText = (heads: number) => (heads === 1 ? "1 head" : `${heads} heads`);
const listText = (items: readonly (string | number)[]) => items.join(", ").replace(/, ([^,]*)$/, " and $1");

/** What the four cases have in common. */
function inShort(result: CopyResult): string {
  const cases = TASKS.flatMap((task) => LAYERS.map((layers) => verdicts(result, task, layers)));
  const count = (wanted: Verdict) => cases.filter((ranges) => ranges.some(({ verdict }) => verdict === wanted)).length;
  const everywhere = HEADS.filter((heads) => casesNearBest(result, heads) === cases.length);
  const most = HEADS.at(-1)!;
  return `Of four cases, more heads clearly help in ${count("helps")} and hurt in ${count("hurts")}. With ${listText(everywhere)} heads the loss is within ${PLATEAU} bits of the best in all four; with ${most}, in ${casesNearBest(result, most)}.`;
}

/** "One layer at a fixed distance: from 2 to 8 heads a plateau (0.01 to 0.04 bits); ..." */
function answer(result: CopyResult, task: Task, layers: 1 | 2): string {
  const loss = (heads: number) => bits(lossOf(result, task, layers, heads));
  const parts = verdicts(result, task, layers).map(({ from, to, verdict }) => {
    const stuck = groupOf(result, task, layers, from).bits.filter((each) => each > PLATEAU).length;
    const seeds =
      verdict === "unclear"
        ? `; with ${headsText(from)}, ${stuck} of ${result.seeds.length} seeds stay above ${PLATEAU}`
        : "";
    return `from ${from} to ${headsText(to)} ${VERDICT_WORDS[verdict]} (${loss(from)} to ${loss(to)} bits${seeds})`;
  });
  return `**${LAYER_WORDS[layers]}, ${TITLES[task]}**: ${parts.join("; ")}.`;
}

function mainTable(result: CopyResult): string {
  const rows = TASKS.flatMap((task) =>
    LAYERS.flatMap((layers) =>
      HEADS.map((heads) => {
        const group = groupOf(result, task, layers, heads);
        return [TITLES[task], layers, heads, 64 / heads, ...cells(group), bits(mean(group.otherBits))];
      }),
    ),
  );
  return table([["task", "layers", "heads", "dimensions", "bits", "answer", "previous", "other task"], ...rows]);
}

const cells = (group: Group) => [
  `${bits(mean(group.bits))} (${bits(Math.min(...group.bits))} to ${bits(Math.max(...group.bits))})`,
  bits(mean(group.answer)),
  bits(mean(group.previous)),
];

function positionTable(result: CopyResult): string {
  const rows = TASKS.flatMap((task) =>
    LAYERS.flatMap((layers) =>
      ([4, 16] as const).flatMap((heads) =>
        (["rope", "learned", "none"] as const)
          .filter((kind) => heads === 4 || kind !== "none")
          .map((kind) => [
            TITLES[task],
            layers,
            heads,
            KINDS[kind],
            ...cells(groupOf(result, task, layers, heads, kind)),
          ]),
      ),
    ),
  );
  return table([["task", "layers", "heads", "positions", "bits", "answer", "previous"], ...rows]);
}

/** Scores of a head that gives 1 / (i + 1) to each of its i + 1 keys, in a text of 21 tokens of which 10 are asked for. */
const uniformAnswer = () => mean(Array.from({ length: 10 }, (_, i) => 1 / (i + 12)));
const uniformPrevious = () => mean(Array.from({ length: 21 }, (_, i) => (i === 0 ? 0 : 1 / (i + 1))));
