import { drawFigure } from "../chart.ts";
import { drawHeatMaps } from "../heat-map.ts";
import { mean, table } from "../study.ts";
import { byWeight, type Grid, type Head, type LookResult, NEEDED, type StoriesHeads } from "./result.ts";

/** A head looks at a place if it gives it this much. */
const LOOKS = 0.5;

export function writeStoriesHeads(result: StoriesHeads): Record<string, string> {
  return {
    "README.md": page(result),
    "weights.svg": drawWeights(result),
    "without.svg": drawWithout(result),
    "together.svg": drawTogether(result),
  };
}

const percent = (share: number) => `${Math.round(100 * share)} %`;
const at = (grid: Grid, { layer, head }: Head) => grid[layer]![head]!;
const nameOf = ({ layer, head }: Head) => `${layer}.${head}`;

/** Heads that look where they have to, those that look most first. */
const lookingOf = ({ weights }: LookResult) => byWeight(weights).filter((head) => at(weights, head) >= LOOKS);

/** Heads without which alone much less is known, by 0 and by the mean; those that cost most first. */
const neededOf = ({ weights, accuracy, withoutZero, withoutMean }: LookResult) =>
  byWeight(weights)
    .filter((head) => accuracy - Math.max(at(withoutZero, head), at(withoutMean, head)) >= NEEDED)
    .sort((a, b) => at(withoutZero, a) - at(withoutZero, b));

function drawWeights({ looks }: StoriesHeads): string {
  return drawHeatMaps({
    title: "Where the heads of the model of stories look",
    description: "The mean weight of each head on the words that it would have to look at, for each kind of word.",
    maps: looks.map(({ name, weights }) => ({ title: name, values: weights })),
    most: 1,
    print: (value) => value.toFixed(2),
  });
}

function drawWithout({ looks }: StoriesHeads): string {
  return drawHeatMaps({
    title: "What is lost without one head",
    description: "Percent of words of each kind that are no longer known when the output of the head is set to 0.",
    maps: looks.map(({ name, accuracy, withoutZero }) => ({
      title: name,
      values: withoutZero.map((row) => row.map((share) => Math.max(0, Math.round(100 * (accuracy - share))))),
    })),
    most: 100,
    print: (value) => String(value),
  });
}

function drawTogether({ looks }: StoriesHeads): string {
  return drawFigure({
    title: "What is known without several heads",
    description:
      "Share of words that are known without the heads that look most, and without as many random others. Bands are the range of the sets.",
    panels: looks.map(({ name, accuracy, chance, groups }) => {
      const line = (title: string, of: (group: LookResult["groups"][number]) => readonly number[]) => {
        const points = groups.map((group) => {
          const shares = of(group);
          return { x: group.count, y: mean(shares), low: Math.min(...shares), high: Math.max(...shares) };
        });
        return { name: title, points: [{ x: 0, y: accuracy }, ...points] };
      };
      return {
        title: name,
        x: { title: "heads that give nothing", ticks: [0, 2, 4, 6, 8] },
        y: { title: "share of words", ticks: [0, 0.25, 0.5, 0.75, 1] },
        lines: [
          line("heads that look most, set to 0", ({ zero }) => [zero]),
          line("set to their means", ({ mean }) => [mean]),
          line("random others, set to 0", ({ othersZero }) => othersZero),
          line("others, set to their means", ({ othersMean }) => othersMean),
        ],
        marks: [{ name: "chance", y: chance }],
      };
    }),
  });
}

