// Reads the layers of a decoder, and what is before and behind them, and packs them.

import type { StoredTensor } from "../../base/tensor/dtypes.ts";
import { toFloats } from "../../base/tensor/to-floats.ts";
import { createLatentAttention } from "../../layers/api/latent.ts";
import { type Attention, createAttention, packAttention } from "../../layers/attention/attention.ts";
import { checkConfig } from "../../layers/attention/config.ts";
import { checkWeightOptions, checkWeights } from "../../layers/attention/weights.ts";
import type { PackedLinear, WeightFormat } from "../../layers/linear/formats/format.ts";
import { stagedFloats } from "../../layers/linear/pack.ts";
import type { LinearPlace } from "../../layers/linear/products.ts";
import { NULL } from "../../wasm/abi.ts";
import type { Kernels } from "../../wasm/kernels.ts";
import { pointer } from "../../wasm/memory.ts";
import { type HeadGains, headNormBytes, packHeadNorm } from "../blocks/head-norm.ts";
import type { ModelWeights } from "../blocks/model.ts";
import {
  type EndPlaces,
  joinMlp,
  type MlpFormats,
  type MlpPlace,
  type ModelPlaces,
  type MoePlace,
  type NormPlace,
  type PackedBlock,
  type PackedMlp,
  type PackedMoe,
  type PackedNorm,
  type PackedTable,
  packedNorm,
} from "../blocks/places.ts";
import type { MlpNames, Names, TensorForm } from "../families/family.ts";
import type { AttentionTensors } from "../spec/attention-tensors.ts";
import type { Decoder } from "../spec/read-spec.ts";
import type { BlockSpec, NormRole } from "../spec/spec.ts";
import type { StoredMatrices, WeightReader } from "./weight-reader.ts";

// Reads the layers of a decoder and packs them: each into a block of memory of its own, and its attention into another.

/** What packing needs to know of a model and its names. */
export interface BlockContext {
  readonly kernels: Kernels;
  readonly reader: WeightReader;
  readonly names: Names;
  readonly family: TensorForm;
  readonly attention: AttentionTensors;
  readonly dModel: number;
  /** The requested formats of attention and MLP; undefined for those of the file. */
  readonly formats: { readonly attention: WeightFormat | undefined; readonly mlp: WeightFormat | undefined };
  readonly activations: "exact" | "fast" | undefined;
  /** Memory for packing, as much as the largest matrix needs. */
  readonly staging: number;
  readonly where: string;
  /** Reads what only models have that have an encoder. */
  readonly loadMore: LoadMore | undefined;
  /** What is freed with the model, and its bytes. */
  readonly owned: { readonly bytes: number; release(): void }[];
}

/** Reads weights at the ends of an encoder, or of a model with two halves, into the block at `base`. */
export type LoadMore = (
  context: BlockContext,
  half: Decoder,
  ends: EndPlaces,
  root: string,
  base: number,
) => Promise<Pick<ModelWeights, "types" | "transform" | "stem" | "relativeBias">>;

/** Allocates a block that is freed with the model. */
function ownBlock(
  { kernels: { memory }, where, owned }: Pick<BlockContext, "kernels" | "where" | "owned">,
  bytes: number,
): number {
  const at = memory.allocate(where, bytes);
  owned.push({ bytes, release: () => memory.free(at) });
  return at;
}

/** Where the MLP of an expert, of all tokens, or of a layer without experts lies, and its names. */
function mlpAt(
  { family, names }: Pick<BlockContext, "family" | "names">,
  at: string,
  which: number | "shared" | "mlp",
): [string, MlpNames] {
  const { moeNames } = family;
  if (which === "mlp") return [names.mlpAt === "" ? at : `${at}${names.mlpAt}.`, names.mlp];
  const own = moeNames as NonNullable<typeof moeNames>;
  if (which === "shared") return [own.shared === "" ? at : `${at}${own.shared}.`, own.sharedMlp ?? own.mlp];
  return [typeof own.expert === "string" ? at : `${at}${own.expert(which)}.`, own.mlp];
}

/** The formats of an MLP of the layer whose names begin with `at`. */
export function mlpFormats(
  context: Pick<BlockContext, "formats" | "family" | "names"> & { readonly reader: StoredMatrices },
  at: string,
  which: number | "shared" | "mlp",
): MlpFormats {
  const { reader, formats, family } = context;
  const [prefix, { gate, up, down }] = mlpAt(context, at, which);
  const suffix = family.moeNames?.expert === "interleaved" && which !== "mlp" ? "" : ".weight";
  const format = (name: string | undefined) => reader.formatOf(`${prefix}${name}${suffix}`, formats.mlp);
  const first = gate === undefined || !reader.has(`${prefix}${gate}${suffix}`) ? up : gate;
  return { gate: format(first), up: format(up ?? first), down: format(down) };
}

