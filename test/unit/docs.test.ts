// Every example that users read runs, type-checks and prints what its comments show: the ```ts blocks of the documents and the
// @example of every public function (```ts no-run is only type-checked: it needs files or a host of its own). And what
// the documents point at exists.

import { execFileSync } from "node:child_process";
import { existsSync, mkdirSync, readdirSync, readFileSync, rmSync, statSync, writeFileSync } from "node:fs";
import { dirname, join } from "node:path";
import { format } from "node:util";
import { afterAll, beforeAll, expect, test, vi } from "vitest";
import { DECODERS, GGUF_DECODERS } from "../../src/models/families/index.ts";
import { fasterClock } from "../support/clock.ts";
import { sampled } from "../support/sampled.ts";

const root = join(import.meta.dirname, "../..");
const folder = join(root, "build/docs");
const read = (file: string) => readFileSync(join(root, file), "utf8");

interface Example {
  readonly name: string;
  readonly code: string;
  readonly runs: boolean;
}

function blocksOf(file: string): Example[] {
  const found = read(file).matchAll(/^```ts( no-run)?\n([\s\S]*?)^```/gm);
  return Array.from(found, ([, flag, code], i) => ({
    name: `${file} block ${i + 1}`,
    code: code as string,
    runs: flag === undefined,
  }));
}

function examplesOf(file: string): Example[] {
  const found = read(file).matchAll(/@example\n((?: \*.*\n)+?) \*(?:\/| @)/g);
  return Array.from(found, ([, body], i) => ({
    name: `${file} example ${i + 1}`,
    code: (body as string).replace(/^ \* ?/gm, ""),
    runs: true,
  }));
}

/**
 * What the console.log statements of an example say they print, in their order. A comment behind one is the printed
 * text, with nothing or ": and why" behind it; without a comment, anything may be printed.
 */
function printedBy(code: string): (string | undefined)[] {
  return Array.from(code.matchAll(/console\.log\([\s\S]*?\);(?: \/\/ (.*))?$/gm), ([, comment]) => comment);
}

const pagesOf = (folder: string) => readdirSync(join(root, folder)).map((name) => `${folder}/${name}`);
const documents = ["README.md", ...["docs", "docs/design", "docs/guide"].flatMap(pagesOf)].filter((file) =>
  file.endsWith(".md"),
);
const sources = readdirSync(join(root, "src"), { recursive: true, encoding: "utf8" }).filter(
  (file) => file.endsWith(".ts") && !file.endsWith(".d.ts") && !file.startsWith("reference/"),
);
const examples = [...documents.flatMap(blocksOf), ...sources.map((file) => `src/${file}`).flatMap(examplesOf)];
const fileOf = (i: number) => join(folder, `example-${i}.ts`);

beforeAll(() => {
  mkdirSync(folder, { recursive: true });
  for (const [i, { code }] of examples.entries()) writeFileSync(fileOf(i), `${code}export {};\n`);
});
afterAll(() => rmSync(folder, { recursive: true, force: true }));

test("there are examples to run", () => {
  expect(documents.flatMap(blocksOf).length).toBeGreaterThan(3);
  expect(examples.length).toBeGreaterThan(15);
});

const running = examples.flatMap(({ name, code, runs }, i) => (runs ? [[name, code, i] as const] : []));

// All of README, and of each other file one at least: every change tests what a reader of any file copies.
const drawn = sampled(running, 1, ([name]) => (name.startsWith("README") ? name : (name.split(" ")[0] as string)));

test.each(drawn)("%s runs and prints what its comments show", async (_name, code, i) => {
  using _ = fasterClock();
  const printed: string[] = [];
  const log = vi
    .spyOn(console, "log")
    .mockImplementation((...args) => void printed.push(format(...args).replace(/\s+/g, " ")));
  try {
    await import(fileOf(i));
  } finally {
    log.mockRestore();
  }
  const expected = printedBy(code);
  expect(printed.length).toBe(expected.length);
  for (const [at, text] of printed.entries()) {
    const comment = expected[at];
    if (comment !== undefined && !comment.startsWith(`${text}: `)) expect(text).toBe(comment);
  }
});

test("every example type-checks", () => {
  const config = { extends: "../../tsconfig.json", include: ["*.ts", "../../src/entries/assets.d.ts"] };
  const compilerOptions = { noUnusedLocals: false };
  writeFileSync(join(folder, "tsconfig.json"), JSON.stringify({ ...config, compilerOptions }));
  const tsc = join(root, "node_modules/typescript/bin/tsc");
  let output = "";
  try {
    execFileSync(process.execPath, [tsc, "-p", folder], { encoding: "utf8" });
  } catch (error) {
    output = String((error as { stdout?: string }).stdout);
  }
  const named = output.replace(/\S*example-(\d+)\.ts/g, (_, i) => examples[Number(i)]?.name ?? "");
  expect(named).toBe("");
});

