import { listText, pageOf, rowOf, spread, table } from "../page.ts";
import { mean } from "../study.ts";
import {
  bestHeads,
  casesNearBest,
  groupOf,
  guessBits,
  HEADS,
  LAYERS,
  lossOf,
  PLATEAU,
  TASKS,
  uniformScores,
  unorderedBits,
  type Verdict,
  verdictOf,
  verdicts,
} from "./facts.ts";
import { TITLES } from "./figures.ts";
import type { CopyResult, Group } from "./result.ts";

const LAYER_WORDS = { 1: "One layer", 2: "Two layers" } as const;
const KINDS = { rope: "RoPE", learned: "learned", none: "none" } as const;
const VERDICT_WORDS: Readonly<Record<Verdict, string>> = {
  helps: "more heads help",
  plateau: "a plateau",
  hurts: "more heads hurt",
  unclear: "the seeds differ too much to say",
};

export function writePage(result: CopyResult): string {
  const { setup, groups } = result;
  const { seeds, steps, rows, rate, validationRows, dModel, tokens, torch } = setup;
  const worst = Math.max(...groups.map(({ difference }) => difference));
  const most = HEADS.at(-1)!;
  return pageOf({
    name: "copy-task",
    title: "Do more heads help to copy?",
    from: rowOf("S4-13"),
    question: `A model of width ${dModel} may have ${listText(HEADS, "or")} heads, of ${dModel} to ${dModel / most} dimensions each. Do more of them help, change nothing, or hurt, where a text is to be copied?`,
    answer: `${inShort(result)}

${TASKS.flatMap((task) => LAYERS.map((layers) => `- ${answer(result, task, layers)}`)).join("\n")}

A change counts if it is more than ${PLATEAU} bits and more than two standard errors over the ${seeds.length} seeds. Models of as many layers have as many weights, and all models as many steps. That ${most} heads hurt is largely because they are too narrow for RoPE: ${withTable(result)} ([positions](#positions)). ${HEADS.at(-2)} heads were tried with RoPE only.`,
    results: `![Loss against heads](heads.svg)

${mainTable(result)}

Means of the ${seeds.length} seeds in bits, with the lowest and the highest. "Answer" is the share of attention on the place of the answer, "previous" that on the token before, each of the head in which it is largest; a head that attends everything alike has ${bits(uniformScores(setup).answer)} and ${bits(uniformScores(setup).previous)}. "Other task" is the loss on the task that the model was not trained on.

![Loss while training](curves.svg)`,
    sections: {
      "Why one layer is not enough when the distance varies": whyTwoLayers(result),
      Positions: positions(result),
    },
    method: `\`0 x1 … xn 0 x1 … xn\`: the x are different ones of ${tokens} tokens, in random order. The loss is that of the second x1 … xn, and of nothing else. Everything that is asked for follows from what was read, so the least possible loss is 0 bits. A guess takes log2(${tokens}) = ${bits(guessBits(setup))} bits.

- **${upper(TITLES.fixed)}**: n is always ${setup.longest}. The answer is always ${setup.longest} tokens before the present one, so a position is enough to find it.
- **${upper(TITLES.varied)}**: n is ${setup.shortest} to ${setup.longest}, and nothing says which. The answer is behind the place where the present token was before: only content leads to it.

Who knows which tokens are still to come, but not their order, takes ${bits(unorderedBits(setup, "fixed"))} bits in the first task and ${bits(unorderedBits(setup, "varied"))} in the second.

- Layers are attention alone, without MLPs, between a table of tokens and a head of its own, with norms before each (Llama's block; GPT-2's layer norms where positions are learned or none). A layer has 4 · ${dModel}² weights, however many heads.
- ${steps} steps of Adam on ${rows} new sequences each, with the same rate (${rate}, falling to 0 in the second half) for all. The models of one shape are trained side by side, each from its own seed.
- Validation: ${validationRows} sequences of a seed that no training has. Curves are PyTorch's. All other numbers are computed by headwise from the checkpoints, by \`forward\`, \`forwardWith\` and \`headScores\`. Its logits differ from those of PyTorch by at most ${worst.toExponential(1)}, over ${groups.length * seeds.length} models.`,
    limits: `One width, one rate and one number of steps: losses that still fall at the last step (${most} heads, one layer) would go on to fall. "Hurts" means at equal steps. The text is synthetic, and models in use have heads of mostly 64 dimensions or more, and so 32 speeds of RoPE or more: the loss from narrow heads says nothing about them.`,
    minutes: 7,
    torch,
  });
}

/** The induction circuit, in the numbers of the models that have it. */
function whyTwoLayers(result: CopyResult): string {
  const { setup } = result;
  const best = bestHeads(result, "varied", 2);
  const circuit = groupOf(result, "varied", 2, best);
  const single = groupOf(result, "varied", 1, bestHeads(result, "varied", 1));
  return `A head of the first layer knows of an earlier token which one it is and how far it is, and which token asks. It does not know the token before that. At a fixed distance that is enough: the head attends ${setup.longest} tokens back, whatever is there. When the distance varies, the answer differs from other tokens only in that it follows the earlier copy of the present token. A first layer has to write into each place which token is before it, by a head that attends the previous token, and then a head of the second layer can look for it: the two heads of an induction circuit.

The table shows them. With two layers and ${headsText(best)}, a head gives ${bits(mean(circuit.previous))} of its attention to the previous token, and one gives ${bits(mean(circuit.answer))} to the answer. Without the former, set to 0 by \`forwardWith\`, the loss rises from ${bits(mean(circuit.bits))} to ${bits(mean(circuit.bitsWithout))} bits. The best single layer, of ${headsText(single.heads)}, gives the answer ${bits(mean(single.answer))} and has ${bits(mean(single.bits))} bits: ${bits(guessBits(setup) - mean(single.bits))} better than a guess, for it can see which tokens were read and how far they are.

What is learned at one distance is that distance. Models of two layers and ${headsText(best)} that were trained on it have ${bits(mean(groupOf(result, "fixed", 2, best).otherBits))} bits where the distance varies, more than a guess: they give wrong tokens large probabilities. Those trained on varied distances have ${bits(mean(circuit.otherBits))} bits at the fixed one.`;
}

