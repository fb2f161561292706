import { guessBits } from "../copy-task/facts.ts";
import { pageOf, rowOf, spread, table } from "../page.ts";
import { answer, belowEighth, costOf, groupOf, shareOf, signedBits } from "./facts.ts";
import type { RanksResult } from "./result.ts";

export function writePage(result: RanksResult): string {
  const { setup, groups } = result;
  const { seeds, steps, rows, validationRows, dModel, tokens, shortest, longest, torch } = setup;
  const worst = Math.max(...groups.map(({ difference }) => difference));
  const mha = groupOf(result, "MHA");
  const latents = groups.filter(({ rank }) => rank !== null);
  const rotated = latents[0]!.floats - latents[0]!.rank!;
  const headDim = dModel / mha.heads;
  const largest = belowEighth(result).at(-1)!;
  const least = Math.min(...latents.map(({ storedBytes }) => storedBytes));
  return pageOf({
    name: "latent-ranks",
    title: "How small may a latent be?",
    from: rowOf("S4-15"),
    question:
      "Latent attention (MLA) keeps a latent of r floats and a rotated key of d_rope floats of each token, where MHA keeps 2 · d_model. At which r is its cache below an eighth of MHA's, and its loss within 1 bit?",
    answer: `${answer(result)} Losses are the means of ${seeds.length} seeds, beside ${spread(mha.bits, 2)} bits of MHA.

The cache is below an eighth where r + d_rope < d_model / 4, which with d_model ${dModel} is ${dModel / 4} floats: with d_rope ${rotated}, up to rank ${largest.rank} of those that were tried. That counts floats. headwise stores latents and rotated keys in whole groups of 8 floats each, so that at this size its own pages are not below an eighth: the smallest take ${least} bytes a token and layer, those of the largest rank below an eighth ${largest.storedBytes}, and MHA's ${mha.storedBytes}. Ranks of models in use are multiples of 8.`,
    results: `![Loss against bytes](ranks.svg)

${mainTable(result)}

"Floats" and "share of MHA" are what a layer has to keep of a token, "stored" the bytes that headwise takes for it in float32 (\`planModel\`). Bits are means of the ${seeds.length} seeds, with the lowest and the highest.

![Loss while training](curves.svg)`,
    method: `- The task is that of [copy-task](../copy-task/README.md#method) with a varied distance: \`0 x1 … xn 0 x1 … xn\`, n from ${shortest} to ${longest}, the loss in bits of the second x1 … xn. The least possible loss is 0 bits, a guess takes ${guessBits(setup).toFixed(2)}.
- ${mha.layers} layers of attention alone, ${mha.heads} heads of ${headDim} dimensions, width ${dModel}, ${steps} steps of Adam on ${rows} new sequences each, the same for all variants. In MLA a head has ${headDim} dimensions without position and shares ${rotated} rotated ones; values have ${headDim}. The checkpoints are those of Llama and of DeepSeek-V2.
- The seeds of a variant are trained side by side, each from its own seed. Validation: ${validationRows} sequences of a seed that no training has. Curves are PyTorch's. The losses are computed by headwise from the checkpoints. Its logits differ from those of PyTorch by at most ${worst.toExponential(1)}, over ${groups.length * seeds.length} models.`,
    limits: `One task, in which ${tokens + 1} tokens have to be distinguished and no more: how many floats that takes says little about a language model, whose ranks are hundreds. All variants have the same number of steps. A loss that still falls at the last one says when the circuit of the two layers forms in that seed, rather than what the rank can hold; that is why a larger rank may come out worse than a smaller one. MLA has more dimensions in its scores than MHA here (${headDim} and the rotated ones), as it has in DeepSeek-V2.`,
    minutes: 6,
    torch,
  });
}

function mainTable(result: RanksResult): string {
  const rows = result.groups.map((group) => [
    group.name,
    group.floats,
    `${(100 * shareOf(result, group)).toFixed(1)} %`,
    group.storedBytes,
    spread(group.bits, 2),
    signedBits(costOf(result, group)),
  ]);
  return table([["variant", "floats", "share of MHA", "stored", "bits", "beside MHA"], ...rows]);
}
