// The rules that neither compiler checks: which way imports point, and who may name what.

import { readdirSync, readFileSync } from "node:fs";
import { dirname, join } from "node:path";
import { expect, test } from "vitest";
import { staleCopies } from "../../scripts/entries.mjs";
import { KERNEL_ARITY } from "../../src/wasm/abi.ts";
import { wasmOf } from "../support/modules.ts";

const root = join(import.meta.dirname, "../..");

/** The folders of src/, bottom to top: a file imports its own folder or one that stands before it. */
const ORDER = [
  ...["util", "tensor", "platform", "wasm", "linear", "attention", "cache", "forward", "api", "diagnostics"],
  ...["files", "models", "threads", "shards", "entries", "cli"],
];

/** The folders of assembly/ and those that each may import, besides itself and the files that lie in the root. */
const KERNEL_FOLDERS: Readonly<Record<string, readonly string[]>> = {
  math: [],
  linear: ["math"],
  cache: ["math"],
  pointwise: ["math"],
  attention: ["math", "linear", "cache", "pointwise"],
  unfused: ["math", "linear", "cache", "pointwise"],
};

function filesOf(folder: string): string[] {
  return readdirSync(join(root, folder), { recursive: true, encoding: "utf8" })
    .filter((file) => file.endsWith(".ts") && !file.endsWith(".d.ts"))
    .map((file) => join(folder, file));
}

const readText = (file: string) => readFileSync(join(root, file), "utf8");

/** A file without comments and without the text of its strings. */
const codeOf = (file: string) =>
  readText(file).replace(/\/\*[\s\S]*?\*\/|\/\/.*|"(?:[^"\\\n]|\\.)*"/g, (found) => (found[0] === '"' ? '""' : ""));

/** What a file imports, `import()` included, by path from the root. */
function importsOf(file: string): string[] {
  return Array.from(readText(file).matchAll(/(?:\bfrom|\bimport\()\s*"(\.[^"]+)"/g), ([, path]) => {
    const target = join(dirname(file), path as string);
    return file.startsWith("assembly/") ? `${target}.ts` : target;
  });
}

/** Arrows that `isWrong` says must not be. */
function wrongImports(files: readonly string[], isWrong: (from: string, to: string) => boolean): string[] {
  return files.flatMap((from) =>
    importsOf(from)
      .filter((to) => isWrong(from, to))
      .map((to) => `${from} -> ${to}`),
  );
}

/** One circle of imports among files, if there is any. */
function findCircle(files: readonly string[]): string {
  const done = new Set<string>();
  const visit = (file: string, path: readonly string[]): string => {
    if (path.includes(file)) return [...path.slice(path.indexOf(file)), file].join(" -> ");
    if (done.has(file) || !files.includes(file)) return "";
    for (const next of importsOf(file)) {
      const circle = visit(next, [...path, file]);
      if (circle !== "") return circle;
    }
    done.add(file);
    return "";
  };
  for (const file of files) {
    const circle = visit(file, []);
    if (circle !== "") return circle;
  }
  return "";
}

const sources = filesOf("src").filter((file) => !file.startsWith("src/reference/"));
const twins = filesOf("src/reference");
const kernels = filesOf("assembly");
const folderOf = (file: string) => file.split("/").slice(1, -1)[0] ?? "";
const isIn = (...places: string[]) => {
  return (file: string) => places.some((place) => file === `src/${place}.ts` || file.startsWith(`src/${place}/`));
};

test("every file of src/ lies in a folder of the order", () => {
  expect(sources.filter((file) => !ORDER.includes(folderOf(file)))).toEqual([]);
});

test("a file of src/ imports its own folder or one before it in the order", () => {
  const wrong = wrongImports(sources, (from, to) => {
    if (to === "assembly/layout.ts") return false;
    if (to.startsWith("build/")) return folderOf(from) !== "entries";
    if (!to.startsWith("src/") || to.startsWith("src/reference/")) return true;
    return ORDER.indexOf(folderOf(to)) > ORDER.indexOf(folderOf(from));
  });
  expect(wrong).toEqual([]);
});

test("files of api/ do not import each other, and only cli/ imports entries/", () => {
  const wrong = wrongImports(sources, (from, to) =>
    to.startsWith("src/api/")
      ? from.startsWith("src/api/")
      : to.startsWith("src/entries/") && !["entries", "cli"].includes(folderOf(from)),
  );
  expect(wrong).toEqual([]);
});

test.each([
  ["src", [...sources, ...twins]],
  ["assembly", kernels],
  ["bench", filesOf("bench").filter((file) => !file.includes("node_modules"))],
])("%s has no circle of imports", (_, files) => {
  expect(findCircle(files)).toBe("");
});

