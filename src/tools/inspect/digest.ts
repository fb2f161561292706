// What identifies a model: its specification, and its weights as they are in memory.

import { hostSha256 } from "../../base/platform/host.ts";
import { joinBytes, toHex } from "../../base/util/bytes.ts";
import { encodeParts } from "../../base/util/cbor.ts";
import { chunksOf } from "../../base/util/rows.ts";
import { FORMATS, type PackedFormat, type PackedLinear } from "../../layers/linear/formats.ts";

import {
  type BlockPlaces,
  expectModel,
  joinInputs,
  type Model,
  type PackedWeights,
} from "../../models/blocks/model.ts";
import { keyOf, type Weight, type WeightRole } from "../../models/mixers/weight.ts";
import { NULL } from "../../wasm/abi.ts";
import { isFast } from "../../wasm/int-dot.ts";
import { mixerOf } from "./views.ts";

/** Bytes of a piece, each of which is hashed by itself: hosts hash no stream. */
const PIECE = 2 ** 20;

/** Cuts `length` bytes, of which `read` gives begin..end, into what `digestOf` takes. */
export function* piecesOf(
  length: number,
  read: (begin: number, end: number) => Uint8Array,
): Generator<Uint8Array, void> {
  for (const [begin, end] of chunksOf(length, PIECE)) yield read(begin, end);
}

/**
 * A digest of bytes, in whatever pieces of up to 1 MiB they come: SHA-256 of the SHA-256s of each MiB, in hexadecimal. A piece is
 * copied before the next one is asked for, so that it may be a view of memory that grows meanwhile.
 */
export async function digestOf(pieces: Iterable<Uint8Array> | AsyncIterable<Uint8Array>): Promise<string> {
  const buffer = new Uint8Array(2 * PIECE);
  const digests: Uint8Array[] = [];
  let filled = 0;
  for await (const piece of pieces) {
    buffer.set(piece, filled);
    filled += piece.length;
    if (filled < PIECE) continue;
    digests.push(await hostSha256(buffer.subarray(0, PIECE)));
    buffer.copyWithin(0, PIECE, filled);
    filled -= PIECE;
  }
  digests.push(await hostSha256(buffer.subarray(0, filled)));
  return toHex(await hostSha256(joinBytes(digests)));
}

/** Digests of models: weights do not change. */
const DIGESTS = new WeakMap<Model, Promise<string>>();

/**
 * A digest of a model, 64 hexadecimal digits: of its specification and of the weights in the formats that they were loaded in. It is
 * the same in every runtime and build, and wherever the files came from; where weights lie and how long sequences may be is not part
 * of it. It is computed once, from a MiB at a time.
 * @throws TypeError if `model` is none. HeadwiseError `RELEASED`.
 * @example
 * import { loadKernels } from "headwise";
 * import { modelDigest } from "headwise/inspect";
 * import { loadModel, models } from "headwise/models";
 * const kernels = await loadKernels({ models });
 * const digest = await modelDigest(await loadModel(kernels, "model"));
 * console.log(digest.length); // 64
 * kernels.release();
 */
export async function modelDigest(model: Model): Promise<string> {
  const where = "modelDigest";
  expectModel(where, model);
  const known = DIGESTS.get(model);
  if (known) return known;
  const digest = digestOf(modelPieces(where, model));
  DIGESTS.set(model, digest);
  // What failed may be asked for again: it then fails at once, by name.
  digest.catch(() => DIGESTS.delete(model));
  return digest;
}

async function* modelPieces(where: string, model: Model): AsyncGenerator<Uint8Array, void> {
  const { spec, weights, kernels } = model;
  // These two say how much memory sequences may take, and change no result.
  const { maxSeqLen: _, sessionLength: __, ...facts } = spec;
  // Published digests call mixers so.
  const blocks = spec.blocks.map(({ mixer, ...rest }) => ({ attention: mixer, ...rest }));
  const parts = [...partsOf(model)];
  const modes = [weights.mode, ...weights.blocks.map(({ attention }) => mixerOf(attention).mode(attention))];
  const head = { ...facts, blocks, fast: modes.some(isFast), parts: parts.map(({ kind, bytes }) => [kind, bytes]) };
  for (const part of encodeParts(where, "spec", head))
    yield* piecesOf(part.length, (begin, end) => part.subarray(begin, end));
  for (const { at, bytes } of parts)
    yield* piecesOf(bytes, (begin, end) => {
      expectModel(where, model);
      return kernels.memory.u8(at + begin, end - begin);
    });
  for await (const piece of weights.perLayer?.stored?.pieces(where) ?? [])
    yield* piecesOf(piece.length, (begin, end) => piece.subarray(begin, end));
}

