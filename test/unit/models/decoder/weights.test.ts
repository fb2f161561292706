// The list of a model's weights beside the tensors of its files, and beside what is in memory.

import { expect, test } from "vitest";
import type { BlockPlaces, PackedWeights } from "../../../../src/models/blocks/model.ts";
import { loadEncoder, loadSeq2Seq, readEncoder, readSeq2Seq } from "../../../../src/models/encoder/load.ts";
import { loadModel } from "../../../../src/models/load/load-model.ts";
import { keyOf, type Source, type Weight } from "../../../../src/models/mixers/weight.ts";
import { readDecoder } from "../../../../src/models/spec/read-spec.ts";
import { type Decoder, resolveHead, sourcesOf } from "../../../../src/models/spec/tensors.ts";
import { weightsOf } from "../../../../src/models/spec/weights.ts";

import { kernelsOf } from "../../../support/layers.ts";
import { encoderFolder, TINY_ENCODERS, type TinyEncoder } from "../../../support/tiny-encoders.ts";
import { TINY, tinyFolder } from "../../../support/tiny-models.ts";
import { seq2seqFolder, TINY_SEQ2SEQ, type TinySeq2Seq } from "../../../support/tiny-seq2seq.ts";

const numbersOf = (shape: readonly (number | undefined)[]) => shape.reduce<number>((all, n = 1) => all * n, 1);
const nameOf = (weight: Weight) => `${weight.layer} ${weight.mixer} ${keyOf(weight)}`;

/** Every model of the tests, with its two halves, if it has them. */
const MODELS: readonly (readonly [name: string, half: Decoder])[] = [
  ...Object.entries(TINY).map(([name, config]) => [name, readDecoder("test", config)] as const),
  ...Object.entries(TINY_ENCODERS).map(([name, config]) => [name, readEncoder("test", config)] as const),
  ...Object.entries(TINY_SEQ2SEQ).flatMap(([name, config]) => {
    const { encoder, ...decoder } = readSeq2Seq("test", config);
    return [[`${name}, decoder`, decoder] as const, [`${name}, encoder`, encoder as Decoder] as const];
  }),
].map(([name, half]) => [name, resolveHead(half)]);

/** A weight in several tensors, as the norms of heads that are apart. */
const shared = (sources: readonly Source[], weight: Weight) =>
  sources.filter(({ weights }) => weights.some((each) => nameOf(each) === nameOf(weight)));

test.each(MODELS)("%s: tensors have as many numbers as the weights that they hold", (_, half) => {
  const sources = [...sourcesOf(half, "")];
  for (const { name, shape, weights } of sources) {
    const [first] = weights;
    const parts = first && shared(sources, first).length;
    expect(`${name} ${numbersOf(shape) * (parts ?? 0)}`).toBe(
      `${name} ${weights.reduce((sum, each) => sum + numbersOf(each.shape), 0)}`,
    );
  }
});

test.each(MODELS)("%s: a weight is in the list once, and in a tensor unless files may lack it", (_, half) => {
  const weights = [...weightsOf(half.spec)];
  expect(new Set(weights.map(nameOf)).size).toBe(weights.length);
  const sources = [...sourcesOf(half, "")];
  const held = new Set(sources.flatMap((source) => source.weights.map(nameOf)));
  const missing = weights.filter((each) => !each.optional && numbersOf(each.shape) > 0 && !held.has(nameOf(each)));
  expect(missing.map(nameOf)).toEqual([]);
});

/** What of the list lies in memory, besides attention; the bias of the head lies behind another weight. */
function expectPacked({ weights, linears, vectors }: BlockPlaces, packed: PackedWeights): void {
  for (const weight of weights) {
    const { role, kind, optional, shape, bias } = weight;
    if (role === "headBias" || optional || shape[0] === 0) continue;
    const key = keyOf(weight);
    const isVector = kind === "vector" || role === "relativeBias";
    expect(`${key} ${(isVector ? vectors : linears).has(key)}`).toBe(`${key} true`);
    expect(`${key} ${(isVector ? packed.vectors : packed.linears).has(key)}`).toBe(`${key} true`);
    // A vector takes no room for a bias that it cannot have.
    if (isVector) expect(`${key} ${vectors.get(key)?.bias !== 0}`).toBe(`${key} ${bias === true}`);
  }
}

test.each([
  ...Object.keys(TINY).map((name) => [name, "loadModel"] as const),
  ...Object.keys(TINY_ENCODERS).map((name) => [name, "loadEncoder"] as const),
  ...Object.keys(TINY_SEQ2SEQ).map((name) => [name, "loadSeq2Seq"] as const),
])("%s of %s has every weight of the list in memory", async (name, loader) => {
  using kernels = await kernelsOf("simd");
  const load = () => {
    if (loader === "loadModel") return loadModel(kernels, tinyFolder(TINY[name as keyof typeof TINY]));
    if (loader === "loadEncoder") return loadEncoder(kernels, encoderFolder(name as TinyEncoder));
    return loadSeq2Seq(kernels, seq2seqFolder(name as TinySeq2Seq));
  };
  using model = await load();
  for (const { places, weights } of [model, model.encoder].filter((half) => half !== undefined)) {
    expectPacked(places.ends, weights.packed);
    for (const [layer, { packed }] of weights.blocks.entries())
      expectPacked(places.blocks[layer] as BlockPlaces, packed);
  }
});
