// The formats of a decoder's matrices: those that were asked for, else those of its file.

import type { PackedFormat, WeightFormat } from "../linear/formats.ts";
import { findRoot } from "../models/decoder/check-tensors.ts";
import type { Decoder } from "../models/decoder/read-spec.ts";
import type { ModelFormats, PackedFormats } from "./model-formats.ts";
import type { EndFormats } from "./places.ts";
import type { WeightReader } from "./weight-reader.ts";

/** The formats of the matrices before the first layer and behind the last one. */
export function endFormats(
  reader: WeightReader,
  { names }: Decoder,
  root: string,
  own: WeightFormat | undefined,
): EndFormats {
  const formatOf = (name: string) => reader.formatOf(`${name}.weight`, own);
  const ifAny = (name: string) => (reader.has(`${name}.weight`) ? formatOf(name) : undefined);
  const at = (name: string) => `${root}${name}`;
  return {
    embed: formatOf(at(names.embed)),
    projectIn: ifAny(at(names.projectIn)) ?? "f32",
    projectOut: ifAny(at(names.projectOut)) ?? ifAny(names.transform?.dense ?? "") ?? "f32",
    head: ifAny(names.head),
  };
}

/** The formats of the parts: the requested ones, else those that most bytes of the layers, and the table, are stored in. */
export function storedFormats(reader: WeightReader, decoder: Decoder, own: ModelFormats): PackedFormats {
  const { names, family } = decoder;
  const root = findRoot(decoder, reader.tensors);
  const { router, sharedGate } = family.moeNames ?? {};
  // Tensors of two dimensions that are float32 in memory whatever they are stored in.
  const floats = [router, sharedGate, family.headNorm?.q, family.headNorm?.k].map((name) => `.${name}.weight`);
  const bytes = new Map<PackedFormat, number>();
  for (const name of reader.namesBelow(`${root}${names.layers}.`)) {
    const tensor = reader.tensors.get(name);
    const isMatrix = tensor && tensor.shape.length > 1 && !floats.some((end) => name.endsWith(end));
    if (!isMatrix || name.endsWith("_bias")) continue;
    const format = reader.formatOf(name, undefined);
    bytes.set(format, (bytes.get(format) ?? 0) + tensor.bytes);
  }
  const [most] = [...bytes].sort(([, a], [, b]) => b - a)[0] ?? ["f32" as const];
  const embed = reader.formatOf(`${root}${names.embed}.weight`, own.embed);
  return { attention: own.attention ?? most, mlp: own.mlp ?? most, embed };
}
