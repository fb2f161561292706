// The pages of test/claims are the map of claims and proofs: they name files and titles of tests that run, and every test file.

import { existsSync, readdirSync, readFileSync } from "node:fs";
import { join } from "node:path";
import { expect, test } from "vitest";
import { stringsOf, titlesOf } from "../support/titles.ts";

const root = join(import.meta.dirname, "../..");
const read = (path: string) => readFileSync(join(root, path), "utf8");
const isTest = (path: string) => /\.(test|long)\.ts$/.test(path);

const pagesOf = (folder: string) => readdirSync(join(root, folder)).map((name) => `${folder}/${name}`);
const claims = pagesOf("test/claims");

interface Proof {
  /** A test file, or one of the commands `test:site` and `test:examples`. */
  readonly path: string;
  /** Titles of the file, or names that the command's option --only knows. */
  readonly titles: string[];
}

const proofs = claims.map(read).flatMap(proofsOf);

/** What the tables of a text name: each file and command, with the titles that stand behind it, up to the next one. */
function proofsOf(text: string): Proof[] {
  return text
    .split("\n")
    .filter((row) => row.startsWith("|"))
    .flatMap((row) => {
      const found: Proof[] = [];
      const named =
        /`(test\/[^`\s]+\.ts)`|`npm run (test:(?:site|examples))(?: -- --only "([^"]+)")?`|"((?:[^"\\]|\\.)+)"/g;
      for (const [, file, command, only, title] of row.split(" | ").slice(1).join(" | ").matchAll(named)) {
        const path = file ?? command;
        if (path) found.push({ path, titles: only ? [only] : [] });
        else found.at(-1)?.titles.push((title as string).replaceAll("\\|", "|"));
      }
      return found;
    });
}

/** The proofs with titles that their file or command does not have. */
function missingOf(named: readonly Proof[], has: (path: string, title: string) => boolean): Proof[] {
  return named
    .map(({ path, titles }) => ({ path, titles: titles.filter((title) => !has(path, title)) }))
    .filter(({ titles }) => titles.length > 0);
}

const scripts = Object.keys((JSON.parse(read("package.json")) as { scripts: object }).scripts);
const documents = ["README.md", "test/README.md", "bench/README.md", ...claims].concat(
  ["docs", "docs/design", "docs/guide", "docs/reference"].flatMap(pagesOf).filter((name) => name.endsWith(".md")),
);

test("every title that test/claims names is that of a test which runs", () => {
  const known = new Map<string, ReadonlySet<string>>();
  const has = (path: string, title: string) => {
    if (!known.has(path)) known.set(path, existsSync(join(root, path)) ? titlesOf(read(path)) : new Set());
    return known.get(path)?.has(title) ?? false;
  };
  const files = proofs.filter(({ path }) => path.endsWith(".ts"));
  expect(missingOf(files, has)).toEqual([]);
  expect(files.flatMap(({ titles }) => titles).length).toBeGreaterThan(390);
});

test("every name behind a command is that of a scenario of its folder, or a part of some", () => {
  const namesIn = (command: string) => {
    const folder = command.replace(":", "/");
    const files = readdirSync(join(root, folder), { recursive: true, encoding: "utf8" });
    const scripts = files.filter((name) => name.endsWith(".mjs") && !name.includes("node_modules"));
    return scripts.flatMap((name) => [...stringsOf(read(`${folder}/${name}`))]);
  };
  const known = new Map(["test:site", "test:examples"].map((command) => [command, namesIn(command)]));
  const has = (command: string, title: string) => known.get(command)?.some((name) => name.includes(title)) ?? false;
  const commands = proofs.filter(({ path }) => path.startsWith("test:"));
  expect(missingOf(commands, has)).toEqual([]);
  expect(commands.length).toBeGreaterThan(10);
});

test("titles in comments, and tests that are skipped, prove nothing", () => {
  const text = `// test("a comment", () => {});
    test.skip("skipped", () => {});
    test("off", { skip: true }, () => {});
    test.todo("to do", () => {});
    describe.skip("a group", () => { test("in it", () => {}); });
    describe.skipIf(isWindows)("some systems", () => { test.each(rows)("run %i" + " twice", () => {}); });
    test("given", () => { note("not a title", 1); });`;
  expect([...titlesOf(text)]).toEqual(["some systems", "run %i twice", "given"]);
  const named =
    '| "a claim" | `test/a.ts`: "given", "with \\| and, `code`", `npm run test:site -- --only "one, two"`: "three" |';
  expect(proofsOf(named)).toEqual([
    { path: "test/a.ts", titles: ["given", "with | and, `code`"] },
    { path: "test:site", titles: ["one, two", "three"] },
  ]);
  expect(missingOf(proofsOf(named), (_, title) => ["given", "three"].includes(title))).toEqual([
    { path: "test/a.ts", titles: ["with | and, `code`"] },
    { path: "test:site", titles: ["one, two"] },
  ]);
});

test("every test file proves a claim", () => {
  const files = readdirSync(join(root, "test"), { recursive: true, encoding: "utf8" })
    .map((name) => `test/${name}`)
    .filter((path) => isTest(path) && !path.includes("node_modules"));
  const named = new Set(proofs.map(({ path }) => path));
  expect(files.filter((path) => !named.has(path))).toEqual([]);
});

test("test/README.md leads to every page of claims, and each claim stands once", () => {
  const index = read("test/README.md");
  expect(claims.filter((page) => !index.includes(`(${page.replace("test/", "")})`))).toEqual([]);
  const rows = claims.map(read).flatMap((text) => text.split("\n").filter((row) => /^\| (?!claim )/.test(row)));
  const named = rows.map((row) => row.split(" | ")[0] as string);
  expect(named.filter((claim, i) => named.indexOf(claim) < i)).toEqual([]);
  expect(named.length).toBeGreaterThan(190);
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
