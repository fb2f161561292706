// test/README.md is the map of claims and proofs: it names files and titles that exist, and every test file.

import { existsSync, readdirSync, readFileSync } from "node:fs";
import { join } from "node:path";
import { expect, test } from "vitest";

const root = join(import.meta.dirname, "../..");
const read = (path: string) => readFileSync(join(root, path), "utf8");
const isTest = (path: string) => /\.(test|long)\.ts$/.test(path);

const map = read("test/README.md");
const proofs = Array.from(map.matchAll(/`(test\/[^`\s]+\.ts)`(?:: "([^"]+)")?/g), ([, path, title]) => ({
  path: path as string,
  title: title?.replaceAll("\\|", "|"),
}));
const scripts = Object.keys((JSON.parse(read("package.json")) as { scripts: object }).scripts);
const pagesOf = (folder: string) => readdirSync(join(root, folder)).map((name) => `${folder}/${name}`);
const documents = ["README.md", "CONTRIBUTING.md", "test/README.md", "bench/README.md"].concat(
  ["docs", "docs/guide", "docs/reference"].flatMap(pagesOf).filter((name) => name.endsWith(".md")),
);

test("the titles that test/README.md names are in their files", () => {
  const missing = proofs.filter(
    ({ path, title }) => title && existsSync(join(root, path)) && !read(path).includes(title),
  );
  expect(missing).toEqual([]);
  expect(proofs.filter(({ title }) => title).length).toBeGreaterThan(50);
});

test("every test file proves a claim", () => {
  const files = readdirSync(join(root, "test"), { recursive: true, encoding: "utf8" })
    .map((name) => `test/${name}`)
    .filter((path) => isTest(path) && !path.includes("node_modules"));
  const named = new Set(proofs.map(({ path }) => path));
  expect(files.filter((path) => !named.has(path))).toEqual([]);
});

test.each(documents)("the files of test/ and the commands that %s names exist", (document) => {
  const text = read(document);
  const paths = Array.from(text.matchAll(/\btest\/[\w./-]*\w\.(?:ts|mjs|py|json)\b/g), ([path]) => path);
  const commands = Array.from(text.matchAll(/\bnpm run ([\w:-]+)/g), ([, name]) => name as string);
  expect(paths.filter((path) => !existsSync(join(root, path)))).toEqual([]);
  expect(commands.filter((name) => !scripts.includes(name))).toEqual([]);
});

test("the README names the browsers that test/browsers/install.sh demands and the runtimes of test/runtimes/package.json", () => {
  const text = read("README.md");
  const wanted = new Map(
    Array.from(read("test/browsers/install.sh").matchAll(/\b([\w-]+)=([\d.]+)(?=[ "])/g), ([, name, version]) => [
      name,
      version,
    ]),
  );
  const { devDependencies, optionalDependencies } = JSON.parse(read("test/runtimes/package.json"));
  const minor = (version: string) => /(\d+\.\d+)\.\d+$/.exec(version)?.[1];
  const nodes = Object.values<string>(optionalDependencies).map(minor);
  for (const [name, version] of [
    ["Chromium ", wanted.get("chromium")],
    ["Firefox ESR ", wanted.get("firefox-esr")],
    ["WebKitGTK ", wanted.get("webkit2gtk-driver")],
    ["Deno ", minor(devDependencies.deno)],
    ["Bun ", minor(devDependencies.bun)],
    ...nodes.map((version) => [String.raw`Node (?:[\d.]+, )*`, version]),
  ])
    expect(text).toMatch(new RegExp(`\\b${name}${version?.replace(".", "\\.")}\\b`));
});
