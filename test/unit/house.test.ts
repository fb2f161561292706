// The rules that neither compiler checks: which way imports point, and who may name what.

import { readdirSync, readFileSync } from "node:fs";
import { dirname, join } from "node:path";
import { transformSync } from "esbuild";
import { expect, test } from "vitest";
import { STAMP } from "../../assembly/stamp.ts";
import { PEERS, staleCopies } from "../../scripts/entries.mjs";
import { stampOf } from "../../scripts/stamp.mjs";
import { KERNEL_NAMES } from "../../src/threads/work-queue.ts";
import { wasmOf } from "../support/modules.ts";

const root = join(import.meta.dirname, "../..");

/** The folders of src/, bottom to top: a file imports its own folder or one that stands before it. */
const ORDER = [
  ...["util", "tensor", "platform", "wasm", "linear", "attention", "latent", "cache", "forward", "api", "diagnostics"],
  ...["files", "models", "decoder", "encoder", "configure", "inspect", "text", "threads", "shards", "entries", "cli"],
];

/** The folders of assembly/ and those that each may import, besides itself and the files that lie in the root. */
const KERNEL_FOLDERS: Readonly<Record<string, readonly string[]>> = {
  math: [],
  linear: ["math"],
  cache: ["math"],
  pointwise: ["math"],
  attention: ["math", "linear", "cache", "pointwise"],
  unfused: ["math", "linear", "cache", "pointwise"],
  latent: ["math", "cache", "attention"],
  decoder: ["math", "linear"],
};

function filesOf(folder: string): string[] {
  return readdirSync(join(root, folder), { recursive: true, encoding: "utf8" })
    .filter((file) => file.endsWith(".ts") && !file.endsWith(".d.ts"))
    .map((file) => join(folder, file));
}

const readText = (file: string) => readFileSync(join(root, file), "utf8");

