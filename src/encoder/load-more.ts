// What encoders, and models with two halves, have before their first layer or behind the last one besides what decoders have.

import { type BlockContext, type LoadMore, loadNorm } from "../decoder/load-blocks.ts";
import { asTable } from "../decoder/load-ends.ts";
import { packRelative } from "../decoder/relative.ts";
import type { LinearPlace, PackedLinear } from "../linear/linear.ts";
import { toFloats } from "../tensor/to-floats.ts";

/** Reads a table of token types, a bias by relative position, convolutions, and what is before the head. */
export const loadMore: LoadMore = async (context, { spec, names }, ends, root, base) => {
  const { kernels, reader, staging } = context;
  const at = (name: string | undefined) => `${root}${name}`;
  const linear = (name: string, to: LinearPlace) => reader.linear(base, to, name, staging, "out-in");
  const { transform, stem = [] } = names;
  const bias = spec.relativeBias && (await reader.vector(`${at(names.relativeBias)}.weight`));
  return {
    types: ends.types && asTable(await linear(at(names.types), ends.types), ends.types.n),
    transform: ends.transform &&
      transform && {
        dense: await linear(transform.dense, ends.transform.dense),
        norm: await loadNorm(context, transform.norm, ends.transform.norm, base),
      },
    stem: ends.stem && {
      first: await convolution(context, at(stem[0]), ends.stem.first, base),
      second: await convolution(context, at(stem[1]), ends.stem.second, base),
    },
    relativeBias:
      spec.relativeBias &&
      packRelative(kernels.memory, spec, spec.relativeBias, bias as Float32Array, base + ends.relativeBias),
  };
};

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
