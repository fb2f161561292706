// What is before the first layer of a model and behind the last one: formats, and reading it.

import type { LinearPlace, PackedLinear } from "../linear/linear.ts";
import { stagedFloats } from "../linear/pack.ts";
import type { Decoder } from "../models/decoder/read-spec.ts";
import { toFloats } from "../tensor/to-floats.ts";
import { type BlockContext, loadNorm, ownBlock } from "./load-blocks.ts";
import type { ModelWeights } from "./model.ts";
import type { PackedNorm, PackedTable } from "./packed.ts";
import type { ModelPlaces, NormPlace } from "./places.ts";
import { packRelative } from "./relative.ts";

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
  { spec, names }: Decoder,
  { ends, endsBytes }: ModelPlaces,
  root: string,
  decoder: Ends | undefined,
): Promise<Ends> {
  const { kernels, reader, staging } = context;
  const base = ownBlock(context, endsBytes);
  const at = (name: string) => `${root}${name}`;
  const linear = async (name: string, to: LinearPlace | undefined): Promise<PackedLinear | undefined> =>
    to && reader.linear(base, to, name, staging, "out-in");
  const norm = async (name: string, to: NormPlace | undefined): Promise<PackedNorm | undefined> =>
    to && loadNorm(context, at(name), to, base);
  const tokens = decoder ? undefined : ((await linear(at(names.embed), ends.embed)) as PackedLinear);
  const head = async (tokens: PackedLinear) =>
    (await linear(names.head, ends.head)) ?? (await withBias(context, tokens, names.headBias ?? `${names.head}.bias`));
  const bias = spec.relativeBias && (await reader.vector(`${at(names.relativeBias as string)}.weight`));
  const table = async (name: string | undefined, to: LinearPlace | undefined) =>
    to && asTable((await linear(at(name as string), to)) as PackedLinear, to.n);
  const { transform } = names;
  return {
    embed: tokens ? asTable(tokens, spec.vocabSize) : (decoder as Ends).embed,
    positions: await table(names.positions, ends.positions),
    types: await table(names.types, ends.types),
    projectIn: await linear(at(names.projectIn), ends.projectIn),
    projectOut: await linear(at(names.projectOut), ends.projectOut),
    head: tokens ? await head(tokens) : (decoder as Ends).head,
    embedNorm: await norm(names.embedNorm, ends.embedNorm),
    finalNorm: await norm(names.finalNorm, ends.finalNorm),
    transform: ends.transform &&
      transform && {
        dense: (await linear(transform.dense, ends.transform.dense)) as PackedLinear,
        norm: await loadNorm(context, transform.norm, ends.transform.norm, base),
      },
    stem: ends.stem && {
      first: await convolution(context, at(names.stem?.[0] as string), ends.stem.first, base),
      second: await convolution(context, at(names.stem?.[1] as string), ends.stem.second, base),
    },
    relativeBias:
      spec.relativeBias &&
      packRelative(kernels.memory, spec, spec.relativeBias, bias as Float32Array, base + ends.relativeBias),
  };
}

const asTable = ({ k, format, w, mins }: PackedLinear, rows: number): PackedTable => ({
  ...{ rows, dim: k, format, at: w, mins },
});

/** The table of tokens as the head, with the head's own bias where there is one. */
async function withBias({ kernels, reader }: BlockContext, tokens: PackedLinear, name: string): Promise<PackedLinear> {
  const bias = await reader.vector(name);
  // The table itself has no bias, so that its place is free.
  if (bias) kernels.memory.f32(tokens.bias, bias.length).set(bias);
  return tokens;
}

/** Packs a convolution [outputs, channels, 3] as a projection of three neighbouring frames. */
async function convolution(
  { reader, staging }: BlockContext,
  name: string,
  place: LinearPlace,
  base: number,
): Promise<PackedLinear> {
  const bias = await reader.vector(`${name}.bias`);
  const tensor = await reader.matrix(`${name}.weight`);
  const from = toFloats(tensor);
  const turned = new Float32Array(from.length);
  const channels = place.k / 3;
  for (let i = 0; i < from.length; i++) {
    const [row, channel, frame] = [Math.floor(i / place.k), Math.floor((i % place.k) / 3), i % 3];
    turned[row * place.k + frame * channels + channel] = from[i] as number;
  }
  const matrix = { ...tensor, dtype: "F32" as const, shape: [place.n, place.k], bytes: new Uint8Array(turned.buffer) };
  return reader.store(base, place, matrix, bias, staging, "out-in");
}
