// docs/guide/models.md lists what the code knows.

import { readFileSync } from "node:fs";
import { expect, test } from "vitest";
import { GGUF_DECODERS, GGUF_LAYERS, LATENTS, LAYERS } from "../../../../src/models/families/index.ts";
import { COMPOSITES } from "../../../../src/models/families/other-layers.ts";
import { UNSUPPORTED_ARCHITECTURES, UNSUPPORTED_MODELS } from "../../../../src/models/families/unsupported.ts";
import { pairingOf } from "../../../../src/models/weights/gguf-config.ts";

const page = readFileSync(new URL("../../../../docs/guide/models.md", import.meta.url), "utf8");

const namesIn = (table: Readonly<Record<string, string>>): string[] =>
  Object.values(table).flatMap((names) => names.split(" "));

const modelTypes = [...LAYERS.keys()] as string[];
const architectures = [...GGUF_LAYERS.keys()] as string[];

/** The names in the first column of the tables whose head begins with `title`; `row`: of those rows alone. */
function listed(title: string, row = /./): string[] {
  const names: string[] = [];
  let inside = false;
  for (const line of page.split("\n")) {
    if (!line.startsWith("|")) inside = false;
    else if (line.startsWith(`| ${title} |`)) inside = true;
    else if (inside && row.test(line))
      names.push(...Array.from((line.split("|")[1] ?? "").matchAll(/`([^`]+)`/g), ([, name]) => name as string));
  }
  return names.sort();
}

test.each<[what: string, names: string[], known: Iterable<string>]>([
  ["models", listed("`model_type` | what is read"), [...modelTypes, ...Object.keys(COMPOSITES)]],
  ["models with latents", listed("`model_type` with latents"), [...LATENTS.keys()] as string[]],
  ["refused models", listed("`model_type` | because of"), namesIn(UNSUPPORTED_MODELS)],
  ["architectures", listed("`general.architecture`"), architectures],
  ["architectures of decoders", listed("`general.architecture` of decoders"), [...GGUF_DECODERS.keys()] as string[]],
  ["refused architectures", listed("refused architecture"), namesIn(UNSUPPORTED_ARCHITECTURES)],
])("the tables list all %s once", (_, names, known) => {
  expect(names.length).toBeGreaterThan(4);
  expect(names).toEqual([...known].sort());
});

test.each([
  ["interleaved", "interleaved"],
  ["half", "half"],
  ["none", undefined],
])("the architectures under %s have that pairing", (title, pairing) => {
  const names = listed("`general.architecture`", new RegExp(`\\| ${title} \\|$`));
  expect(names.length).toBeGreaterThan(0);
  expect(names.filter((name) => pairingOf(GGUF_LAYERS.get(name) ?? {}) !== pairing)).toEqual([]);
});

test("no name is both supported and refused", () => {
  expect(modelTypes.filter((name) => namesIn(UNSUPPORTED_MODELS).includes(name) || name in COMPOSITES)).toEqual([]);
  expect(architectures.filter((name) => namesIn(UNSUPPORTED_ARCHITECTURES).includes(name))).toEqual([]);
});
