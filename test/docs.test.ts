// Every example that users read runs: the ```ts blocks of the documents (```ts no-run is only for reading) and the
// @example of every public export.

import { mkdirSync, readdirSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { afterAll, beforeAll, expect, test } from "vitest";

const root = join(import.meta.dirname, "..");
const folder = join(root, "build/docs");

interface Example {
  readonly name: string;
  readonly code: string;
}

function blocksOf(file: string): Example[] {
  const text = readFileSync(join(root, file), "utf8");
  const found = Array.from(text.matchAll(/^```ts\n([\s\S]*?)^```/gm), ([, code]) => code as string);
  return found.map((code, i) => ({ name: `${file} block ${i + 1}`, code }));
}

function examplesOf(file: string): Example[] {
  const text = readFileSync(join(root, file), "utf8");
  const found = text.matchAll(/@example\n((?: \*.*\n)+?) \*(?:\/| @)/g);
  return Array.from(found, ([, body], i) => ({
    name: `${file} example ${i + 1}`,
    code: (body as string).replace(/^ \* ?/gm, ""),
  }));
}

const documents = ["README.md", ...readdirSync(join(root, "docs")).map((name) => `docs/${name}`)].filter((file) =>
  file.endsWith(".md"),
);
const sources = readdirSync(join(root, "src")).filter((file) => file.endsWith(".ts") && !file.endsWith(".d.ts"));
const examples = [...documents.flatMap(blocksOf), ...sources.map((file) => `src/${file}`).flatMap(examplesOf)];

beforeAll(() => mkdirSync(folder, { recursive: true }));
afterAll(() => rmSync(folder, { recursive: true, force: true }));

test("there are examples to run", () => {
  expect(documents.flatMap(blocksOf).length).toBeGreaterThan(3);
  expect(examples.length).toBeGreaterThan(15);
});

test.each(examples.map(({ name, code }, i) => [name, code, i] as const))("%s runs", async (_name, code, i) => {
  const file = join(folder, `example-${i}.ts`);
  writeFileSync(file, code);
  await import(file);
});

test("every public function has an example that runs", async () => {
  const api = await import("../src/index.ts");
  const code = examples.map((example) => example.code).join("\n");
  const missing = Object.keys(api).filter((name) => !new RegExp(`\\b${name}\\b`).test(code));
  expect(missing).toEqual([]);
});
