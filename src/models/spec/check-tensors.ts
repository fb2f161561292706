// The tensors that a decoder must have, by name and shape, and one report of all that a file lacks or has too many of.

import { hasShape, shapeText } from "../../base/tensor/dtypes.ts";
import { describe, HeadwiseError } from "../../base/util/errors.ts";
import { type Decoder, findRoot, sourcesOf } from "./tensors.ts";

/** What a file says of a tensor before it is read. */
export interface TensorFacts {
  readonly dtype: string;
  readonly shape: readonly number[];
  readonly bytes: number;
}

/** Tensors that follow from the configuration, in files of older programs, or that are a part of it. */
const IGNORED =
  /(^|\.)(rotary_emb\.(inv_freq|cos_cached|sin_cached)|(attn|attention)\.(bias|masked_bias))$|^rope_(freqs|factors_(long|short))\.weight$/;

/** The most names of a kind in a report. */
const MOST_NAMED = 8;

/**
 * The decoder with what its file decides: without a word of it in config.json, the head is shared if the file has none. Files of
 * encoders may lack what is before it. Without `tensors`, a head that only they could decide is one of its own, as in transformers.
 */
export function resolveHead({ spec, ...rest }: Decoder, tensors?: ReadonlyMap<string, unknown>): Decoder {
  if (tensors === undefined) {
    const { tied = false } = spec.head;
    return { ...rest, spec: { ...spec, head: { ...spec.head, tied } } };
  }
  const { transform, ...head } = spec.head;
  const tied = head.tied ?? !tensors.has(`${rest.names.head}.weight`);
  const transforms = transform && tensors.has(`${rest.names.transform?.dense}.weight`);
  return { ...rest, spec: { ...spec, head: { ...head, tied, ...(transforms && { transform }) } } };
}

/**
 * The tensors that are read. Ignored are those that follow from the configuration, and a head beside a shared one, as
 * transformers ignores it. Throws BAD_FILE with all names that are missing, unexpected, or of another shape.
 */
export function checkTensors<T extends TensorFacts>(
  where: string,
  decoder: Decoder,
  tensors: ReadonlyMap<string, T>,
): ReadonlyMap<string, T> {
  const all = [decoder, decoder.encoder].flatMap((half) =>
    half ? expectedTensors(half, findRoot(half, tensors)) : [],
  );
  const required = new Map(all.flatMap((half) => [...half.required]));
  const optional = new Map(all.flatMap((half) => [...half.optional]));
  const missing = [...required.keys()].filter((name) => !tensors.has(name));
  const known = new Map([...required, ...optional]);
  const ownHead = `${decoder.names.head}.weight`;
  const isIgnored = (name: string) =>
    IGNORED.test(name) ||
    (name === ownHead && decoder.spec.head.tied !== false) ||
    decoder.family.ignoredTensors?.test(name) === true;
  const unexpected = [...tensors.keys()].filter((name) => !known.has(name) && !isIgnored(name));
  const mismatched = [...known].flatMap(([name, shape]) => {
    const own = tensors.get(name)?.shape;
    return own === undefined || hasShape(own, shape)
      ? []
      : [`${name} expected ${shapeText(shape)}, got ${shapeText(own)}`];
  });
  const found = [
    ...listed("missing", missing),
    ...listed("unexpected", unexpected),
    ...listed("of another shape", mismatched),
  ];
  if (found.length === 0) return new Map([...tensors].filter(([name]) => known.has(name)));
  const rule = `those of ${describe(decoder.spec.type)} with ${decoder.spec.blocks.length} layers`;
  throw new HeadwiseError("BAD_FILE", `${where}: tensors expected ${rule}, got ${found.join("; ")}`);
}

/** Names of one kind, layers folded together. */
function listed(kind: string, names: readonly string[]): string[] {
  if (names.length === 0) return [];
  const folded = new Map<string, number[]>();
  for (const name of names) {
    const [, before = name, layer = "", after = ""] = /^(.*?\.)(\d+)(\..*)$/s.exec(name) ?? [];
    const key = layer === "" ? name : `${before}#${after}`;
    const layers = folded.get(key) ?? [];
    if (layer !== "") layers.push(Number(layer));
    folded.set(key, layers);
  }
  const texts = [...folded].map(([key, layers]) => key.replace("#", () => layersText(layers)));
  const more = texts.length > MOST_NAMED ? ` and ${texts.length - MOST_NAMED} more` : "";
  return [`${names.length} ${kind}: ${texts.slice(0, MOST_NAMED).join(", ")}${more}`];
}

function layersText(layers: readonly number[]): string {
  const [first = 0] = layers;
  const last = layers.at(-1) ?? first;
  if (layers.length === 1) return `${first}`;
  return layers.length === last - first + 1 ? `{${first}..${last}}` : `{${layers.join(",")}}`;
}

interface Expected {
  /** By name, with their shapes. */
  readonly required: ReadonlyMap<string, readonly number[]>;
  readonly optional: ReadonlyMap<string, readonly number[]>;
}

/** The tensors of a decoder, besides the head below the prefix `root`. */
export function expectedTensors(decoder: Decoder, root: string): Expected {
  const required = new Map<string, readonly number[]>();
  const optional = new Map<string, readonly number[]>();
  for (const { name, shape, optional: isOptional, bias } of sourcesOf(decoder, root)) {
    (isOptional ? optional : required).set(name, shape);
    if (bias) (bias.required ? required : optional).set(bias.name, bias.shape);
  }
  return { required, optional };
}
