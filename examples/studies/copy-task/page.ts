import { mean, table } from "../study.ts";
import { GUESS, groupOf, HEADS, LAYERS, PLATEAU, TASKS, unorderedBits, type Verdict, verdicts } from "./facts.ts";
import { TITLES } from "./figures.ts";
import type { CopyResult, Group, Task } from "./study.ts";

const LAYER_WORDS = { 1: "One layer", 2: "Two layers" } as const;
const KINDS = { rope: "RoPE", learned: "learned", none: "none" } as const;
const VERDICT_WORDS: Readonly<Record<Verdict, string>> = {
  helps: "more heads help",
  plateau: "a plateau",
  hurts: "more heads hurt",
  unclear: "unclear, as the seeds differ more",
};

/** README.md: text alone, so that the same result gives the same page. */
export function writePage(result: CopyResult): string {
  const { seeds, steps, groups, torch } = result;
  const worst = Math.max(...groups.map(({ difference }) => difference));
  return `# Do more heads help to copy?

Study S4-13. \`npm run study -- copy-task\` makes every number and figure here; this page is written from \`result.json\`.

**Question.** A model of width 64 may have 1, 2, 4, 8 or 16 heads, of 64 to 4 dimensions each. Do more of them help, change nothing, or hurt, where a text is to be copied?

## Answer

${TASKS.flatMap((task) => LAYERS.map((layers) => `- ${answer(result, task, layers)}`)).join("\n")}

A change counts if it is more than ${PLATEAU} bits and more than two standard errors over the ${seeds.length} seeds.

## The task

\`0 x1 … xn 0 x1 … xn\`: the x are different ones of 31 tokens, in random order. The loss is that of the second x1 … xn, and of nothing else. Everything that is asked for can be known, so the floor is 0 bits. A guess takes log2(31) = ${bits(GUESS)} bits.

- **${upper(TITLES.fixed)}**: n is always 10. The answer is always 10 tokens before the present one, so a position is enough to find it.
- **${upper(TITLES.varied)}**: n is 4 to 10, and nothing says which. The answer is behind the place where the present token was before: only content leads to it.

Who knows which tokens are still to come, but not their order, takes ${bits(unorderedBits("fixed"))} bits in the first task and ${bits(unorderedBits("varied"))} in the second.

## What was measured

![Loss against heads](heads.svg)

${mainTable(result)}

Means of seeds ${seeds[0]} to ${seeds.at(-1)} in bits, with the lowest and the highest. "Answer" is the share of attention on the place of the answer, "previous" that on the token before, each of the head in which it is largest; a head that attends everything alike has ${bits(uniformAnswer())} and ${bits(uniformPrevious())}. "Other task" is the loss on the task that the model was not trained on.

![Loss while training](curves.svg)

## Why one layer is not enough when the distance varies

A head of the first layer knows three things of an earlier token: which one it is, how far it is, and which token asks. It does not know what stood before it. At a fixed distance that is enough: the head attends ${groupDistance} tokens back, whatever is there. When the distance varies, the answer differs from the other tokens only in standing behind the earlier copy of the present token. A first layer has to write "behind which token am I" into each place, by a head that attends the previous token, before a head of a second layer can look for it: the two heads of an induction circuit. The table shows them: with two layers and ${best(result, "varied", 2)} heads, one head gives ${share(result, "varied", 2, "previous")} of its attention to the previous token, and another ${share(result, "varied", 2, "answer")} to the answer. The best single layer gives the answer ${share(result, "varied", 1, "answer")}.

What one layer still can do is to gather which tokens were read, and to prefer those that are far away. That is worth ${bits(GUESS - bestBits(result, "varied", 1))} bits over a guess.

What is learned of one distance is a position and no copying: two layers with ${best(result, "fixed", 2)} heads that were trained on it have ${bits(mean(groupOf(result, "fixed", 2, best(result, "fixed", 2)).otherBits))} bits where the distance varies.

## Positions

${positionTable(result)}

RoPE rotates queries and keys, so a head can ask for a distance. A learned table tells a head both positions, and also tells the values where they come from. Without positions, one layer sees a set of tokens without order, and no more than that set can be learned; two layers can take the order from the causal mask, but slowly.

With 16 heads of 4 dimensions, a head has two pairs of components to rotate, which is too coarse to name one distance. A learned table does not mend it: ${bits(mean(groupOf(result, "fixed", 1, 16, "learned").bits))} bits beside ${bits(mean(groupOf(result, "fixed", 1, 16).bits))} with RoPE, for one layer at a fixed distance. The scores of a head have no more than 4 dimensions, and it takes more to tell each position from every other.

## Method

- Layers are attention alone, without MLPs, between a table of tokens and a head of its own, with norms before each (Llama's block; GPT-2's layer norms where positions are learned or none). All have the same number of weights, however many heads: 4 · 64² in a layer.
- ${steps} steps of Adam on 24 new sequences each, with the same rate (4e-3, falling to 0 in the second half) for all. PyTorch ${torch}; the models of one shape are trained side by side, each from its own seed.
- Validation: 128 sequences of a seed that no training has. Curves are PyTorch's. All other numbers are computed by headwise from the checkpoints, by \`forward\`, \`forwardWith\` and \`headScores\`. Its logits differ from those of PyTorch by at most ${worst.toExponential(1)}, over ${groups.length * seeds.length} models.

## Limits

One size, one rate and one number of steps: curves that still fall (16 heads, one layer) would go on to fall. "Hurts" means at equal steps. The text is synthetic, and 4 dimensions are fewer than any head in use has.

## Run it

\`npm run study -- copy-task\` needs PyTorch (Debian: \`apt-get install python3-torch libopenblas0-pthread\`) and takes some ten minutes of one core. \`npm run study -- copy-task --figures\` writes the figures and this page from \`result.json\`, and needs neither. Weights stay in \`node_modules/.cache\`. Another machine may round differently, and its numbers then differ in the last digits, more where a curve is steep.
`;
}

const groupDistance = 10;
const bits = (value: number) => value.toFixed(2);
const upper = (text: string) => text[0]!.toUpperCase() + text.slice(1);

/** The number of heads with the lowest loss. */
function best(result: CopyResult, task: Task, layers: number): number {
  const lossOf = (heads: number) => mean(groupOf(result, task, layers, heads).bits);
  return HEADS.reduce((found, heads) => (lossOf(heads) < lossOf(found) ? heads : found));
}

const bestBits = (result: CopyResult, task: Task, layers: number) =>
  mean(groupOf(result, task, layers, best(result, task, layers)).bits);

function share(result: CopyResult, task: Task, layers: number, of: "answer" | "previous"): string {
  return bits(mean(groupOf(result, task, layers, best(result, task, layers))[of]));
}

/** "One layer at a fixed distance: from 1 to 2 heads, more heads help (0.50 to 0.01 bits); ..." */
function answer(result: CopyResult, task: Task, layers: 1 | 2): string {
  const loss = (heads: number) => bits(mean(groupOf(result, task, layers, heads).bits));
  const parts = verdicts(result, task, layers).map(
    ({ from, to, verdict }) => `from ${from} to ${to}, ${VERDICT_WORDS[verdict]} (${loss(from)} to ${loss(to)} bits)`,
  );
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
