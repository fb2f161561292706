// The figures of the start page, from what the repository has measured and from the package as it is built: none is written by hand.

import { readFileSync } from "node:fs";
import { join } from "node:path";
import { gzipSync } from "node:zlib";
import { build } from "esbuild";
import { LAZY_NAMES, OLD_NAMES, PEERS } from "../scripts/entries.mjs";

export interface Figure {
  readonly value: string;
  readonly about: string;
}

/** What a text has at a pattern's first group. */
function part(file: string, text: string, pattern: RegExp): string {
  const [, found] = pattern.exec(text) ?? [];
  if (found === undefined) throw new Error(`${file} expected ${pattern}`);
  return found;
}

/** The names of the package that runs everywhere, as the README counts where it is tested. */
const RUNTIMES = /\b(?:Node|Deno|Bun|Chromium|Firefox|WebKitGTK|workerd)\b/g;

export async function readFigures(root: string): Promise<Figure[]> {
  const read = (file: string) => readFileSync(join(root, file), "utf8");
  const { dependencies = {} } = JSON.parse(read("package.json")) as { dependencies?: Record<string, string> };
  const benchmarks = read("docs/benchmarks.md");
  const [file, row] = ["docs/benchmarks.md", /^\| MHA block, 512 tokens \| [\d.]+ \| \d+ \(([\d.]+);/m];
  const ratio = Number(part(file, benchmarks, row));
  const [, month, year] = dateOf(part(file, benchmarks, /^AMD EPYC, .*?(\d{4}-\d\d-\d\d)/m));
  const core = part(file, benchmarks, /AMD EPYC \(family \d+, model \d+: (Zen \d)/);
  const tested = part("README.md", read("README.md"), /^\| tested \|.*\n\|.*\n((?:\|.*\n)+)/m);
  return [
    { value: `${Math.round((await importBytes(root)) / 1000)} KB`, about: "gzip, kernels inside" },
    { value: String(Object.keys(dependencies).length), about: "dependencies" },
    {
      value: `${ratio.toFixed(1)}×`,
      about: `as fast as onnxruntime-web: 512 tokens of a GPT-2 layer, ${core}, ${month} ${year}`,
    },
    { value: String(new Set(tested.match(RUNTIMES)).size), about: "runtimes and browsers tested" },
  ];
}

function dateOf(date: string): [day: string, month: string, year: string] {
  const format = new Intl.DateTimeFormat("en", { day: "numeric", month: "short", year: "numeric", timeZone: "UTC" });
  const named = new Map(format.formatToParts(new Date(date)).map(({ type, value }) => [type, value]));
  return [named.get("day") ?? "", named.get("month") ?? "", named.get("year") ?? ""];
}

/** Bytes, gzip, of the default import once it is bundled, as scripts/sizes.mjs measures it. */
async function importBytes(root: string): Promise<number> {
  const left = [...OLD_NAMES, ...LAZY_NAMES];
  const names = Object.keys(await import("headwise")).filter((name) => !left.includes(name));
  const { outputFiles } = await build({
    stdin: { contents: `import { ${names} } from "headwise"; globalThis.kept = [${names}];`, resolveDir: root },
    ...{ bundle: true, format: "esm", minify: true, write: false, external: [...PEERS, "./open.js"], tsconfigRaw: {} },
  });
  return gzipSync(outputFiles[0]?.contents as Uint8Array, { level: 9 }).length;
}