test("every public function has an example of its own", async () => {
  const entries = [
    await import("../../src/entries/index.ts"),
    await import("../../src/entries/core.ts"),
    await import("../../src/entries/threads.ts"),
    await import("../../src/entries/weights.ts"),
  ];
  const names = new Set(entries.flatMap((entry) => Object.keys(entry)));
  const code = sources.map((file) => read(`src/${file}`)).join("\n");
  const missing = Array.from(names).filter((name) => {
    const documented = code.matchAll(
      new RegExp(
        `(\\/\\*\\*(?:(?!\\*\\/)[\\s\\S])*\\*\\/\\n)?export (?:async )?(?:function|class|const) ${name}\\b`,
        "g",
      ),
    );
    const comments = Array.from(documented, ([, comment]) => comment);
    return comments.length === 0 || comments.some((comment) => !comment?.includes("@example"));
  });
  expect(missing).toEqual([]);
});

test.each([
  ["AttentionConfig", "src/layers/attention/config.ts"],
  ["AttendOptions", "src/layers/pass/call.ts"],
  ["LatentConfig", "src/layers/latent/config.ts"],
  ["LatentWeights", "src/layers/latent/config.ts"],
  ["LatentOptions", "src/layers/latent/config.ts"],
  ["SliceOptions", "src/layers/pass/forward.ts"],
  ["LinearWeights", "src/layers/api/linear.ts"],
  ["SdpaOptions", "src/layers/api/sdpa.ts"],
  ["MaskOptions", "src/layers/attention/mask.ts"],
  ["PlacementOptions", "src/layers/attention/mask.ts"],
  ["CacheOptions", "src/layers/state/kv-cache.ts"],
  ["KvCacheOptions", "src/layers/state/kv-cache.ts"],
  ["LoadOptions", "src/wasm/modules.ts"],
])("the tables of docs/api.md have every field of %s", (name, file) => {
  const body = read(file).match(new RegExp(`^export interface ${name}\\b[^{]*\\{\\n([\\s\\S]*?)^\\}`, "m"))?.[1] ?? "";
  const fields = Array.from(body.matchAll(/^ {2}readonly (\w+)\??:/gm), ([, field]) => field as string);
  const rows = read("docs/api.md")
    .split("\n")
    .filter((line) => line.startsWith("| "))
    .map((line) => line.split(" | ")[0] as string);
  expect(fields.length).toBeGreaterThan(1);
  expect(fields.filter((field) => !rows.some((row) => row.includes(`\`${field}\``)))).toEqual([]);
});

test("every error code has a row in docs/api.md", () => {
  const codes = Array.from(
    read("src/base/util/errors.ts").matchAll(/^ {2}\| "([A-Z_]+)"/gm),
    ([, code]) => code as string,
  );
  expect(codes.length).toBeGreaterThan(5);
  expect(codes.filter((code) => !read("docs/api.md").includes(`| \`${code}\` |`))).toEqual([]);
});

test("the README says how many types of decoders and architectures of GGUF are read", () => {
  const [types, architectures] = [DECODERS.size, GGUF_DECODERS.size];
  expect(read("README.md")).toContain(`| ${types} types of decoders: `);
  expect(read("README.md")).toContain(`| ${architectures} architectures of GGUF |`);
});

test("the README takes at most 10 KB", () => {
  expect(statSync(join(root, "README.md")).size).toBeLessThanOrEqual(10_240);
});