function page(result: StoriesHeads): string {
  const { stories, looks, kinds } = result;
  const rows = looks.map((look) => {
    const [best] = byWeight(look.weights);
    const last = look.groups.at(-1)!;
    return [
      look.name,
      `${look.targets}: ${percent(look.accuracy)}`,
      percent(look.chance),
      `${nameOf(best!)}: ${at(look.weights, best!).toFixed(2)}`,
      look.uniform.toFixed(2),
      String(lookingOf(look).length),
      `${percent(last.zero)}, ${percent(last.mean)}`,
      `${percent(mean(last.othersZero))}, ${percent(mean(last.othersMean))}`,
    ];
  });
  const most = looks[0]!.groups.at(-1)!.count;
  const needed = looks.flatMap((look) =>
    neededOf(look).map((head) => [
      look.name,
      nameOf(head),
      at(look.weights, head).toFixed(2),
      at(look.before, head).toFixed(2),
      percent(at(look.withoutZero, head)),
      percent(at(look.withoutMean, head)),
    ]),
  );
  const grids = Object.entries(kinds).map(([name, grid]) => {
    const [head] = byWeight(grid);
    return [name, nameOf(head!), at(grid, head!).toFixed(2), mean(grid.flat()).toFixed(2)];
  });
  const groups = looks[0]!.groups;
  return `# Heads of the model of stories

**Question.** The decoder of [model/stories](../../../model/stories/README.md) knows what "it" was, whether a verb is "was" or "were", and who had the thing. Which of its 32 heads resolve pronouns, agree in number and copy names, and does it need them?

**Method.** Nothing is trained: the shipped model reads its ${stories.looked + stories.tested} held-out stories, whose combinations of words never came in training. On ${stories.looked} of them each head's weight is measured on the word that it would have to look at: the noun that a pronoun stood for, the noun that a verb agrees with, the name that is asked for, the next word of a list that is repeated. On the other ${stories.tested} (the first 60 with such a word), \`forwardWith\` of [headwise/inspect](../../../docs/guide/heads.md) sets the output of heads to 0, or to its mean over the first half: of each head alone, of the heads that look most, together, and of ${groups[0]!.othersZero.length} random sets of as many others, none of which is needed alone. What is counted is whether the likeliest word is the one that follows. Chance is a guess among the words of the right kind in the story.

The seven looks, with the place that looks in bold and what it has to look at in italics:

${table([["look", "example", "probes"], ...looks.map(({ name, example, probes }) => [name, example, probes.join("; ")])])}

**Result.** Heads are named by layer and place, 1.6 being head 6 of layer 1. *Looking* are those that give at least ${LOOKS} to the word; *uniform* is what a head without a preference would give.

${table([["look", "words: known", "chance", "looks most", "uniform", "looking", `without the ${most} that look most: 0, mean`, `without ${most} others: 0, mean`], ...rows])}

![Where heads look](weights.svg)

Heads that are needed alone: at least ${Math.round(100 * NEEDED)} % of the words are lost without them, by 0 and by their mean. *Before* is their weight from the word that is to be found on the one before it.

${table([["look", "head", "looks at the word", "before", "known without it: 0", "mean"], ...needed])}

![What is lost without one head](without.svg)

![What is known without several heads](together.svg)

Patterns that do not ask for meaning (\`headScores\`), the best head of each:

${table([["pattern", "head", "score", "mean of all heads"], ...grids])}

**Answer.** ${summaryOf(looks)}

${looks.map((look) => `- ${answerOf(look)}`).join("\n")}

**Limits.** One model of one seed. Shares are of ${Math.min(...looks.map(({ targets }) => targets))} to ${Math.max(...looks.map(({ targets }) => targets))} words. That a head looks at a word does not tell what it takes from there, and a head that was set to 0 may be missed by heads behind it for another reason than the look; the mean changes them less. Sets of heads were formed by weights, not by trying all sets, so a smaller set may do the same.

**Run.** \`npm run study -- stories-heads\`: five to ten minutes of one core, without PyTorch. \`--figures\` writes this page and the figures from result.json.
`;
}

/** Looks of one head that is needed, looks that heads share, and looks of none. */
function summaryOf(looks: readonly LookResult[]): string {
  const kindOf = (look: LookResult) => {
    const [looking, needed] = [lookingOf(look), neededOf(look)].map((heads) => heads.map(nameOf));
    if (looking!.length === 0) return "none";
    return looking!.some((head) => needed!.includes(head)) ? "needed" : "shared";
  };
  const of = (kind: string) =>
    looks.flatMap((look) => (kindOf(look) === kind ? [`"${look.name}"`] : [])).join(", ") || "no look";
  return `One head looks at the word and is needed alone for ${of("needed")}. Several look at it and stand in for each other for ${of("shared")}. None looks at it for ${of("none")}.`;
}

/** What follows from the numbers of a look. */
function answerOf(look: LookResult): string {
  const { name, accuracy, groups, weights, withoutZero } = look;
  const [looking, needed, [most]] = [lookingOf(look), neededOf(look), byWeight(weights)];
  const half = groups.find((group) => Math.max(group.zero, group.mean) <= accuracy / 2);
  const { count, zero, othersZero } = half ?? groups.at(-1)!;
  const looked =
    looking.length === 0
      ? `No head gives the word ${LOOKS}; ${nameOf(most!)} gives the most, ${at(weights, most!).toFixed(2)}.`
      : `${looking.map(nameOf).join(", ")} ${looking.length === 1 ? "looks" : "look"} at the word.`;
  const known = [
    ...needed.map((head) => [`${nameOf(head)} alone`, at(withoutZero, head)] as const),
    [count === 1 ? "the one that looks most" : `the ${count} that look most`, zero] as const,
    [count === 1 ? "another" : `${count} others`, mean(othersZero)] as const,
  ];
  const alone = needed.length === 0 ? " No single head is needed." : "";
  return `**${name}.** ${looked}${alone} Known ${known.map(([heads, share]) => `without ${heads}: ${percent(share)}`).join("; ")}.`;
}
