// The formats of a model's matrices, by part: those that were asked for, else those of its file.

import { readFields } from "../../base/util/arguments.ts";
import type { LayerFormats } from "../../layers/attention/weights.ts";
import type { LatentFormats } from "../../layers/latent/weights.ts";
import type { PackedFormat, WeightFormat } from "../../layers/linear/formats/format.ts";
import { expectFormat, FORMATS } from "../../layers/linear/formats/formats.ts";
import type { EndFormats, MlpFormats } from "../blocks/places.ts";
import { findRoot } from "../spec/check-tensors.ts";
import type { Decoder } from "../spec/read-spec.ts";
import type { BlockSpec, ModelSpec } from "../spec/spec.ts";
import { mlpFormats } from "./load-layers.ts";
import type { StoredMatrices } from "./weight-reader.ts";

// Formats of the matrices of a model, by part.

/** Formats of the parts of a model. */
export interface ModelFormats {
  /** Matrices of attention. */
  readonly attention?: WeightFormat | undefined;
  /** Matrices of MLPs and experts; routers are always float32. */
  readonly mlp?: WeightFormat | undefined;
  /** The table of tokens, and the head. */
  readonly embed?: WeightFormat | undefined;
}

/** Formats of the matrices of attention, of latent attention too. */
export type AttentionFormats = LayerFormats & LatentFormats;

/** Formats of all matrices of a model in memory. */
export interface PackedFormats {
  readonly ends: EndFormats;
  attention(layer: number, which: "self" | "cross"): AttentionFormats;
  mlp(layer: number, which: number | "shared" | "mlp"): MlpFormats;
}

const PARTS: readonly (keyof ModelFormats)[] = ["attention", "mlp", "embed"];

/** One format for all parts. */
export function allParts(format: WeightFormat): ModelFormats {
  return { attention: format, mlp: format, embed: format };
}

/** One format for each part; parts without one are float32. */
export function uniformFormats({ head }: ModelSpec, formats: ModelFormats): PackedFormats {
  const { attention = "f32", mlp = "f32", embed = "f32" } = formats;
  return {
    ends: { embed, projectIn: embed, projectOut: embed, head: head.tied === false ? embed : undefined },
    attention: () => ({ q: attention, k: attention, v: attention, o: attention, qDown: attention, kvDown: attention }),
    mlp: () => ({ gate: mlp, up: mlp, down: mlp }),
  };
}

/** Checks the option `weights`. */
export function readFormats(where: string, weights: WeightFormat | ModelFormats | undefined): ModelFormats {
  if (weights === undefined) return {};
  if (weights === null || typeof weights !== "object") {
    const format = expectFormat(where, "options.weights", weights);
    return allParts(format);
  }
  const formats = readFields(where, "options.weights", weights, PARTS);
  for (const [part, format] of Object.entries(formats)) expectFormat(where, `options.weights.${part}`, format);
  return formats;
}

// The formats of a model's matrices in memory: those that were asked for, else those of its file.

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
  const k = own ?? (FORMATS[v].integers ? "f32" : v);
  return { qDown, q: formatOf(q), kvDown: formatOf(kvDown), k, v, o: formatOf(o) };
}
