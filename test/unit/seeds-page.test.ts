// docs/seeds.md names what does each thing that the five tutorials describe.

import { existsSync, readdirSync, readFileSync } from "node:fs";
import { dirname, join } from "node:path";
import { describe, expect, test } from "vitest";
import { reference } from "../../src/reference/index.ts";

const root = join(import.meta.dirname, "../..");
const read = (file: string) => readFileSync(join(root, file), "utf8");

/** How many rows the list of each tutorial has: S0-01 to S0-10 and so on. */
const ROWS = { S0: 10, S1: 17, S2: 10, S3: 19, S4: 18 };
const IDS = Object.entries(ROWS).flatMap(([tutorial, count]) =>
  Array.from({ length: count }, (_, i) => `${tutorial}-${String(i + 1).padStart(2, "0")}`),
);

const rows = Array.from(read("docs/seeds.md").matchAll(/^\| (S\d-\d\d) \|(.*)\|$/gm), ([, id, rest]) => {
  const [does = "", where = "", ...more] = (rest as string).split(" | ").map((cell) => cell.trim());
  return { id: id as string, does, where, more };
});

/** What users can import: the names that any entry exports. */
const entries = readdirSync(join(root, "src/entries")).filter((file) => /^[a-z-]+\.ts$/.test(file));
const exported = [...entries.map((file) => `src/entries/${file}`), "src/reference/index.ts"].flatMap((file) =>
  Array.from(read(file).matchAll(/^export (?:type )?\{([^}]*)\}/gm), ([, names]) =>
    (names as string).split(",").map((name) => name.replace(/^\s*type /, "").trim()),
  ).flat(),
);
/** What users can pass: fields and options in the tables of docs/api.md, and stages of `traceAttention` in those of its guide. */
const tabled = [read("docs/api.md"), read("docs/guide/stages.md")].flatMap((text) =>
  Array.from(text.matchAll(/^\| .*$/gm), ([row]) => Array.from(row.matchAll(/`(\w+)`/g), ([, name]) => name)).flat(),
);
const known = new Set([...exported, ...Object.keys(reference), ...tabled]);

test("has every row once, in order, with two cells that are not empty", () => {
  expect(rows.map(({ id }) => id)).toEqual(IDS);
  expect(rows.filter(({ does, where, more }) => does === "" || where === "" || more.length > 0)).toEqual([]);
});

describe.each(rows)("$id", ({ where }) => {
  const links = Array.from(where.matchAll(/\]\(([^)#]*)(?:#([^)]*))?\)/g));
  const names = Array.from(where.replace(/\]\([^)]*\)/g, "]").matchAll(/`([a-z]\w+)`/g), ([, name]) => name as string);

  test("names what does it", () => {
    expect(links.length + names.length).toBeGreaterThan(0);
  });

  test("its links lead to files and folders, and its names are those of functions, options and stages", () => {
    const dead = links.filter(([, path]) => !existsSync(join(root, dirname("docs/seeds.md"), path as string)));
    expect(dead.map(([link]) => link)).toEqual([]);
    expect(names.filter((name) => !known.has(name))).toEqual([]);
  });
});

test("every script that it names exists, and every tutorial that it lets run", () => {
  const text = read("docs/seeds.md");
  const { scripts } = JSON.parse(read("package.json"));
  for (const [, script, name] of text.matchAll(/`npm run (\w+)(?: -- (\w+))?`/g)) {
    expect(scripts).toHaveProperty(script as string);
    if (name) expect(existsSync(join(root, `examples/seeds/${name}.ts`))).toBe(true);
  }
});
