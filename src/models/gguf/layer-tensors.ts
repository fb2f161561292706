import type { GgufFile } from "../../files/gguf/gguf.ts";
import { shapeText } from "../../tensor/dtypes.ts";
import { describe, HeadwiseError, tagOf } from "../../util/errors.ts";

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

/** The tensors of a layer by the name after its prefix. */
interface LayerParts {
  /** The full names of those that belong to attention. */
  names(): readonly string[];
  has(part: string): boolean;
  /** The last dimension; undefined if the tensor is absent. */
  length(part: string): number | undefined;
  expectShape(part: string, shape: readonly number[]): void;
  /** Throws unless the tensor, which is present, is a vector of one of these lengths. */
  expectLength(part: string, choices: readonly number[]): void;
  expectOnly(known: readonly string[]): void;
}

/** Finds the tensors of the layer whose names begin with `prefix`. */
export function partsOf(where: string, file: Pick<GgufFile, "metadata" | "tensors">, prefix: string): LayerParts {
  const names = [...file.tensors.keys()].filter((name) => name.startsWith(prefix));
  const shapeOf = (part: string) => file.tensors.get(prefix + part)?.shape;
  const files = Number(file.metadata.get("split.count") ?? 1);
  const none = files > 1 ? `no such tensor in this one of ${files} files` : "no such tensor";
  const inside = names.filter((name) => !OUTSIDE.test(name.slice(prefix.length)));
  return {
    names: () => inside,
    has: (part) => shapeOf(part) !== undefined,
    length: (part) => shapeOf(part)?.at(-1),
    expectShape(part, shape) {
      const found = shapeOf(part);
      if (found?.length !== shape.length || found.some((length, axis) => length !== shape[axis]))
        throw refusal(where, prefix + part, `shape ${shapeText(shape)}`, found ? shapeText(found) : none);
    },
    expectLength(part, choices) {
      const found = shapeOf(part) as readonly number[];
      if (found.length !== 1 || !choices.includes(found[0] as number))
        throw refusal(
          where,
          prefix + part,
          `shape ${choices.map((n) => shapeText([n])).join(" or ")}`,
          shapeText(found),
        );
    },
    expectOnly(known) {
      const unread = inside.find((name) => !known.includes(name.slice(prefix.length)));
      if (unread !== undefined)
        throw refusal(where, unread, "to be absent, since the layer would be read without it", "it");
    },
  };
}
