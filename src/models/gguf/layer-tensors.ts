import type { GgufFile } from "../../files/gguf/gguf.ts";
import { hasShape, shapeText } from "../../tensor/dtypes.ts";
import { describe, HeadwiseError, tagOf } from "../../util/errors.ts";
import type { NamedShapes } from "../decoder/attention-tensors.ts";

/** Tensors with a layer's `attn_` prefix that are not part of attention: norms around it, and unused tables. */
const OUTSIDE = /^(norm|norm_2|output_norm|rot_embd)\./;

/** The tensor of divisors of RoPE frequencies, and those of longrope. */
export const FACTORS = "rope_freqs.weight";
export const LONG_FACTORS = "rope_factors_long.weight";
export const SHORT_FACTORS = "rope_factors_short.weight";

/** Throws unless `file` is one that openGguf gave. */
export function expectFile(where: string, file: GgufFile): void {
  const isMap = (value: unknown) => tagOf(value) === "Map";
  const { metadata, tensors, read, readAll } = Object(file) as Partial<GgufFile>;
  if (isMap(metadata) && isMap(tensors) && typeof read === "function" && typeof readAll === "function") return;
  throw new TypeError(
    `${where}: file expected metadata, tensors, read and readAll, as openGguf gives them, got ${describe(file)}`,
  );
}

/** What is wrong with a tensor. */
export function refusal(where: string, name: string, rule: string, got: string): HeadwiseError {
  return new HeadwiseError("BAD_FILE", `${where}: tensor ${describe(name)} expected ${rule}, got ${got}`);
}

/** Throws if the file has the tensors of longrope, whose choice depends on a session that a layer does not know. */
export function expectNoLongrope(where: string, { tensors }: GgufFile): void {
  for (const name of [LONG_FACTORS, SHORT_FACTORS])
    if (tensors.has(name)) throw refusal(where, name, "to be absent, since longrope is unsupported", "it");
}

/** The tensors of a layer's attention, by the name after its prefix: those it must have, and those it may have. */
export interface AttentionShapes {
  readonly required: NamedShapes;
  readonly optional: NamedShapes;
}

/** The full names of the attention tensors below `prefix`. Throws unless they are those of the layer, of these shapes. */
export function expectTensors(
  where: string,
  file: Pick<GgufFile, "metadata" | "tensors">,
  prefix: string,
  required: NamedShapes,
  optional: NamedShapes = [],
): readonly string[] {
  const names = attentionNames(file, prefix);
  const files = Number(file.metadata.get("split.count") ?? 1);
  const none = files > 1 ? `no such tensor in this one of ${files} files` : "no such tensor";
  for (const [part, shape] of [...required, ...optional.filter(([part]) => file.tensors.has(prefix + part))]) {
    const found = file.tensors.get(prefix + part)?.shape;
    if (!hasShape(found, shape))
      throw refusal(where, prefix + part, `shape ${shapeText(shape)}`, found ? shapeText(found) : none);
  }
  const known = [...required, ...optional].map(([part]) => prefix + part);
  const unread = names.find((name) => !known.includes(name));
  if (unread !== undefined)
    throw refusal(where, unread, "to be absent, since the layer would be read without it", "it");
  return names;
}

/** The names of the tensors below `prefix` that belong to attention. */
function attentionNames({ tensors }: Pick<GgufFile, "tensors">, prefix: string): readonly string[] {
  return [...tensors.keys()].filter((name) => name.startsWith(prefix) && !OUTSIDE.test(name.slice(prefix.length)));
}