/** Reads the layer whose names begin with `at`, and packs it. */
export async function loadBlock(
  context: BlockContext,
  spec: BlockSpec,
  { place, bytes }: ModelPlaces["blocks"][number],
  at: string,
): Promise<PackedBlock> {
  const { names, owned } = context;
  const attention = await loadAttention(context, spec.attention, `${at}${names.attention}`);
  owned.push(attention);
  const cross =
    spec.cross && (await loadAttention(context, { kind: "heads", config: spec.cross }, `${at}${names.cross}`));
  if (cross) owned.push(cross);
  const base = ownBlock(context, bytes);
  const norms: Partial<Record<NormRole, PackedNorm>> = {};
  for (const [role, norm] of Object.entries(place.norms) as [NormRole, NormPlace][])
    norms[role] = await loadNorm(context, `${at}${names.norms[role]}`, norm, base);
  const { parallel, addsToNormed, scale } = spec;
  return {
    ...{ attention, cross, norms, parallel, addsToNormed, scale },
    mlp: place.mlp && (await loadMlp(context, ...mlpAt(context, at, "mlp"), place.mlp, base)),
    moe: place.moe && (await loadMoe(context, at, place.moe, base)),
  };
}

/** Reads a norm into its place. */
export async function loadNorm(
  { kernels, reader }: Pick<BlockContext, "kernels" | "reader">,
  name: string,
  place: NormPlace,
  base: number,
): Promise<PackedNorm> {
  const gain = (await reader.vector(`${name}.weight`)) as Float32Array;
  const bias = await reader.vector(`${name}.bias`);
  const write = (at: number, values: Float32Array) => kernels.memory.f32(base + at, values.length).set(values);
  write(place.gain, place.spec.onePlus ? gain.map((each) => 1 + each) : gain);
  if (bias) write(place.bias, bias);
  return packedNorm(place, base, bias !== undefined);
}

async function loadAttention(
  context: BlockContext,
  attention: BlockSpec["attention"],
  prefix: string,
): Promise<Attention> {
  const { kernels, reader, formats, activations, family, where } = context;
  const { required, optional, readHeads, readLatents } = context.attention;
  const own = [...required(attention), ...optional(attention)].map(([name]) => `${prefix}${name}`);
  const tensors = new Map(await reader.read(own.filter((name) => reader.has(name))));
  const options = { weights: formats.attention, activations };
  if (attention.kind === "latent")
    return createLatentAttention(kernels, attention.config, readLatents(tensors, prefix), options);
  const { fused: _, ...config } = attention.config;
  const { headNorm } = family;
  const gainsOf = (name: string) => takeGains(tensors, `${prefix}${name}`, headNorm?.each === "apart");
  const { headNorm: norm } = attention;
  const gains = norm && headNorm && { norm, q: gainsOf(headNorm.q), k: gainsOf(headNorm.k) };
  const weights = readHeads(tensors, prefix, attention.config);
  if (!gains) return createAttention(kernels, config, weights, options);
  const checked = checkConfig(where, config);
  const given = checkWeights(
    where,
    checked,
    weights,
    checkWeightOptions(where, "options.", options),
    kernels.quantized,
  );
  const block = ownBlock(context, headNormBytes(checked, gains.norm.each));
  return packAttention(where, kernels, checked, given, packHeadNorm(kernels, checked, gains.norm, gains, block));
}

/** Takes the gains and biases of a norm of heads out of `tensors`: one tensor each, or one for each head. */
function takeGains(tensors: Map<string, StoredTensor>, name: string, apart: boolean): HeadGains {
  const take = (end: string) => {
    const own = apart ? [...tensors.keys()].filter((each) => each.startsWith(`${name}.norms.`)) : [name];
    const names = apart
      ? own.map((_, head) => `${name}.norms.${head}.${end}`).filter((each) => tensors.has(each))
      : [`${name}.${end}`];
    const found = names.flatMap((each) => tensors.get(each) ?? []).map((tensor) => toFloats(tensor));
    for (const each of names) tensors.delete(each);
    if (found.length === 0) return undefined;
    const all = new Float32Array(found.reduce((sum, { length }) => sum + length, 0));
    let to = 0;
    for (const each of found) {
      all.set(each, to);
      to += each.length;
    }
    return all;
  };
  const bias = take("bias");
  return { gain: take("weight") as Float32Array, bias };
}

async function loadMlp(
  { reader, staging }: BlockContext,
  prefix: string,
  { gate, up, down }: MlpNames,
  place: MlpPlace,
  base: number,
): Promise<PackedMlp> {
  const linear = (name: string | undefined, to: LinearPlace) => reader.linear(base, to, `${prefix}${name}`, staging);
  const inputs = async (): Promise<[PackedLinear | undefined, PackedLinear]> => {
    if (!place.gate) return [undefined, await linear(up, place.up)];
    if (up === undefined) return reader.halves(base, [place.gate, place.up], `${prefix}${gate}`, staging);
    return [await linear(gate, place.gate), await linear(up, place.up)];
  };
  const [first, second] = await inputs();
  return joinMlp(place.spec, first, second, await linear(down, place.down));
}

