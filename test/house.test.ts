// The rules of the house that neither compiler checks: which way imports point, and who may touch what.

import { readdirSync, readFileSync } from "node:fs";
import { dirname, join, relative } from "node:path";
import { expect, test } from "vitest";
import { wasmOf } from "./modules.ts";

const root = join(import.meta.dirname, "..");

/** Floors from the ground up. A file may import from lower floors, and on floors 1 to 3 from what stands before it. */
const FLOORS: readonly (readonly string[])[] = [
  ["abi", "arithmetic", "bytes", "digest", "noise", "errors", "warn", "floats", "npy"],
  [
    "lifetime",
    "signal",
    "steps",
    "turn",
    "tensor",
    "memory",
    "rotary",
    "permute",
    "header",
    "headertext",
    "deviation",
    "control",
    "ranges",
    "http",
    "tensorfile",
    "ggufheader",
  ],
  [
    "pack",
    "formats",
    "cacheformats",
    "blocknotes",
    "matrix",
    "quantize",
    "strided",
    "config",
    "unfuse",
    "mask",
    "positions",
    "rows",
    "sharememory",
    "compile",
    "instantiate",
    "choose",
    "dots",
    "kernels",
    "hosts",
    "team",
    "safetensors",
    "families",
    "parts",
    "weights",
    "fused",
    "hf",
    "convert",
    "gguf",
    "architectures",
    "ggufconfig",
    "gguflayer",
    "quantizefile",
  ],
  [
    "dots",
    "packer",
    "linear",
    "layer",
    "attention",
    "pages",
    "aging",
    "cache",
    "call",
    "segment",
    "scratch",
    "chunk",
    "forward",
    "sdpaforward",
    "tiles",
    "cutlinears",
    "cuts",
    "crew",
    "shardcut",
    "shard",
    "shardpool",
    "sharded",
  ],
  [
    "attend",
    "attendmany",
    "attendasync",
    "attendsharded",
    "sdpa",
    "heads",
    "plan",
    "cachepages",
    "quantizereport",
    "projection",
  ],
  [
    "selftest",
    "urlsource",
    "modulefile",
    "api",
    "weightsapi",
    "core",
    "index",
    "quantized",
    "spawn",
    "worker",
    "threads",
    "threadless",
    "shardworker",
    "shards",
    "progress",
    "timing",
    "peak",
    "attentionwork",
    "doctor",
    "doctorpage",
    "columns",
    "commandline",
    "surroundings",
    "startkernels",
    "layerfile",
    "layerrun",
    "benchworks",
    "infocommand",
    "runcommand",
    "benchcommand",
    "quantizecommand",
    "reportcommand",
    "cli",
  ],
];
const ROADS = 4;

interface Import {
  readonly from: string;
  readonly to: string;
}

function filesOf(folder: string): string[] {
  return readdirSync(join(root, folder), { recursive: true, encoding: "utf8" })
    .filter((file) => file.endsWith(".ts") && !file.endsWith(".d.ts"))
    .map((file) => join(folder, file));
}

function importsOf(file: string): Import[] {
  const text = readFileSync(join(root, file), "utf8");
  return Array.from(text.matchAll(/^(?:import|export)\b[^;]*?from "(\.[^"]+)";/gms), ([, path]) => ({
    from: file,
    to: relative(root, join(root, dirname(file), path as string)),
  }));
}

/** A file without its comments. */
function codeOf(file: string): string {
  return readFileSync(join(root, file), "utf8").replace(/\/\*[\s\S]*?\*\/|\/\/.*/g, "");
}

