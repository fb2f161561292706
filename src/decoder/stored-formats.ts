// The formats of a model's matrices in memory: those that were asked for, else those of its file.

import { isInteger, type PackedFormat, type WeightFormat } from "../linear/formats.ts";
import { findRoot } from "../models/decoder/check-tensors.ts";
import type { Decoder } from "../models/decoder/read-spec.ts";
import type { BlockSpec } from "../models/decoder/spec.ts";
import { mlpFormats } from "./load-blocks.ts";
import type { AttentionFormats, ModelFormats, PackedFormats } from "./model-formats.ts";
import type { EndFormats } from "./places.ts";
import type { StoredMatrices } from "./weight-reader.ts";

/**
 * The formats of each matrix: the requested one of its part, else the one that it is stored in. Throws `NO_QUANTIZED` for one that
 * the kernels lack, and `BAD_FILE` for one of a dtype that is no weight.
 */
export function storedFormats(reader: StoredMatrices, decoder: Decoder, own: ModelFormats): PackedFormats {
  const { spec, names, family, attention } = decoder;
  const root = findRoot(decoder, reader.tensors);
  const layerAt = (layer: number) => `${root}${names.layers}.${layer}.`;
  const context = { reader, names, family, formats: { attention: own.attention, mlp: own.mlp } };
  return {
    ends: endFormats(reader, decoder, root, own.embed),
    attention(layer, which) {
      const { cross, attention: self } = spec.blocks[layer] as BlockSpec;
      const kind: BlockSpec["attention"] = which === "cross" && cross ? { kind: "heads", config: cross } : self;
      const prefix = `${layerAt(layer)}${which === "cross" ? names.cross : names.attention}`;
      const matrices = attention.required(kind).filter(([, shape]) => shape.length > 1);
      const stored = matrices.map(([name]) => `${prefix}${name}`);
      return kind.kind === "latent"
        ? latentFormats(reader, stored, kind.config.qLoraRank !== undefined, own.attention)
        : headFormats(stored.map((name) => reader.formatOf(name, own.attention)));
    },
    mlp: (layer, which) => mlpFormats(context, layerAt(layer), which),
  };
}

/** The formats of the matrices before the first layer and behind the last one. */
function endFormats(
  reader: StoredMatrices,
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

/** Of queries, keys, values and outputs, where the first three may be one matrix; norms of heads may follow. */
function headFormats([first, second, third, fourth]: readonly PackedFormat[]): AttentionFormats {
  const [q, o] = [first as PackedFormat, (fourth ?? second) as PackedFormat];
  const [k, v] = fourth ? [second as PackedFormat, third as PackedFormat] : [q, q];
  return { q, k, v, o, qDown: "f32", kvDown: "f32" };
}

/** Of queries by way of their latents or not, of latents, of keys and values from them in one tensor or two, and of outputs. */
function latentFormats(
  reader: StoredMatrices,
  stored: readonly string[],
  lowRank: boolean,
  own: WeightFormat | undefined,
): AttentionFormats {
  const formatOf = (name: string | undefined) => reader.formatOf(name as string, own);
  const qDown = lowRank ? formatOf(stored[0]) : "f32";
  const [q, kvDown, ...rest] = stored.slice(lowRank ? 1 : 0);
  const o = rest.pop();
  // Two that are joined become float32 unless both are the same 16-bit floats.
  const dtypes = new Set(rest.map((name) => reader.tensors.get(name)?.dtype));
  const isKept = rest.length === 1 || (dtypes.size === 1 && (dtypes.has("F16") || dtypes.has("BF16")));
  const v = own ?? (isKept ? formatOf(rest[0]) : "f32");
  const k = own ?? (isInteger(v) ? "f32" : v);
  return { qDown, q: formatOf(q), kvDown: formatOf(kvDown), k, v, o: formatOf(o) };
}
