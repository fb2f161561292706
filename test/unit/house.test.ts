// The rules that neither compiler checks: which way imports point, and who may name what.

import { spawnSync } from "node:child_process";
import { readdirSync, readFileSync } from "node:fs";
import { dirname, join } from "node:path";
import { transformSync } from "esbuild";
import { expect, test } from "vitest";
import { STAMP } from "../../assembly/stamp.ts";
import { PEERS, staleCopies } from "../../scripts/entries.mjs";
import { ROOMS } from "../../scripts/rooms.mjs";
import { stampOf } from "../../scripts/stamp.mjs";
import { MIXERS } from "../../src/models/mixers/mixers.ts";
import { KERNEL_NAMES } from "../../src/wasm/abi.ts";
import { wasmOf } from "../support/modules.ts";

const root = join(import.meta.dirname, "../..");

/** The folders of assembly/ and those that each may import, besides itself and the files that lie in the root. */
const KERNEL_FOLDERS: Readonly<Record<string, readonly string[]>> = {
  math: [],
  linear: ["math"],
  cache: ["math"],
  pointwise: ["math"],
  recurrent: ["math"],
  attention: ["math", "linear", "cache", "pointwise"],
  unfused: ["math", "linear", "cache", "pointwise"],
  latent: ["math", "cache", "attention"],
  decoder: ["math", "linear"],
};

function filesOf(folder: string): string[] {
  return readdirSync(join(root, folder), { recursive: true, encoding: "utf8" })
    .filter((file) => file.endsWith(".ts") && !file.endsWith(".d.ts") && !file.includes("node_modules"))
    .map((file) => join(folder, file));
}

const readText = (file: string) => readFileSync(join(root, file), "utf8");