async function loadMoe(context: BlockContext, at: string, place: MoePlace, base: number): Promise<PackedMoe> {
  const { kernels, reader, family, staging } = context;
  const names = family.moeNames as NonNullable<TensorForm["moeNames"]>;
  const { spec } = place;
  const gate = await reader.linear(base, place.gate, `${at}${names.router}`, staging, "out-in");
  const correction = spec.router.correction ? await reader.vector(`${at}${names.correction}`) : undefined;
  if (correction) kernels.memory.f32(base + place.correction, correction.length).set(correction);
  const experts =
    typeof names.expert === "string"
      ? await (names.expert === "stacked" ? loadStacked : loadInterleaved)(context, at, names.mlp, place, base)
      : await inTurn(place.experts, (expert, e) => loadMlp(context, ...mlpAt(context, at, e), expert, base));
  return {
    ...{ topK: spec.topK, router: spec.router, gate, experts },
    correction: correction ? pointer.f32(base + place.correction) : NULL,
    shared: place.shared && (await loadMlp(context, ...mlpAt(context, at, "shared"), place.shared, base)),
    sharedGate:
      place.sharedGate && (await reader.linear(base, place.sharedGate, `${at}${names.sharedGate}`, staging, "out-in")),
  };
}

/** The results of `work` on each of `all`, one after the other, so that one tensor is held at a time. */
async function inTurn<T, R>(all: readonly T[], work: (one: T, index: number) => Promise<R>): Promise<R[]> {
  const results: R[] = [];
  for (const [index, one] of all.entries()) results.push(await work(one, index));
  return results;
}

/** Experts of tensors [experts, outputs, inputs]. */
async function loadStacked(
  { reader, staging }: BlockContext,
  at: string,
  { gate, up, down }: MlpNames,
  { spec, experts }: MoePlace,
  base: number,
): Promise<PackedMlp[]> {
  const names = [gate, up, down].filter((name) => name !== undefined);
  const biases = new Map<string, Float32Array | undefined>();
  for (const name of names) biases.set(name, await reader.vector(`${at}${name}.bias`));
  const linear = async (name: string | undefined, to: LinearPlace, expert: number) => {
    const matrix = await reader.matrixOf(`${at}${name}.weight`, expert);
    const bias = biases.get(name as string)?.subarray(expert * to.n, (expert + 1) * to.n);
    return reader.store(base, to, matrix, bias, staging);
  };
  return inTurn(experts, async (to, e) =>
    joinMlp(
      spec.expert,
      to.gate && (await linear(gate, to.gate, e)),
      await linear(up, to.up, e),
      await linear(down, to.down, e),
    ),
  );
}

/** Experts of tensors [experts, inputs, outputs], where columns of gates and of the other factor take turns. */
async function loadInterleaved(
  { reader, staging }: BlockContext,
  at: string,
  names: MlpNames,
  { spec, experts }: MoePlace,
  base: number,
): Promise<PackedMlp[]> {
  const biasOf = async (name: string | undefined) => (await reader.vector(`${at}${name}_bias`)) as Float32Array;
  const [firstBias, secondBias] = [await biasOf(names.gate), await biasOf(names.down)];
  const store = (place: LinearPlace, matrix: StoredTensor, bias: Float32Array) =>
    reader.store(base, place, matrix, bias, staging, "out-in");
  return inTurn(experts, async ({ gate, up, down }, e) => {
    const both = await reader.matrixOf(`${at}${names.gate}`, e);
    const bias = firstBias.subarray(2 * e * spec.expert.dim, 2 * (e + 1) * spec.expert.dim);
    const half = (place: LinearPlace, first: 0 | 1) =>
      store(
        place,
        everyOther(both, first),
        bias.filter((_, i) => i % 2 === first),
      );
    const inputs = [gate && half(gate, 0), half(up, 1)] as const;
    const last = everyOther(await reader.matrixOf(`${at}${names.down}`, e), 0, 1);
    return joinMlp(spec.expert, ...inputs, store(down, last, secondBias.subarray(e * down.n, (e + 1) * down.n)));
  });
}

/** Columns `first`, first + step, … of a matrix [inputs, outputs], as rows of floats. */
function everyOther(matrix: StoredTensor, first: number, step = 2): StoredTensor {
  const [inputs, outputs] = matrix.shape as [number, number];
  const from = toFloats(matrix);
  const rows = outputs / step;
  const to = new Float32Array(rows * inputs);
  for (let row = 0; row < rows; row++)
    for (let k = 0; k < inputs; k++) to[row * inputs + k] = from[k * outputs + first + row * step] as number;
  return { ...matrix, dtype: "F32", shape: [rows, inputs], bytes: new Uint8Array(to.buffer) };
}

// What is before the first layer of a model and behind the last one: formats, and reading it.

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

type Ends = Omit<ModelWeights, "blocks" | "mode">;

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