test("a page of docs/design takes at most 90 lines, and the CHANGELOG 8 KB for one version", () => {
  const lines = (page: string) => read(page).split("\n").length - 1;
  expect(pagesOf("docs/design").filter((page) => lines(page) > 90)).toEqual([]);
  const versions = read("CHANGELOG.md").split(/^(?=## )/m);
  expect(versions.filter((text) => Buffer.byteLength(text) > 8192)).toEqual([]);
});

/** Paragraphs and items of lists, without code. */
function paragraphsOf(page: string): string[] {
  const text = read(page).replace(/^```[\s\S]*?^```/gm, "");
  const parts = text.split(/\n(?=\n|\||#|\s*(?:-|\d+\.) )/);
  return parts.map((part) => part.trim()).filter((part) => part !== "" && !/^[|#]/.test(part));
}

/** Ends of sentences: a full stop, question mark or colon at the end, or one before a capital. */
function sentencesOf(paragraph: string): number {
  const plain = paragraph.replace(/`[^`]*`/g, "X").replace(/\]\([^)]*\)/g, "]");
  return (plain.match(/[.!?][")\]*]*(?=\s+["([*]*[A-Z0-9])|[.!?:][")\]*]*$/g) ?? []).length;
}

test.each([...documents, "test/README.md"])("no paragraph of %s has more than 6 sentences", (page) => {
  expect(sentencesOf("It is `a. B`. And? Yes (no.) So:")).toBe(4);
  expect(paragraphsOf(page).filter((paragraph) => sentencesOf(paragraph) > 6)).toEqual([]);
});

test("the blocks of the documents that run read no file and fetch nothing", () => {
  const blocks = documents.flatMap(blocksOf).filter(({ runs }) => runs);
  const reading = blocks.filter(({ code }) => /node:|\bfetch\(|\burlSource\(/.test(code));
  expect(reading.map(({ name }) => name)).toEqual([]);
});

test("no document and no example reads weights with readFileSync or as a whole, except the small model of the examples", () => {
  const programs = readdirSync(join(root, "examples"), { recursive: true, encoding: "utf8" })
    .filter((file) => /\.(md|ts|mjs|html)$/.test(file) && !file.includes("node_modules"))
    .map((file) => `examples/${file}`);
  const lines = [...documents, ...programs].flatMap((file) =>
    read(file)
      .split("\n")
      .map((line) => `${file}: ${line}`),
  );
  const reading = lines.filter((line) => /\b(readFile|readFileSync|Bun\.file)\(/.test(line));
  expect(reading.length).toBeGreaterThan(5);
  const whole = reading.filter(
    (line) => /\.safetensors\b(?!\.index)|\.gguf|\$\{name/.test(line) && !/model\.safetensors/.test(line),
  );
  expect(whole).toEqual([]);
});

const linked = [
  ...documents,
  "CHANGELOG.md",
  "test/README.md",
  ...pagesOf("test/claims"),
  "model/README.md",
  "model/stories/README.md",
  "model/training/README.md",
];

/** The anchors of a page's headings, as GitHub makes them. */
function anchorsOf(page: string): string[] {
  const headings = read(page)
    .replace(/^```[\s\S]*?^```/gm, "")
    .matchAll(/^#+ (.*)$/gm);
  return Array.from(headings, ([, text]) =>
    (text as string)
      .toLowerCase()
      .replace(/[^\p{L}\p{N}_ -]/gu, "")
      .replace(/ /g, "-"),
  );
}

test.each(linked)("every relative link of %s leads to a file, and to a heading of it", (page) => {
  const links = Array.from(read(page).matchAll(/\]\((?![a-z]+:)([^)#\s]*)(?:#([^)\s]*))?\)/g));
  const broken = links.filter(([, path, anchor]) => {
    const target = path === "" ? page : join(dirname(page), path as string);
    if (!existsSync(join(root, target))) return true;
    return anchor !== undefined && !anchorsOf(target).includes(anchor);
  });
  expect(broken.map(([link]) => link)).toEqual([]);
});

test.each(linked.filter((page) => page !== "CHANGELOG.md"))("every file that %s names exists", (page) => {
  const names = Array.from(
    read(page).matchAll(/`((?:assembly|src|scripts|test|bench|docs|examples|model)\/[\w./-]+)`/g),
    ([, name]) => name as string,
  );
  expect(names.filter((name) => !existsSync(join(root, name)))).toEqual([]);
});

test("repository, homepage and bugs of package.json have one address, by which npm resolves the README's links", () => {
  const { repository, homepage, bugs } = JSON.parse(read("package.json"));
  const address = repository.url.replace(/^git\+/, "").replace(/\.git$/, "");
  expect(repository).toEqual({ type: "git", url: `git+${address}.git` });
  expect(address).toMatch(/^https:\/\/github\.com\/[\w-]+\/[\w-]+$/);
  expect(homepage).toBe(`${address}#readme`);
  expect(bugs).toBe(`${address}/issues`);
});

test("CONTRIBUTING.md names the file that declares the formats of caches", () => {
  const file = /its name and bytes on the host \| `([^`]+)`/.exec(read("docs/CONTRIBUTING.md"))?.[1] ?? "";
  expect(read(file)).toContain("export const CACHE_FORMATS");
});
