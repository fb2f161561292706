// Blocks of GGUF, as a file that is opened gives them.

import { openGguf, toFloats } from "../../src/entries/weights.ts";
import { writeGguf } from "../support/gguf-writer.ts";
import type { Case, Outcome } from "./case.ts";

/** What a tensor of a file becomes as floats. */
export async function dequantizeBlocks(c: Case): Promise<Outcome> {
  const { rows, columns, ggml_type: type } = c.entry.attributes as Readonly<Record<string, number>>;
  const shape = [rows as number, columns as number];
  const bytes = Uint8Array.from(c.values("blocks").data);
  const file = await openGguf(writeGguf({ tensors: [{ name: "w", type: type as number, shape, bytes }] }));
  return { outputs: { values: { data: toFloats(await file.read("w")), shape } } };
}