/** The formats of a model's matrices, each once. */
export function formatsOf(model: Model): PackedFormat[] {
  const kinds = new Set(Array.from(partsOf(model), ({ kind }) => kind));
  kinds.delete("vector");
  return [...(kinds as Set<PackedFormat>)].sort();
}

/** Bytes of weights in linear memory. */
interface Part {
  readonly kind: PackedFormat | "vector";
  readonly at: number;
  readonly bytes: number;
}

/** The order in which published digests have weights, whatever that of the list is: norms by their role, what is not named last. */
const RANKS: Partial<Record<WeightRole, number>> = {
  ...{ embed: 0, positions: 1, embedNorm: 2, gate: 4, up: 4, down: 4, router: 5, sharedGate: 6, correction: 7 },
  ...{ finalNorm: 8, projectIn: 9, projectOut: 10 },
};
const NORMS = 3;
const rankOf = ({ role, norm }: Weight) => RANKS[role] ?? (norm ? NORMS : 12);

function inOrder(weights: readonly Weight[]): readonly Weight[] {
  const byRole = (a: Weight, b: Weight) => (a.norm ? (a.role < b.role ? -1 : 1) : 0);
  return [...weights].sort((a, b) => rankOf(a) - rankOf(b) || byRole(a, b));
}

/** The weights of a decoder. Sums of integers are not among them: they follow from these. */
function* partsOf({ places, weights }: Model): Generator<Part, void> {
  const ends = inOrder(places.ends.weights);
  const behind = ends.findIndex((weight) => rankOf(weight) > NORMS);
  yield* partsIn(ends.slice(0, behind), weights.packed);
  for (const [layer, { attention, packed }] of weights.blocks.entries()) {
    for (const each of attention.mixer.linears(attention)) yield* linear(each);
    for (const { at, length } of mixerOf(attention).vectors(attention)) yield vector(at, length);
    yield* partsIn(inOrder((places.blocks[layer] as BlockPlaces).weights), packed);
  }
  yield* partsIn(ends.slice(behind), weights.packed);
}

function* partsIn(weights: readonly Weight[], { linears, vectors }: PackedWeights): Generator<Part, void> {
  let gate: PackedLinear | undefined;
  for (const weight of weights) {
    const { role, kind, shape } = weight;
    const [own, found] = [linears.get(keyOf(weight)), vectors.get(keyOf(weight))];
    if (found) for (const at of [found.at, found.bias]) if (at !== NULL) yield vector(at, shape[0]);
    // A head that is the table of tokens is there already, but for its bias.
    const tied = role === "headBias" && !linears.has("head") && linears.get("embed");
    if (tied) yield vector(tied.bias, 8 * tied.panels);
    // Before the other factor, with which it may be one product.
    if (own && role !== "gate")
      for (const each of joinInputs(gate, own)) yield* kind === "table" ? matrix(each) : linear(each);
    gate = role === "gate" ? own : undefined;
  }
}

function* linear(given: PackedLinear | undefined): Generator<Part, void> {
  if (!given) return;
  yield* matrix(given);
  yield vector(given.bias, 8 * given.panels);
}

function* matrix({ format, k, w, mins, panels }: Omit<PackedLinear, "sums" | "bias">): Generator<Part, void> {
  yield { kind: format, at: w, bytes: panels * FORMATS[format].panelBytes(k) };
  yield { kind: format, at: mins, bytes: panels * FORMATS[format].minBytes(k) };
}

const vector = (at: number, length: number): Part => ({ kind: "vector", at, bytes: 4 * length });