/** What most heads lose with RoPE and with a learned table, beside 4 heads, in the cases in which they hurt. */
function withTable(result: CopyResult): string {
  const most = HEADS.at(-1)!;
  const cases = TASKS.flatMap((task) => LAYERS.map((layers) => [task, layers] as const)).filter(
    ([task, layers]) =>
      verdictOf(groupOf(result, task, layers, 4).bits, groupOf(result, task, layers, most).bits) === "hurts",
  );
  const lost = ([task, layers]: (typeof cases)[number], kind: Group["positions"]) =>
    bits(lossOf(result, task, layers, most, kind) - lossOf(result, task, layers, 4, kind));
  const each = cases.map((one) => {
    return `${lost(one, "learned")} instead of ${lost(one, "rope")} (${LAYER_WORDS[one[1]].toLowerCase()}, ${TITLES[one[0]]})`;
  });
  return `with a learned table of positions, ${most} heads have more bits than 4 heads by ${listText(each)}`;
}

/** What RoPE, a learned table and no positions change. */
function positions(result: CopyResult): string {
  const most = HEADS.at(-1)!;
  const loss = (task: Group["task"], layers: number, heads: number, kind: Group["positions"] = "rope") =>
    bits(lossOf(result, task, layers, heads, kind));
  return `${positionTable(result)}

**RoPE** rotates queries and keys, so that a head can ask for a distance. A head of d dimensions has d / 2 pairs, each with a speed of its own. With ${most} heads there are ${result.setup.dModel / most / 2}: one rotates by a radian a token, and so comes back after 2π = ${(2 * Math.PI).toFixed(1)} tokens; the other rotates by a hundredth of that, and hardly differs between neighbours. Distances of ${result.setup.shortest} and of ${result.setup.longest} then look alike. This is much of what hurts, and not all of it: ${withTable(result)}.

**A learned table** of positions also reaches the values, so that a token that is attended gives its position, too. One layer of 4 heads takes that to ${loss("varied", 1, 4, "learned")} bits when the distance varies, beside ${loss("varied", 1, 4)} with RoPE. That is better than knowing the tokens and not their order (${bits(unorderedBits(result.setup, "varied"))}): the next token is the earliest one that was not repeated yet, for which no earlier token has to be found. It is not the copying that two layers do (${loss("varied", 2, 4, "learned")}).

**Without positions**, one layer sees a set of tokens without order, and cannot become better than knowing which are still to come. It has ${loss("fixed", 1, 4, "none")} and ${loss("varied", 1, 4, "none")} bits. Two layers can take the order from the causal mask, but slowly: ${loss("fixed", 2, 4, "none")} and ${loss("varied", 2, 4, "none")} bits at the last step.`;
}

const bits = (value: number) => value.toFixed(2);
const upper = (text: string) => text[0]!.toUpperCase() + text.slice(1);
const headsText = (heads: number) => (heads === 1 ? "1 head" : `${heads} heads`);

/** What the four cases have in common. */
function inShort(result: CopyResult): string {
  const cases = TASKS.flatMap((task) => LAYERS.map((layers) => verdicts(result, task, layers)));
  const count = (wanted: Verdict) => {
    const found = cases.filter((ranges) => ranges.some(({ verdict }) => verdict === wanted)).length;
    return found === 0 ? "none" : String(found);
  };
  const everywhere = HEADS.filter((heads) => casesNearBest(result, heads) === cases.length);
  const most = HEADS.at(-1)!;
  return `**Of the ${cases.length} cases below, more heads clearly help in ${count("helps")} and hurt in ${count("hurts")}.** With ${listText(everywhere)} heads the loss is within ${PLATEAU} bits of the best in all of them; with ${most}, in ${casesNearBest(result, most)}.`;
}

/** "One layer at a fixed distance: from 2 to 8 heads a plateau (0.01 to 0.04 bits); ..." */
function answer(result: CopyResult, task: Group["task"], layers: 1 | 2): string {
  const loss = (heads: number) => bits(lossOf(result, task, layers, heads));
  const parts = verdicts(result, task, layers).map(({ from, to, verdict }) => {
    const stuck = groupOf(result, task, layers, from).bits.filter((each) => each > PLATEAU).length;
    const seeds =
      verdict === "unclear"
        ? `; with ${headsText(from)}, ${stuck} of ${result.setup.seeds.length} seeds stay above ${PLATEAU}`
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
        return [TITLES[task], layers, heads, result.setup.dModel / heads, ...cells(group), bits(mean(group.otherBits))];
      }),
    ),
  );
  return table([["task", "layers", "heads", "dimensions", "bits", "answer", "previous", "other task"], ...rows]);
}

const cells = (group: Group) => [spread(group.bits, 2), bits(mean(group.answer)), bits(mean(group.previous))];

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
