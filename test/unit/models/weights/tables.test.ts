// docs/guide/models.md lists what the code knows.

import { readFileSync } from "node:fs";
import { expect, test } from "vitest";
import { ARCHITECTURES, DECODERS } from "../../../../src/models/families/gguf.ts";
import { COMPOSITES, latentModelTypes, modelTypes } from "../../../../src/models/families/hf-models.ts";
import { UNSUPPORTED_ARCHITECTURES, UNSUPPORTED_MODELS } from "../../../../src/models/families/unsupported.ts";

const page = readFileSync(new URL("../../../../docs/guide/models.md", import.meta.url), "utf8");

const namesIn = (table: Readonly<Record<string, string>>): string[] =>
  Object.values(table).flatMap((names) => names.split(" "));

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
  ["models", listed("`model_type` | what is read"), [...modelTypes(), ...Object.keys(COMPOSITES)]],
  ["models with latents", listed("`model_type` with latents"), latentModelTypes()],
  ["refused models", listed("`model_type` | because of"), namesIn(UNSUPPORTED_MODELS)],
  ["architectures", listed("`general.architecture`"), Object.keys(ARCHITECTURES)],
  ["architectures of decoders", listed("`general.architecture` of decoders"), Object.keys(DECODERS)],
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
  expect(names.filter((name) => ARCHITECTURES[name]?.pairing !== pairing)).toEqual([]);
});

test("no name is both supported and refused", () => {
  expect(modelTypes().filter((name) => namesIn(UNSUPPORTED_MODELS).includes(name) || name in COMPOSITES)).toEqual([]);
  expect(Object.keys(ARCHITECTURES).filter((name) => namesIn(UNSUPPORTED_ARCHITECTURES).includes(name))).toEqual([]);
});
