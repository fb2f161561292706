import { listText, pageOf, percent, rowOf, table } from "../page.ts";
import { mean } from "../study.ts";
import { at, kindOf, LOOKING, lookingOf, neededOf } from "./facts.ts";
import { byWeight, type Head, type LookResult, MOST_STORIES, NEEDED, type StoriesResult } from "./result.ts";

export function writePage(result: StoriesResult): string {
  const { stories, looks } = result;
  const targets = looks.map((look) => look.targets);
  const sets = looks[0]!.groups[0]!.othersZero.length;
  return pageOf({
    name: "stories-heads",
    title: "Heads of the model of stories",
    from: rowOf("S4-16"),
    question: `The decoder of [model/stories](../../../model/stories/README.md) knows what "it" was, whether a verb is "was" or "were", and who had the thing. Which of its ${looks[0]!.weights.flat().length} heads resolve pronouns, agree in number and copy names, and does it need them?`,
    answer: `${summaryOf(looks)}

${looks.map((look) => `- ${answerOf(look)}`).join("\n")}

Heads are named by layer and place, 1.6 being head 6 of layer 1. Shares are of words that the model knows, ${Math.min(...targets)} to ${Math.max(...targets)} of each kind, when the outputs of heads are 0; "others" are the mean of ${sets} random sets.`,
    results: results(result),
    method: `Nothing is trained: the shipped model reads its ${stories.looked + stories.tested} held-out stories, whose combinations of words never came in training. On ${stories.looked} of them each head's weight is measured on the word that it would have to look at: the noun that a pronoun stood for, the noun that a verb agrees with, the name that is asked for, the next word of a list that is repeated. On the other ${stories.tested} (the first ${MOST_STORIES} with such a word), \`forwardWith\` of [headwise/inspect](../../../docs/guide/inspect.md#interventions) sets the output of heads to 0, or to its mean over the first half: of each head alone, of the heads that look most, together, and of ${sets} random sets of as many others, none of which is needed alone. What is counted is whether the likeliest word is the one that follows. Chance is a guess among the words of the right kind in the story.`,
    limits: `One model of one seed. Shares are of ${Math.min(...targets)} to ${Math.max(...targets)} words. That a head looks at a word does not say what it takes from there, and heads behind one that was set to 0 may need it for another reason than the look; the mean changes them less. Sets of heads were formed by weights, not by trying all sets, so a smaller set may do the same.`,
    minutes: 8,
  });
}

const nameOf = ({ layer, head }: Head) => `${layer}.${head}`;
const quoted = (looks: readonly LookResult[]) => listText(looks.map(({ name }) => `"${name}"`));

function results({ looks, kinds }: StoriesResult): string {
  const most = looks[0]!.groups.at(-1)!.count;
  const rows = looks.map((look) => {
    const [best] = byWeight(look.weights);
    const last = look.groups.at(-1)!;
    return [
      ...[look.name, `${look.targets}: ${percent(look.accuracy)}`, percent(look.chance)],
      ...[`${nameOf(best!)}: ${at(look.weights, best!).toFixed(2)}`, look.uniform.toFixed(2)],
      String(lookingOf(look).length),
      `${percent(last.zero)}, ${percent(last.mean)}`,
      `${percent(mean(last.othersZero))}, ${percent(mean(last.othersMean))}`,
    ];
  });
  const needed = looks.flatMap((look) =>
    neededOf(look).map((head) => [
      ...[look.name, nameOf(head), at(look.weights, head).toFixed(2), at(look.before, head).toFixed(2)],
      ...[percent(at(look.withoutZero, head)), percent(at(look.withoutMean, head))],
    ]),
  );
  const patterns = Object.entries(kinds).map(([name, grid]) => {
    const [head] = byWeight(grid);
    return [name, nameOf(head!), at(grid, head!).toFixed(2), mean(grid.flat()).toFixed(2)];
  });
  return `The seven looks, with the place that looks in bold and what it has to look at in italics:

${table([["look", "example", "probes"], ...looks.map(({ name, example, probes }) => [name, example, probes.join("; ")])])}

*Looking* are heads that give at least ${LOOKING} to the word; *uniform* is what a head without a preference would give.

${table([["look", "words: known", "chance", "looks most", "uniform", "looking", `without the ${most} that look most: 0, mean`, `without ${most} others: 0, mean`], ...rows])}

![Where heads look](weights.svg)

Heads that are needed alone: at least ${percent(NEEDED)} of the words are lost without them, by 0 and by their mean. *Before* is their weight from the word that is to be found on the one before it.

${table([["look", "head", "looks at the word", "before", "known without it: 0", "mean"], ...needed])}

![What is lost without one head](without.svg)

![What is known without several heads](together.svg)

Patterns that do not ask for meaning (\`headScores\`), the best head of each:

${table([["pattern", "head", "score", "mean of all heads"], ...patterns])}`;
}

/** Looks of a head that is needed alone, looks of heads that are not, and looks of none. */
function summaryOf(looks: readonly LookResult[]): string {
  const of = (kind: ReturnType<typeof kindOf>) => looks.filter((look) => kindOf(look) === kind);
  const say = (kind: ReturnType<typeof kindOf>, text: (names: string) => string) =>
    of(kind).length === 0 ? [] : [text(quoted(of(kind)))];
  return [
    ...say("needed", (names) => `**A head that looks at the word is needed alone for ${names}.**`),
    ...say("spare", (names) => `Heads look at it of which no single one is needed for ${names}.`),
    ...say("none", (names) => `None looks at it for ${names}: what the model knows there, it knows by another way.`),
  ].join(" ");
}

/** What follows from the numbers of a look. */
function answerOf(look: LookResult): string {
  const { name, accuracy, groups, weights, withoutZero } = look;
  const [looking, needed, [most]] = [lookingOf(look), neededOf(look), byWeight(weights)];
  const half = groups.find((group) => Math.max(group.zero, group.mean) <= accuracy / 2);
  const { count, zero, othersZero } = half ?? groups.at(-1)!;
  const looked =
    looking.length === 0
      ? `No head gives the word ${LOOKING}; ${nameOf(most!)} gives the most, ${at(weights, most!).toFixed(2)}.`
      : `${listText(looking.map(nameOf))} ${looking.length === 1 ? "looks" : "look"} at the word.`;
  const alone = needed.length === 0 ? " No single head is needed." : "";
  const known = [
    ["with all heads", accuracy] as const,
    ...needed.map((head) => [`without ${nameOf(head)} alone`, at(withoutZero, head)] as const),
    [`without ${count === 1 ? "the one that looks" : `the ${count} that look`} most`, zero] as const,
    [`without ${count === 1 ? "another" : `${count} others`}`, mean(othersZero)] as const,
  ];
  return `**${name}.** ${looked}${alone} Known ${known.map(([heads, share]) => `${heads}: ${percent(share)}`).join("; ")}.`;
}
