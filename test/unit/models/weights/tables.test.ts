// docs/guide/models.md and docs/guide/decoders.md list what the code knows, and the index what the files of families have.

import { readdirSync, readFileSync } from "node:fs";
import { expect, test } from "vitest";
import {
  DECODERS,
  ENCODERS,
  GGUF_DECODERS,
  GGUF_ENCODERS,
  GGUF_LAYERS,
  HALVES,
  LATENTS,
  LAYERS,
} from "../../../../src/models/families/index.ts";
import { COMPOSITES } from "../../../../src/models/families/other-layers.ts";
import {
  UNSUPPORTED_ARCHITECTURES,
  UNSUPPORTED_MODELS,
  WHOLE_MODELS,
} from "../../../../src/models/families/unsupported.ts";
import { pairingOf } from "../../../../src/models/weights/gguf-layer.ts";

const page = readFileSync(new URL("../../../../docs/guide/models.md", import.meta.url), "utf8");

const namesIn = (table: Readonly<Record<string, string>>): string[] =>
  Object.values(table).flatMap((names) => names.split(" "));

const modelTypes = [...LAYERS.keys()] as string[];
const architectures = [...GGUF_LAYERS.keys()] as string[];

const refusedModels = [...namesIn(UNSUPPORTED_MODELS), ...namesIn(WHOLE_MODELS)];
const refusedArchitectures = namesIn(UNSUPPORTED_ARCHITECTURES);

/** The names in a column of the tables whose head begins with `title`; `row`: of those rows alone. */
function listed(title: string, row = /./, column = 1): string[] {
  const names: string[] = [];
  let inside = false;
  for (const line of page.split("\n")) {
    if (!line.startsWith("|")) inside = false;
    else if (line.startsWith(`| ${title} |`)) inside = true;
    else if (inside && row.test(line))
      names.push(...Array.from((line.split("|")[column] ?? "").matchAll(/`([^`]+)`/g), ([, name]) => name as string));
  }
  return names.sort();
}

test.each<[what: string, names: string[], known: Iterable<string>]>([
  ["models", listed("`model_type` | what is read"), [...modelTypes, ...Object.keys(COMPOSITES)]],
  ["models with latents", listed("`model_type` with latents"), [...LATENTS.keys()] as string[]],
  ["refused models", listed("`model_type` | because of"), refusedModels],
  ["architectures", listed("`general.architecture`"), architectures],
  ["decoders", listed("`model_type` of decoders"), [...DECODERS.keys()] as string[]],
  ["architectures of decoders", listed("`model_type` of decoders", /./, 2), [...GGUF_DECODERS.keys()] as string[]],
  ["refused architectures", listed("refused architecture"), refusedArchitectures],
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
  expect(modelTypes.filter((name) => refusedModels.includes(name) || name in COMPOSITES)).toEqual([]);
  expect(architectures.filter((name) => refusedArchitectures.includes(name))).toEqual([]);
  expect([...DECODERS.keys()].filter((name) => namesIn(UNSUPPORTED_MODELS).includes(name as string))).toEqual([]);
  // Of models with towers, the type of the text model is read.
  expect(namesIn(WHOLE_MODELS).filter((name) => !DECODERS.has(name) && !DECODERS.has(`${name}_text`))).toEqual([]);
});

test("the index has what each file of a family states", async () => {
  const folder = new URL("../../../../src/models/families/", import.meta.url);
  const known: Readonly<Record<string, readonly unknown[]>> = {
    layers: [...LAYERS.values(), ...GGUF_LAYERS.values()],
    latents: [...LATENTS.values()],
    decoders: [...DECODERS.values(), ...GGUF_DECODERS.values()].map(({ attention }) => attention),
    encoders: [...ENCODERS.values(), ...GGUF_ENCODERS.values()].map(({ attention }) => attention),
    halves: [...HALVES.values()].map(({ attention }) => attention),
  };
  let found = 0;
  for (const file of readdirSync(folder)) {
    const stated: Readonly<Record<string, unknown>> = await import(new URL(file, folder).href);
    for (const [kind, list] of Object.entries(known)) {
      const records = typeof stated[kind] === "function" ? stated[kind]() : stated[kind];
      for (const record of (records ?? []) as readonly { readonly attention?: unknown }[]) {
        expect(list, `${kind} of ${file}`).toContain(record.attention ?? record);
        found++;
      }
    }
  }
  expect(found).toBeGreaterThan(100);
});
