// What is before the first layer of a model and behind the last one: formats, and reading it.

import type { LinearPlace, PackedLinear } from "../linear/linear.ts";
import { stagedFloats } from "../linear/pack.ts";
import type { Decoder } from "../models/decoder/read-spec.ts";
import { type BlockContext, loadNorm, ownBlock } from "./load-blocks.ts";
import type { ModelWeights } from "./model.ts";
import type { PackedNorm, PackedTable } from "./packed.ts";
import type { ModelPlaces, NormPlace } from "./places.ts";

/** Floats of staging that the largest matrix outside attention needs. */
export function mostStaged({ spec: { dModel, vocabSize, embed, blocks } }: Decoder): number {
  const dims = blocks.flatMap(({ mlp }) =>
    mlp?.kind === "moe" ? [mlp.expert.dim, mlp.shared?.mlp.dim ?? 1, mlp.experts] : [mlp?.dim ?? 1],
  );
  const sizes = [
    { n: vocabSize, k: embed.dim },
    { n: Math.max(embed.positions?.rows ?? 1, embed.types ?? 1), k: dModel },
    { n: dModel, k: Math.max(embed.dim, ...(embed.channels ? [3 * embed.channels, 3 * dModel] : [])) },
    { n: embed.dim, k: dModel },
    ...dims.flatMap((dim) => [
      { n: dim, k: dModel },
      { n: dModel, k: dim },
    ]),
  ];
  return Math.max(...sizes.map(stagedFloats));
}

export type Ends = Omit<ModelWeights, "blocks" | "mode">;

/** Reads what is before the first layer and behind the last one. An encoder without a table of tokens has that of `decoder`. */
export async function loadEnds(
  context: BlockContext,
  half: Decoder,
  { ends, endsBytes }: ModelPlaces,
  root: string,
  decoder: Ends | undefined,
): Promise<Ends> {
  const { spec, names } = half;
  const { reader, staging } = context;
  const base = ownBlock(context, endsBytes);
  const at = (name: string) => `${root}${name}`;
  const linear = async (name: string, to: LinearPlace | undefined): Promise<PackedLinear | undefined> =>
    to && reader.linear(base, to, name, staging, "out-in");
  const norm = async (name: string, to: NormPlace | undefined): Promise<PackedNorm | undefined> =>
    to && loadNorm(context, at(name), to, base);
  const tokens = decoder ? undefined : ((await linear(at(names.embed), ends.embed)) as PackedLinear);
  const head = async (tokens: PackedLinear) =>
    (await linear(names.head, ends.head)) ?? (await withBias(context, tokens, names.headBias ?? `${names.head}.bias`));
  const positions = await linear(at(names.positions), ends.positions);
  return {
    embed: tokens ? asTable(tokens, spec.vocabSize) : (decoder as Ends).embed,
    positions: positions && asTable(positions, (ends.positions as LinearPlace).n),
    projectIn: await linear(at(names.projectIn), ends.projectIn),
    projectOut: await linear(at(names.projectOut), ends.projectOut),
    head: tokens ? await head(tokens) : (decoder as Ends).head,
    embedNorm: await norm(names.embedNorm, ends.embedNorm),
    finalNorm: await norm(names.finalNorm, ends.finalNorm),
    ...(await context.loadMore?.(context, half, ends, root, base)),
  };
}

/** A projection as a table of `rows` rows. */
export const asTable = ({ k, format, w, mins }: PackedLinear, rows: number): PackedTable => ({
  ...{ rows, dim: k, format, at: w, mins },
});

/** The table of tokens as the head, with the head's own bias where there is one. */
async function withBias({ kernels, reader }: BlockContext, tokens: PackedLinear, name: string): Promise<PackedLinear> {
  const bias = await reader.vector(name);
  // The table itself has no bias, so that its place is free.
  if (bias) kernels.memory.f32(tokens.bias, bias.length).set(bias);
  return tokens;
}
