import { mean, table } from "../study.ts";
import { belowEighth, belowEighthWithinBit, costOf, groupOf, seedsWithinBit, shareOf } from "./facts.ts";
import type { Group, RanksResult } from "./study.ts";

/** README.md: text alone, so that the same result gives the same page. */
export function writePage(result: RanksResult): string {
  const { seeds, steps, groups, torch } = result;
  const worst = Math.max(...groups.map(({ difference }) => difference));
  const rotated = groups.find(({ rank }) => rank !== null)!;
  return `# How small may a latent be?

Study S4-15. \`npm run study -- latent-ranks\` makes every number and figure here; this page is written from \`result.json\`.

**Question.** Latent attention (MLA) keeps a latent of r floats and a rotated key of d_rope floats of each token, where MHA keeps 2 · d_model. At which r is its cache below an eighth of MHA's, and its loss within 1 bit?

## Answer

${answer(result)}

The cache is below an eighth where r + d_rope < d_model / 4. With d_model 64 that is 16 floats, and MQA with 8 heads takes exactly 16. headwise stores latents and rotated keys in whole groups of 8 floats each, so at these toy sizes its pages do not come below an eighth: rank 8 takes ${stored(result, "MLA 8")} bytes, exactly an eighth of MHA's ${stored(result, "MHA")}. Ranks of real models are multiples of 8.

## What was measured

![Loss against bytes](ranks.svg)

${mainTable(result)}

"Floats" and "share of MHA" are what a layer has to keep of a token, "stored" the bytes that headwise takes for it in float32 (\`planModel\`). Bits are means of seeds ${seeds[0]} to ${seeds.at(-1)}, with the lowest and the highest.

![Loss while training](curves.svg)

## Method

- The task is that of [copy-task](../copy-task/README.md) with a varied distance: \`0 x1 … xn 0 x1 … xn\`, n from 4 to 10, the loss in bits of the second x1 … xn. The least possible loss is 0 bits, a guess takes 4.95.
- Two layers of attention alone, 8 heads of 8 dimensions, width 64, ${steps} steps of Adam on 24 new sequences each, the same for all variants. In MLA a head has 8 dimensions without position and shares ${rotated.floats - rotated.rank!} rotated ones; values have 8. The checkpoints are those of Llama and of DeepSeek-V2.
- PyTorch ${torch} trains the seeds of a variant side by side, each from its own seed. Validation: 128 sequences of a seed that no training has. Curves are PyTorch's. The losses are computed by headwise from the checkpoints. Its logits differ from those of PyTorch by at most ${worst.toExponential(1)}, over ${groups.length * seeds.length} models.

## Limits

The task needs 32 tokens told apart and no more: how many floats that takes says little about a language model, whose ranks are hundreds. All variants have the same number of steps. A loss that still falls at the last one says when the circuit of the two layers forms in that seed, rather than what the rank can hold; that is why a larger rank may come out worse than a smaller one. MLA has more dimensions in its scores than MHA here (8 and the rotated ones), as it has in DeepSeek-V2.

## Run it

\`npm run study -- latent-ranks\` needs PyTorch (Debian: \`apt-get install python3-torch libopenblas0-pthread\`) and takes some six minutes of a free core. \`npm run study -- latent-ranks --figures\` writes the figures and this page from \`result.json\`, and needs neither. Weights stay in \`node_modules/.cache\`. Another machine may round differently, and its numbers then differ in the last digits, more where a curve is steep.
`;
}

/** The sentences that answer the question, from the numbers. */
export function answer(result: RanksResult): string {
  const below = belowEighth(result);
  const good = belowEighthWithinBit(result);
  const cost = (group: Group) =>
    `${signed(costOf(result, group))} bits, ${seedsWithinBit(result, group)} of ${result.seeds.length} seeds within 1`;
  const describe = (group: Group) => `rank ${group.rank} (${cost(group)})`;
  const failed = below.filter((group) => !good.includes(group));
  const mqa = groupOf(result, "MQA");
  return [
    good.length > 0
      ? `**Below an eighth of MHA's cache and within 1 bit of its loss: ${good.map(describe).join(", ")}.**`
      : "**No rank that was tried is below an eighth of MHA's cache and within 1 bit of its loss.**",
    ...(failed.length > 0 ? [`Below an eighth, but not within 1 bit: ${failed.map(describe).join(", ")}.`] : []),
    `MQA, at exactly an eighth: ${cost(mqa)}.`,
  ].join(" ");
}

const bits = (value: number) => value.toFixed(2);
const signed = (value: number) => (value < 0 ? `${bits(value)}` : `+${bits(value)}`);
const percent = (share: number) => `${(100 * share).toFixed(1)} %`;
const stored = (result: RanksResult, name: string) => groupOf(result, name).storedBytes;

function mainTable(result: RanksResult): string {
  const rows = result.groups.map((group) => [
    group.name,
    group.floats,
    percent(shareOf(result, group)),
    group.storedBytes,
    `${bits(mean(group.bits))} (${bits(Math.min(...group.bits))} to ${bits(Math.max(...group.bits))})`,
    signed(costOf(result, group)),
  ]);
  return table([["variant", "floats", "share of MHA", "stored", "bits", "beside MHA"], ...rows]);
}