const sources = filesOf("src");
const nameOf = (file: string) => file.replace(/^src\//, "").replace(/\.ts$/, "");
const floorOf = (file: string) => FLOORS.findIndex((names) => names.includes(nameOf(file)));

test("every file of src/ stands on a floor", () => {
  const homeless = sources.filter((file) => !file.startsWith("src/reference/") && floorOf(file) < 0);
  expect(homeless).toEqual([]);
  const missing = FLOORS.flat().filter((name) => !sources.includes(`src/${name}.ts`));
  expect(missing).toEqual([]);
});

test("imports point down", () => {
  const wrong = sources
    .filter((file) => !file.startsWith("src/reference/"))
    .flatMap(importsOf)
    .filter(({ from, to }) => {
      if (to === "assembly/layout.ts") return false;
      if (to.startsWith("build/")) return floorOf(from) !== FLOORS.length - 1;
      if (!to.startsWith("src/") || to.startsWith("src/reference/")) return true;
      const [here, there] = [floorOf(from), floorOf(to)];
      if (there !== here) return there > here;
      if (here === ROADS) return true;
      const names = FLOORS[here] as readonly string[];
      return names.indexOf(nameOf(to)) >= names.indexOf(nameOf(from));
    });
  expect(wrong).toEqual([]);
});

test("twins know the ABI's types, each other and nothing else", () => {
  const wrong = sources
    .filter((file) => file.startsWith("src/reference/"))
    .flatMap(importsOf)
    .filter(
      ({ to }) =>
        !to.startsWith("src/reference/") && !["src/abi.ts", "src/config.ts", "assembly/layout.ts"].includes(to),
    );
  expect(wrong).toEqual([]);
});

test("kernels import only the helpers below them", () => {
  const helpers = ["simd", "exp", "half", "codes", "types", "layout", "page", "mask", "packed"];
  const integers = ["integers", "integers_pairs", "integers_bytes", "integers_wide", "integers_rows"];
  const wrong = filesOf("assembly")
    .filter((file) => !["index", "weights", "caches"].some((entry) => file === `assembly/${entry}.ts`))
    .flatMap(importsOf)
    .filter(({ from, to }) => {
      const [here, there] = [from, to].map((file) => file.replace(/^assembly\//, "").replace(/\.ts$/, "")) as [
        string,
        string,
      ];
      return ![...helpers, ...integers].includes(there) && !there.startsWith(`${here.split("_")[0]}_`);
    });
  expect(wrong).toEqual([]);
});

/** What only one file (or floor) may say. */
const OWNED: readonly [what: RegExp, owners: (file: string) => boolean][] = [
  [/\bbuffer\.byteLength|\.grow\(/, (file) => file === "src/memory.ts"],
  [
    /new WebAssembly\.(Instance|Memory)\b|WebAssembly\.instantiate/,
    (file) => ["src/instantiate.ts", "src/sharememory.ts", "src/peak.ts", "src/worker.ts"].includes(file),
  ],
  [/\btable\.\w+_(f32|f16|q8|q4|rows)\(/, (file) => [3, 4].includes(floorOf(file))],
  [/\bfetch\(|from "node:|import\.meta|process\./, (file) => floorOf(file) === FLOORS.length - 1],
  [/Math\.(sin|cos|tan|pow|exp|expm1|log|log2|log10|log1p|tanh|sinh|cosh|hypot|cbrt|atan|atan2)\b/, () => false],
];

test.each(OWNED)("%s is said only where it belongs", (what, owners) => {
  const wrong = sources
    .filter((file) => !file.startsWith("src/reference/") && !owners(file))
    .filter((file) => what.test(codeOf(file)));
  expect(wrong).toEqual([]);
});

test("only simd.ts asks which build it is", () => {
  const asking = filesOf("assembly").filter((file) => readFileSync(join(root, file), "utf8").includes("ASC_FEATURE_"));
  expect(asking).toEqual(["assembly/simd.ts"]);
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
  const lines = (file: string) => readFileSync(join(root, file), "utf8").split("\n").length - 1;
  const long = [...sources, ...filesOf("assembly")].filter((file) => file !== "src/abi.ts" && lines(file) > 300);
  expect(long).toEqual([]);
});
