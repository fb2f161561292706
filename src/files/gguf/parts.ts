// A model in GGUF: one file, or several that are numbered.

import { codedDtype, isGgmlDtype } from "../../tensor/ggml-blocks.ts";
import { describe, HeadwiseError } from "../../util/errors.ts";
import type { ByteSource } from "../byte-source.ts";
import { joinFiles } from "../join-files.ts";
import type { TensorEntry, TensorFile } from "../tensor-file.ts";
import { type GgufFile, openCodedGguf } from "./gguf.ts";
import { PART } from "./part-names.ts";

/** The opened files of a model. */
export interface GgufParts {
  /** The first file, with the tensors of all. */
  readonly description: GgufFile;
  readonly file: Pick<GgufFile, "readAll" | "readRows">;
  /** Those whose blocks are coded as they are read have that dtype. */
  readonly tensors: ReadonlyMap<string, TensorEntry>;
}

/** Throws if what a file says of itself is not that it is part `part`, from 0, of as many parts and tensors as the first one. */
function expectPart(
  where: string,
  name: string,
  part: number,
  file: Pick<GgufFile, "metadata">,
  first: Pick<GgufFile, "metadata">,
): void {
  for (const key of ["split.no", "split.count", "split.tensors.count"]) {
    const stated = file.metadata.get(key);
    const expected = key === "split.no" ? part : first.metadata.get(key);
    if (stated === undefined || expected === undefined || Number(stated) === Number(expected)) continue;
    throw new HeadwiseError(
      "BAD_FILE",
      `${where}: key "${key}" of ${describe(name)} expected ${describe(expected)}, got ${describe(stated)}`,
    );
  }
}

/** Opens the file `name`, and the other parts of the model if it is one of several. */
export async function openGgufParts(
  where: string,
  name: string,
  open: (name: string) => Promise<ByteSource>,
): Promise<GgufParts> {
  const [, digits] = PART.exec(name) ?? [];
  const count = Number(digits ?? 1);
  const nameOf = (part: number) =>
    digits === undefined ? name : name.replace(PART, `-${`${part}`.padStart(5, "0")}-of-${digits}.gguf`);
  const files = new Map<string, TensorFile<GgufFile["metadata"] extends ReadonlyMap<string, infer V> ? V : never>>();
  for (let part = 1; part <= count; part++) files.set(nameOf(part), await openCodedGguf(await open(nameOf(part))));
  const first = files.get(nameOf(1)) as GgufFile;
  const stated = Number(first.metadata.get("split.count") ?? 1);
  if (Math.max(stated, 1) !== count)
    throw new HeadwiseError(
      "BAD_FILE",
      `${where}: source expected ${stated} files named ${describe(`NAME-00001-of-${`${stated}`.padStart(5, "0")}.gguf`)}, ` +
        `got ${describe(name)}`,
    );
  for (const [i, [own, file]] of [...files].entries()) expectPart(where, own, i, file, first);
  const owners = new Map<string, string>();
  const tensors = new Map<string, TensorEntry>();
  for (const [owner, file] of files)
    for (const [tensor, entry] of file.tensors) {
      if (owners.has(tensor))
        throw new HeadwiseError("BAD_FILE", `${where}: tensor ${describe(tensor)} expected in one file, got it in two`);
      owners.set(tensor, owner);
      tensors.set(tensor, isGgmlDtype(entry.dtype) ? { ...entry, dtype: codedDtype(entry.dtype) } : entry);
    }
  const all = joinFiles(owners, files);
  const read: GgufFile["read"] = async (tensor, from) => (await all.readAll([tensor], from)).get(tensor)!;
  return { description: { metadata: first.metadata, tensors, read, ...all }, file: all, tensors };
}
