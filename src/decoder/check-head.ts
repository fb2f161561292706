// A head that a file stores although it is tied to the table of tokens.

import type { ModelFiles } from "../files/model-files.ts";
import { findRoot } from "../models/decoder/check-tensors.ts";
import type { Decoder } from "../models/decoder/read-spec.ts";
import { toFloats } from "../tensor/to-floats.ts";
import { describe, HeadwiseError } from "../util/errors.ts";

/** Rows at either end that are compared: a head that was trained on its own differs in all of them. */
const ROWS = 8;

/**
 * Throws BAD_FILE if the file has a head that is tied to the table of tokens, and differs from it: programs disagree on which of the
 * two such a model means.
 */
export async function expectTiedHead(where: string, decoder: Decoder, { tensors, file }: ModelFiles): Promise<void> {
  const { spec, names } = decoder;
  const [head, table] = [`${names.head}.weight`, `${findRoot(decoder, tensors)}${names.embed}.weight`];
  const stored = tensors.get(head);
  // Those of models for masked tokens have other names in each family, and vectors do not need them.
  if (names.transform !== undefined) return;
  if (spec.head.tied === false || stored === undefined || head === table) return;
  const [rows = 0] = stored.shape;
  const read = async (name: string, begin: number) =>
    toFloats(await file.readRows(name, begin, Math.min(begin + ROWS, rows), where), where).slice();
  const differ = async (begin: number) => {
    const [own, other] = [await read(head, begin), await read(table, begin)];
    return own.some((value, i) => !Object.is(value, other[i]));
  };
  const isSame =
    `${stored.shape}` === `${tensors.get(table)?.shape}` &&
    !((await differ(0)) || (await differ(Math.max(0, rows - ROWS))));
  if (isSame) return;
  const rule = `the values of ${describe(table)}, to which the head is tied`;
  throw new HeadwiseError(
    "BAD_FILE",
    `${where}: tensor ${describe(head)} expected ${rule}, got others; it is the head where tie_word_embeddings is false`,
  );
}