/** An import or export at the start of a line, with or without names, or an `import()`. */
const IMPORT = /^(?:import|export)\s(?:[^"=;]*\sfrom\s)?"([^"]+)"|\bimport\(\s*"([^"]+)"/gm;

/** What a file imports: files by path from the root, packages by name. */
function importsOf(file: string): string[] {
  return Array.from(readText(file).matchAll(IMPORT), ([, first, second]) => {
    const path = (first ?? second) as string;
    if (!path.startsWith(".")) return path;
    const target = join(dirname(file), path);
    return file.startsWith("assembly/") ? `${target}.ts` : target;
  });
}

/** Imports that break a rule, as "from -> to". */
function wrongImports(files: readonly string[], isWrong: (from: string, to: string) => boolean): string[] {
  return files.flatMap((from) =>
    importsOf(from)
      .filter((to) => isWrong(from, to))
      .map((to) => `${from} -> ${to}`),
  );
}

/** One cycle of imports among files, if there is any. */
function findCycle(files: readonly string[]): string {
  const done = new Set<string>();
  const visit = (file: string, path: readonly string[]): string => {
    if (path.includes(file)) return [...path.slice(path.indexOf(file)), file].join(" -> ");
    if (done.has(file) || !files.includes(file)) return "";
    for (const next of importsOf(file)) {
      const cycle = visit(next, [...path, file]);
      if (cycle !== "") return cycle;
    }
    done.add(file);
    return "";
  };
  for (const file of files) {
    const cycle = visit(file, []);
    if (cycle !== "") return cycle;
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
    if (to.startsWith("node:")) return false;
    if (["assembly/layout.ts", "assembly/stamp.ts", ...PEERS].includes(to)) return false;
    if (to.startsWith("build/")) return folderOf(from) !== "entries";
    if (!to.startsWith("src/") || to.startsWith("src/reference/")) return true;
    return ORDER.indexOf(folderOf(to)) > ORDER.indexOf(folderOf(from));
  });
  expect(wrong).toEqual([]);
});

test("no file of src/ imports a package but the optional ones, and only cli/ imports modules of Node", () => {
  const packages = wrongImports(sources, (from, to) => {
    if (to.startsWith("node:")) return folderOf(from) !== "cli";
    return !/^(?:src|build|assembly)\//.test(to) && !(PEERS.includes(to) && from === "src/text/libraries.ts");
  });
  expect(packages).toEqual([]);
});

test("the optional packages are those of package.json, all of them optional", () => {
  const { peerDependencies, peerDependenciesMeta } = JSON.parse(readText("package.json"));
  expect(Object.keys(peerDependencies)).toEqual(PEERS);
  expect(peerDependenciesMeta).toEqual(Object.fromEntries(PEERS.map((name) => [name, { optional: true }])));
});

test("files of api/ do not import each other, and only cli/ imports entries/", () => {
  const wrong = wrongImports(sources, (from, to) =>
    to.startsWith("src/api/")
      ? from.startsWith("src/api/")
      : to.startsWith("src/entries/") && !["entries", "cli"].includes(folderOf(from)),
  );
  expect(wrong).toEqual([]);
});

/**
 * What the site imports of src/ by its path: small files without state, which the bundler copies. They are no part of the public API,
 * whose users would depend on them; everything else the site imports from the package, as users do.
 */
const SHARED_WITH_SITE = [
  "src/diagnostics/float-digest.ts",
  "src/diagnostics/random.ts",
  "src/entries/copy.ts",
  "src/entries/doctor-view.ts",
  "src/inspect/colours.ts",
  "src/inspect/kind-order.ts",
  "src/inspect/probabilities.ts",
  "src/inspect/visible.ts",
  "src/platform/event-loop.ts",
  "src/util/escape.ts",
];

test("the site imports the package, and by path only what it shares with the package's own pages and command line", () => {
  const isWrong = (to: string) => /^(?:src|build|dist|assembly)\//.test(to) && !SHARED_WITH_SITE.includes(to);
  expect(wrongImports(filesOf("site"), (_, to) => isWrong(to))).toEqual([]);
});

test.each([
  ["src", [...sources, ...twins]],
  ["assembly", kernels],
  ["bench", filesOf("bench").filter((file) => !file.includes("node_modules"))],
])("%s has no cycle of imports", (_, files) => {
  expect(findCycle(files)).toBe("");
});

test("twins import the ABI's types and each other, and nothing else", () => {
  const others = ["src/wasm/abi.ts", "src/attention/config.ts", "src/latent/config.ts", "assembly/layout.ts"];
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

/** Globals that only some files may use, whatever they are used for. */
const HOST = ["globalThis", "self", "process", "navigator", "console", "require", "document", "location"];
const RUNTIMES = ["Deno", "Bun", "global", "Function", "eval"];
const GLOBALS = [...HOST, ...RUNTIMES, "fetch", "Math", "WebAssembly", "Atomics", "import.meta"];

/** The kernels, and the property of `Kernels` that holds them. */
const KERNELS = [...KERNEL_NAMES, "table"];
/** Methods of ES2023 and later, which the oldest supported browsers lack. */
const NEW_METHODS = [
  ...["toReversed", "toSorted", "toSpliced", "with", "findLast", "findLastIndex", "fromAsync", "groupBy"],
  ...["withResolvers", "canParse", "isWellFormed", "toWellFormed", "isSubsetOf", "checkVisibility"],
];

/** What a file uses when it runs: neither types nor comments nor the text of strings count. */
interface Uses {
  /** Globals, `import.meta` among them; not variables or properties of the same name. */
  readonly globals: ReadonlySet<string>;
  /** Kernels, `grow` and new methods as properties: `a.name`, `a["name"]`, `{ name } = a`. */
  readonly properties: ReadonlySet<string>;
  /** The code, where a global x is `GLOBAL_x`. */
  readonly code: string;
}

/** esbuild knows what is a global and what is a property: it renames them. */
function usesOf(text: string): Uses {
  const marked = (name: string) => `GLOBAL_${name.replace(".", "_")}`;
  const { code, mangleCache = {} } = transformSync(text, {
    loader: "ts",
    minifyWhitespace: true,
    define: Object.fromEntries(GLOBALS.map((name) => [name, marked(name)])),
    mangleProps: new RegExp(`^(?:${[...KERNELS, ...NEW_METHODS, "grow"].join("|")})$`),
    mangleQuoted: true,
    mangleCache: {},
  });
  const globals = GLOBALS.filter((name) => new RegExp(`\\b${marked(name)}\\b`).test(code));
  return { globals: new Set(globals), properties: new Set(Object.keys(mangleCache)), code };
}

const uses = new Map(sources.map((file) => [file, usesOf(readText(file))]));
const anyOf = (names: readonly string[], found: ReadonlySet<string>) => names.some((name) => found.has(name));

const usesNewMethods = ({ properties }: Uses) => anyOf(NEW_METHODS, properties);

/** Whatever of `Math` is not known to give the same bits on every engine, and powers of other numbers than 2. */
const INEXACT =
  /\bGLOBAL_Math\b(?!\.(?:abs|ceil|clz32|floor|fround|imul|max|min|PI|round|sign|sqrt|trunc)\b)|(?<!\b2n?)\*\*/;

/** What only some files may use. */
const OWNED: readonly [name: string, isUsed: (uses: Uses) => boolean, owners: (file: string) => boolean][] = [
  ["methods of ES2023 and later", usesNewMethods, isIn("cli")],
  [
    "the size of memory",
    ({ properties, code }) => properties.has("grow") || /\bbuffer\.byteLength/.test(code),
    isIn("wasm/memory"),
  ],
  [
    "instances of WebAssembly",
    ({ code }) => /\bGLOBAL_WebAssembly\b(?!\.(?:validate|compile)\b)/.test(code),
    isIn("wasm/instantiate", "wasm/shared-memory", "diagnostics/peak", "entries/worker"),
  ],
  [
    "a kernel or the table of kernels",
    ({ properties }) => anyOf(KERNELS, properties),
    isIn(...["wasm", "linear", "cache", "forward", "decoder", "threads"], "api/head-ops", "diagnostics/linear-work"),
  ],
  ["the platform", ({ globals }) => anyOf([...HOST, "import.meta"], globals), isIn("platform", "entries", "cli")],
  ["the name of a runtime, or code from text", ({ globals }) => anyOf(RUNTIMES, globals), () => false],
  ["fetch", ({ globals }) => globals.has("fetch"), isIn("files/url-source", "entries", "cli")],
  ["atomics", ({ globals }) => globals.has("Atomics"), isIn("threads", "entries/worker")],
  ["arithmetic whose last bits differ between engines", ({ code }) => INEXACT.test(code), () => false],
  ["an import() of a computed path", ({ code }) => /\bimport\((?!")/.test(code), () => false],
];

test.each(OWNED)("%s: only its owners use it", (_, isUsed, owners) => {
  expect(sources.filter((file) => !owners(file) && isUsed(uses.get(file) as Uses))).toEqual([]);
});

test("what pages of the site run uses no method of ES2023 or later", () => {
  const files = ["site/docs/prelude.ts", ...["site/src", "site/worker", "site/service-worker"].flatMap(filesOf)];
  expect(files.length).toBeGreaterThan(60);
  expect(files.filter((file) => usesNewMethods(usesOf(readText(file))))).toEqual([]);
});

test("the check of what a file uses finds every form of it, and nothing else", () => {
  const found = usesOf(`
    const text = \`"\${process.pid}"\`;
    const { table: { rope_f32: run } } = kernels;
    kernels["scores_f32"](Math[text].toSorted().with(0, 1));
  `);
  expect([...found.globals]).toEqual(["process", "Math"]);
  expect([...found.properties].sort()).toEqual(["rope_f32", "scores_f32", "table", "toSorted", "with"]);
  expect(INEXACT.test(found.code)).toBe(true);
  const none = usesOf(`
    const process = 2 ** 20; // navigator
    type Scope = typeof globalThis;
    with_(/* with */ "with", withOne);
    throw new Error(\`\${process} console "rope_f32"\`, { cause: Math.sqrt(2) });
  `);
  expect([...none.globals, ...none.properties]).toEqual(["Math"]);
  expect(INEXACT.test(none.code)).toBe(false);
});

test("package.json, jsr.json and tsconfig.json repeat the list of entries", () => {
  expect(staleCopies(false)).toEqual([]);
});

test("the stamp of the kernels is that of their sources, whatever separator the host's paths have", () => {
  const listed = readdirSync(join(root, "assembly"), { recursive: true, encoding: "utf8" });
  expect(stampOf(listed)).toBe(STAMP);
  expect(stampOf(listed.map((file) => file.replaceAll("/", "\\")).reverse())).toBe(STAMP);
});

test("only simd.ts asks which build it is", () => {
  const asking = kernels.filter((file) => readText(file).includes("ASC_FEATURE_"));
  expect(asking).toEqual(["assembly/math/simd.ts"]);
});

test.each(["simd", "relaxed"])("the tables of the modules of the %s build lie apart, those of floats last", (build) => {
  const reach = (name: string) => {
    // The simd build is made from the relaxed one, tables and all.
    const text = readFileSync(join(root, `build/${name.replace("simd", "relaxed")}.wat`), "utf8");
    const starts = Array.from(text.matchAll(/\(data \$\d+ \(i32\.const (\d+)\)/g), ([, at]) => Number(at));
    const { HEAP_BASE } = load(name);
    return { from: Math.min(...starts), to: Number(HEAP_BASE.value) };
  };
  const others = ["weights", "caches", "latents", "decoders"].map((part) => `${part}-${build}`);
  let end = 1024;
  for (const { from, to } of [...others, build].map(reach)) {
    expect(from).toBeGreaterThanOrEqual(end);
    expect(to).toBeGreaterThan(from);
    end = to;
  }
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