/** An import or export at the start of a line, with or without names, or an `import()`. */
const IMPORT = /^(?:import|export)(\stype)?\s(?:[^"=;]*\sfrom\s)?"([^"]+)"|\bimport\(\s*"([^"]+)"/gm;

interface Import {
  /** A file by its path from the root, or a package by its name. */
  readonly to: string;
  /** Whether nothing is imported that exists at run time. */
  readonly isType: boolean;
}

function importsOf(file: string): Import[] {
  return Array.from(readText(file).matchAll(IMPORT), ([, type, first, second]) => {
    const path = (first ?? second) as string;
    const isType = type !== undefined;
    if (!path.startsWith(".")) return { to: path, isType };
    const target = join(dirname(file), path);
    return { to: file.startsWith("assembly/") ? `${target}.ts` : target, isType };
  });
}

/** Imports that break a rule, as "from -> to". */
function wrongImports(
  files: readonly string[],
  isWrong: (from: string, to: string, isType: boolean) => boolean,
): string[] {
  return files.flatMap((from) =>
    importsOf(from)
      .filter(({ to, isType }) => isWrong(from, to, isType))
      .map(({ to }) => `${from} -> ${to}`),
  );
}

/** One cycle of imports among files, if there is any. */
function findCycle(files: readonly string[]): string {
  const done = new Set<string>();
  const visit = (file: string, path: readonly string[]): string => {
    if (path.includes(file)) return [...path.slice(path.indexOf(file)), file].join(" -> ");
    if (done.has(file) || !files.includes(file)) return "";
    for (const { to } of importsOf(file)) {
      const cycle = visit(to, [...path, file]);
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
const roomOf = (file: string) => ROOMS.find((room) => file.startsWith(`src/${room}/`)) ?? "";
const isIn = (...places: string[]) => {
  return (file: string) => places.some((place) => file === `src/${place}.ts` || file.startsWith(`src/${place}/`));
};

test("every file of src/ lies in a room of the order", () => {
  expect(sources.filter((file) => roomOf(file) === "")).toEqual([]);
});

// Types may come from any room of the same group: `models/families` states what `models/spec` describes.
test("a file of src/ imports its own room or one before it in the order", () => {
  const wrong = wrongImports(sources, (from, to, isType) => {
    if (to.startsWith("node:")) return false;
    if (["assembly/layout.ts", "assembly/stamp.ts", ...PEERS].includes(to)) return false;
    if (to.startsWith("build/")) return folderOf(from) !== "entries";
    if (!to.startsWith("src/") || to.startsWith("src/reference/")) return true;
    if (isType && folderOf(to) === folderOf(from)) return false;
    return ROOMS.indexOf(roomOf(to)) > ROOMS.indexOf(roomOf(from));
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
    to.startsWith("src/layers/api/")
      ? from.startsWith("src/layers/api/")
      : to.startsWith("src/entries/") && !["entries", "cli"].includes(folderOf(from)),
  );
  expect(wrong).toEqual([]);
});

test("the command line imports entries and its own files, as its users could", () => {
  const isPublic = (to: string) => /^(?:src\/(?:cli|entries)\/|src\/reference\/index\.ts$|node:)/.test(to);
  const commands = sources.filter((file) => folderOf(file) === "cli");
  expect(wrongImports(commands, (_, to) => !isPublic(to))).toEqual([]);
});

/**
 * What the site imports of src/ by its path: small files without state, which the bundler copies. They are no part of the public API,
 * whose users would depend on them; everything else the site imports from the package, as users do.
 */
const SHARED_WITH_SITE = [
  "src/tools/diagnostics/self-test.ts",
  "src/tools/diagnostics/random.ts",
  "src/entries/copy.ts",
  "src/entries/doctor-view.ts",
  "src/tools/inspect/colours.ts",
  "src/tools/inspect/detect-heads.ts",
  "src/base/util/strings.ts",
  "src/base/platform/host.ts",
  "src/base/util/strings.ts",
];

test("the site imports the package, and by path only what it shares with the package's own pages and command line", () => {
  const isWrong = (to: string) => /^(?:src|build|dist|assembly)\//.test(to) && !SHARED_WITH_SITE.includes(to);
  expect(wrongImports(filesOf("site"), (_, to) => isWrong(to))).toEqual([]);
});

/** The folders of what is not the package, from the one that all others may import to those that none does; the root is last. */
const PROGRAMS: Readonly<Record<string, readonly string[]>> = {
  site: ["worker", "src", "service-worker", "docs"],
  bench: ["lib", "peaks", "kernels", "layers", "startup", "compare", "peers"],
  "test/support": ["host-mutants"],
};
const programs = Object.keys(PROGRAMS).map((program) => [program, filesOf(program)] as const);

test.each([["src", [...sources, ...twins]], ["assembly", kernels], ...programs] as const)(
  "%s has no cycle of imports",
  (_, files) => expect(findCycle(files)).toBe(""),
);

test.each(programs)("a file of %s imports its own folder or one before it in the order", (program, files) => {
  const order = [...(PROGRAMS[program] as readonly string[]), "."];
  const placeOf = (file: string) => {
    const path = file.slice(program.length + 1);
    return order.indexOf(path.includes("/") ? (path.split("/")[0] as string) : ".");
  };
  expect(files.filter((file) => placeOf(file) < 0)).toEqual([]);
  const wrong = wrongImports(files, (from, to) => to.startsWith(`${program}/`) && placeOf(to) > placeOf(from));
  expect(wrong).toEqual([]);
});

test("docs/design/layout.md has the rooms in their order, who uses kernels, and what state there is", () => {
  const text = readText("docs/design/layout.md");
  const table = text.slice(text.indexOf("| group | room |")).split("\n\n")[0] as string;
  let group = "";
  const rows = Array.from(table.matchAll(/^\| (?:`([\w]+)` )?\| (?:`([\w]+)` )?\|/gm), ([, first, room]) => {
    group = first ?? group;
    return room === undefined ? group : `${group}/${room}`;
  });
  expect(rows).toEqual(ROOMS);
  const rule = /^3\. Kernels.* are used only in (.*); atomics/m.exec(text)?.[1] ?? "";
  const named = Array.from(rule.matchAll(/`(?:src\/)?([\w/-]+)(?:\.ts)?`/g), ([, place]) => place);
  expect(named).toEqual(KERNEL_USERS);
  const stateful = Array.from(/^7\..*$/m.exec(text)?.[0].matchAll(/`(src\/[^`]+)`/g) ?? [], ([, file]) => file);
  const hasState = (file: string) =>
    /^(?:export )?(?:let |const \w+ = new (?:Map|Set)(?:<[^>]*>)?\(\))/m.test(readText(file));
  expect(sources.filter(hasState).sort()).toEqual(stateful.sort());
});

test("what tests share imports no test, and neither do benchmarks", () => {
  const files = [...filesOf("test/support"), ...filesOf("bench")];
  expect(wrongImports(files, (_, to) => to.startsWith("test/") && !to.startsWith("test/support/"))).toEqual([]);
});

test("twins import the ABI's types and each other, and nothing else", () => {
  const others = [
    "src/wasm/abi.ts",
    "src/layers/attention/config.ts",
    "src/layers/latent/config.ts",
    "assembly/layout.ts",
  ];
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

/** Rooms and files that may use kernels; docs/design/layout.md names them too. */
const KERNEL_USERS = [
  ...["wasm", "layers", "hosts/threads", "models/blocks", "models/load", "models/decoder", "retrieval"],
  "tools/diagnostics/doctor",
];

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
    isIn("wasm/modules", "wasm/rewrite", "tools/diagnostics/timing", "entries/worker"),
  ],
  ["a kernel or the table of kernels", ({ properties }) => anyOf(KERNELS, properties), isIn(...KERNEL_USERS)],
  ["the platform", ({ globals }) => anyOf([...HOST, "import.meta"], globals), isIn("base/platform", "entries", "cli")],
  ["the name of a runtime, or code from text", ({ globals }) => anyOf(RUNTIMES, globals), () => false],
  ["fetch", ({ globals }) => globals.has("fetch"), isIn("files/http-source", "entries", "cli")],
  ["atomics", ({ globals }) => globals.has("Atomics"), isIn("hosts/threads")],
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

test("the root has at most 20 files and folders", () => {
  const listed = spawnSync("git", ["ls-files"], { cwd: root, encoding: "utf8" }).stdout ?? "";
  const names = new Set(listed.split("\n").map((path) => path.split("/")[0]));
  expect(names.size - 1).toBeLessThanOrEqual(20); // and the end of the list; a copy without git has none
});

test("package.json and tsconfig.json repeat the list of entries", () => {
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
  let end = 512;
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

test("nobody but models/mixers asks of which kind a layer's mixer is", () => {
  const asked = new RegExp(`(?:[!=]== |case )"(?:${Object.keys(MIXERS).join("|")})"`);
  const askers = sources.filter((file) => asked.test(readText(file)));
  // The command line asks a public function which reader a file of one layer is for.
  expect(askers.filter((file) => !isIn("models/mixers", "cli")(file))).toEqual([]);
});

test("no file of src/, site/, bench/ or test/support is longer than 600 lines, none of assembly/ than 300", () => {
  const lines = (file: string) => readText(file).split("\n").length - 1;
  const most = (file: string) => (file.startsWith("assembly/") ? 300 : 600);
  const all = [...sources, ...twins, ...kernels, ...programs.flatMap(([, files]) => files)];
  // Nobody writes or reads the table of all kernels, which is made of their sources.
  const long = all.filter((file) => lines(file) > most(file) && file !== "src/wasm/abi.ts");
  expect(long).toEqual([]);
});