test("twins import the ABI's types and each other, and nothing else", () => {
  const others = ["src/wasm/abi.ts", "src/attention/config.ts", "assembly/layout.ts"];
  expect(wrongImports(twins, (_, to) => !to.startsWith("src/reference/") && !others.includes(to))).toEqual([]);
});

test("kernels import their own folder, the files in the root, and the folders below", () => {
  const wrong = wrongImports(
    kernels.filter((file) => folderOf(file) !== ""),
    (from, to) => {
      const [here, there] = [folderOf(from), folderOf(to)];
      return there !== "" && there !== here && !KERNEL_FOLDERS[here]?.includes(there);
    },
  );
  expect(wrong).toEqual([]);
  expect(kernels.map(folderOf).filter((folder) => folder !== "" && !(folder in KERNEL_FOLDERS))).toEqual([]);
});

/** The name of any kernel, whatever the variable is called that holds the table. */
const KERNEL = new RegExp(`\\b(?:${Object.values(KERNEL_ARITY).flatMap(Object.keys).join("|")})\\b`);

/** What only some files may name. */
const OWNED: readonly [name: string, what: RegExp, owners: (file: string) => boolean][] = [
  ["the size of memory", /\bbuffer\.byteLength|\.grow\(/, isIn("wasm/memory")],
  [
    "instances of WebAssembly",
    /new WebAssembly\.(Instance|Memory)\b|WebAssembly\.instantiate/,
    isIn("wasm/instantiate", "wasm/shared-memory", "diagnostics/peak", "entries/worker"),
  ],
  [
    "a kernel",
    KERNEL,
    isIn(...["wasm", "linear", "cache", "forward", "threads"], "api/head-ops", "diagnostics/linear-work"),
  ],
  [
    "the platform",
    // In a type, globalThis asks what types there are, not what runs.
    /(?<!typeof )\bglobalThis\b|\b(?:process|navigator|console)\b|\bimport\.meta\b|\bnode:/,
    isIn("platform", "entries", "cli"),
  ],
  ["fetch", /\bfetch\(/, isIn("files/url-source", "entries", "cli")],
  [
    "functions whose last bits differ between engines",
    /Math\.(sin|cos|tan|pow|exp|expm1|log|log2|log10|log1p|tanh|sinh|cosh|hypot|cbrt|atan|atan2)\b/,
    () => false,
  ],
];

test.each(OWNED)("%s: only its owners name it", (_, what, owners) => {
  expect(sources.filter((file) => !owners(file) && what.test(codeOf(file)))).toEqual([]);
});

test("package.json, jsr.json and tsconfig.json repeat the list of entries", () => {
  expect(staleCopies(false)).toEqual([]);
});

test("only simd.ts asks which build it is", () => {
  const asking = kernels.filter((file) => readText(file).includes("ASC_FEATURE_"));
  expect(asking).toEqual(["assembly/math/simd.ts"]);
});

test.each(["weights-", "caches-"])("%ssimd holds no relaxed instruction, %srelaxed does", (part) => {
  const relaxed = (build: string) => readFileSync(join(root, `build/${part}${build}.wat`), "utf8").includes("relaxed_");
  expect([relaxed("simd"), relaxed("relaxed")]).toEqual([false, true]);
});

test.each(["simd", "relaxed"])("the tables of the modules of the %s build lie apart, those of floats last", (build) => {
  const reach = (name: string) => {
    // The simd build of floats is made from the relaxed one, tables and all.
    const text = readFileSync(join(root, `build/${name === "simd" ? "relaxed" : name}.wat`), "utf8");
    const starts = Array.from(text.matchAll(/\(data \$\d+ \(i32\.const (\d+)\)/g), ([, at]) => Number(at));
    const { HEAP_BASE } = load(name);
    return { from: Math.min(...starts), to: Number(HEAP_BASE.value) };
  };
  const [weights, caches, floats] = [`weights-${build}`, `caches-${build}`, build].map(reach);
  expect(weights!.from).toBeGreaterThanOrEqual(1024);
  expect(caches!.from).toBeGreaterThanOrEqual(weights!.to);
  expect(floats!.from).toBeGreaterThanOrEqual(caches!.to);
  expect(floats!.to).toBeGreaterThan(floats!.from);
});

function load(name: string): { readonly HEAP_BASE: WebAssembly.Global } {
  const memory = new WebAssembly.Memory({ initial: 1 });
  const module = new WebAssembly.Module(wasmOf(name));
  return new WebAssembly.Instance(module, { env: { memory } }).exports as { HEAP_BASE: WebAssembly.Global };
}

test("no file of src/ or assembly/ is longer than 300 lines", () => {
  const lines = (file: string) => readText(file).split("\n").length - 1;
  const long = [...sources, ...twins, ...kernels].filter((file) => file !== "src/wasm/abi.ts" && lines(file) > 300);
  expect(long).toEqual([]);
});
