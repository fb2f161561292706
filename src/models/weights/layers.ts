// The attention layers of a file, found by the names of its tensors, and the tensors of one.

import { expectFunction, expectOneOf, expectRecord, readFields } from "../../base/util/arguments.ts";
import { describe, tagOf } from "../../base/util/errors.ts";
import type { SafetensorsFile, SafetensorsIndex } from "../../files/safetensors/safetensors.ts";

import type { TensorFile } from "../../files/tensor-file.ts";
import { type HfPart, layerOfPrefix, partOfPrefix } from "../families/facts.ts";
import { FAMILIES, findFamily } from "../families/tensor-names.ts";
import { findLatentNames, latentRoots } from "./hf-latent.ts";

/** An attention layer of a file. */
export interface LayerPlace {
  /** What the names of its tensors begin with, such as "model.layers.0.self_attn.", or "blk.0.attn_" in GGUF files. */
  readonly prefix: string;
  /** "heads" for `createAttention`, "latents" for `createLatentAttention`. */
  readonly kind: "heads" | "latents";
  /** Its index in the model, from 0: the first number in the prefix; undefined for a prefix without one. */
  readonly layer: number | undefined;
  /** Which attention of a model of two halves, where the prefix names one. */
  readonly part: HfPart | undefined;
}

/** The projections by which a layer of a GGUF file is found. */
const OF_GGUF = /^(blk\.\d+\.attn_)(?:q|qkv|kv_a_mqa)\.weight$/;
const KINDS: readonly LayerPlace["kind"][] = ["heads", "latents"];

/**
 * Lists the attention layers of a file by the names of its tensors: those of all families that `readAttentionWeights`,
 * `readLatentWeights`, `readGgufLayer` and `readGgufLatentLayer` read, in the order of the file within a family. Only names are
 * looked at: a layer that is listed may have further tensors, with which its reader refuses it.
 * @param file An opened file or index, or one that is in memory.
 * @throws TypeError for a `file` without tensors by name.
 * @example
 * import { listLayers, readSafetensors, writeSafetensors } from "headwise/weights";
 * const square = { data: new Float32Array(16), shape: [4, 4] };
 * const names = ["q", "k", "v", "o"].map((part) => `layers.3.self_attn.${part}_proj.weight`);
 * const file = readSafetensors(writeSafetensors(Object.fromEntries(names.map((name) => [name, square]))));
 * console.log(listLayers(file)[0]?.prefix, listLayers(file)[0]?.kind); // layers.3.self_attn. heads
 */
export function listLayers(file: { readonly tensors: ReadonlyMap<string, unknown> }): LayerPlace[] {
  const names = namesOf("listLayers", file);
  const kinds = new Map<string, LayerPlace["kind"]>();
  const all = new Set(names);
  for (const { weights } of FAMILIES) {
    const [first = "", ...others] = Object.values(weights);
    for (const name of names) {
      const root = name.slice(0, -first.length);
      const whole = name.endsWith(first) && (root === "" || root.endsWith("."));
      if (whole && others.every((other) => all.has(root + other))) kinds.set(root, "heads");
    }
  }
  for (const name of names) {
    const [, prefix] = OF_GGUF.exec(name) ?? [];
    if (prefix !== undefined) kinds.set(prefix, all.has(`${prefix}kv_a_mqa.weight`) ? "latents" : "heads");
  }
  for (const root of latentRoots(names)) kinds.set(root, "latents");
  return Array.from(kinds, ([prefix, kind]) => ({ prefix, kind, ...readPrefix(prefix) }));
}

/**
 * Reads what a prefix of the names of tensors says: which layer, and which attention of a model of two halves.
 * @throws TypeError for a `prefix` that is no string.
 * @example
 * import { readPrefix } from "headwise/weights";
 * console.log(readPrefix("decoder.block.3.layer.1.EncDecAttention.")); // { layer: 3, part: 'cross' }
 */
export function readPrefix(prefix: string): Pick<LayerPlace, "layer" | "part"> {
  if (typeof prefix !== "string") throw new TypeError(`readPrefix: prefix expected a string, got ${describe(prefix)}`);
  return { layer: layerOfPrefix(prefix), part: partOfPrefix(prefix) };
}

/**
 * Reads the tensors of one attention layer of an opened safetensors file or index, and no other bytes of it. The names of the
 * whole file are checked first: a layer with further tensors, which would change its result, is refused. The result is what
 * `readAttentionWeights` takes for "heads", and `readLatentWeights` for "latents", with the same prefix.
 * @param place Where the layer is and what it is: an element of `listLayers`, or a prefix of yours (with or without the last
 * dot) and its kind.
 * @throws TypeError or RangeError naming the argument. HeadwiseError `BAD_FILE` for names that are not recognised (the message
 * lists those found) or are those of two families, a missing tensor, further tensors, and bytes that cannot be read.
 * @example
 * import { listLayers, openSafetensors, readAttentionWeights, readLayerTensors, writeSafetensors } from "headwise/weights";
 * const square = { data: new Float32Array(16), shape: [4, 4] };
 * const names = ["q", "k", "v", "o"].map((part) => `layers.0.${part}_proj.weight`);
 * const file = await openSafetensors(writeSafetensors(Object.fromEntries(names.map((name) => [name, square]))));
 * const [place] = listLayers(file);
 * if (place) console.log(readAttentionWeights(await readLayerTensors(file, place), place.prefix).wq?.shape); // [ 4, 4 ]
 */
export async function readLayerTensors(
  file: TensorFile<string> | SafetensorsIndex,
  place: Pick<LayerPlace, "prefix" | "kind">,
): Promise<SafetensorsFile> {
  const where = "readLayerTensors";
  const names = namesOf(where, file);
  expectFunction(where, "file.readAll", file.readAll);
  const { prefix, kind } = readFields(where, "place", place as LayerPlace, ["prefix", "kind", "layer", "part"]);
  if (typeof prefix !== "string")
    throw new TypeError(`${where}: place.prefix expected a string, got ${describe(prefix)}`);
  expectOneOf(where, "place.kind", kind, KINDS);
  const own = new Set(ownNames(where, names, prefix, kind));
  return {
    metadata: file.metadata,
    tensors: await file.readAll(
      names.filter((name) => own.has(name)),
      where,
    ),
  };
}

/** The names that a layer can have. */
function ownNames(where: string, names: readonly string[], prefix: string, kind: LayerPlace["kind"]): string[] {
  if (kind === "latents") {
    const { root, own } = findLatentNames(where, names, prefix);
    return own.map((name) => root + name);
  }
  const { family, root } = findFamily(where, names, prefix);
  const groups = [family.weights, family.biases, family.extras];
  return groups.flatMap((group) => Object.values(group ?? {})).map((name) => root + name);
}

function namesOf(where: string, file: { readonly tensors: ReadonlyMap<string, unknown> }): string[] {
  expectRecord(where, "file", file);
  const { tensors } = file;
  if (tagOf(tensors) !== "Map") throw new TypeError(`${where}: file.tensors expected a Map, got ${describe(tensors)}`);
  return [...tensors.keys()];
}
