// A built checkout of headwise: this one, or another version in another folder.

import { existsSync } from "node:fs";
import { join, resolve } from "node:path";
import { pathToFileURL } from "node:url";
import type { Build, BuildName } from "../lib/builds.ts";
import type { Case, Prepared } from "../lib/case.ts";

export type Headwise = typeof import("../../src/entries/index.ts");
/** What whole decoders need besides. */
export type Models = typeof import("../../src/entries/models.ts") & typeof import("../../src/entries/quantized.ts");

export interface Checkout {
  readonly folder: string;
  /** The public API of its dist/. */
  readonly headwise: Headwise;
  readonly models: Models;
  /** Its own cases of kernels, which know its kernels' signatures, by name. */
  readonly cases: ReadonlyMap<string, Pick<Case, "quick">>;
  /** A function that prepares its cases on one build. */
  load(build: BuildName): Promise<(name: string) => Prepared>;
}

/** Files that export `loadBuild` and lists of cases, one row for each layout of bench/ there has been, latest first. */
const LAYOUTS = [
  {
    builds: "bench/lib/builds.ts",
    cases: ["linear.ts", "linear-quantized.ts", "attention.ts", "other-kernels.ts"].map(
      (file) => `bench/kernels/${file}`,
    ),
  },
  {
    builds: "bench/builds.ts",
    cases: ["linear.ts", "integers.ts", "attention.ts", "small.ts"].map((file) => `bench/${file}`),
  },
];

export async function openCheckout(path: string): Promise<Checkout> {
  const folder = resolve(path);
  const layout = LAYOUTS.find(({ builds }) => existsSync(join(folder, builds)));
  if (!layout) throw new RangeError(`bench --against: a checkout of headwise expected, got ${folder}`);
  if (!existsSync(join(folder, "dist/index.js")))
    throw new RangeError(
      `bench --against: a built checkout expected, got no dist/ in ${folder}: npm run build makes it`,
    );
  const open = (file: string) => import(pathToFileURL(join(folder, file)).href);
  const { loadBuild } = (await open(layout.builds)) as { loadBuild(name: BuildName): Promise<Build> };
  const modules: Record<string, unknown>[] = await Promise.all(layout.cases.map(open));
  const cases: readonly Case[] = modules.flatMap((module) => Object.values(module).filter(Array.isArray).flat());
  const byName = new Map(cases.map((item) => [`${item.kernel} ${item.shape}`, item]));
  return {
    folder,
    headwise: (await open("dist/index.js")) as Headwise,
    models: { ...(await open("dist/models.js")), ...(await open("dist/quantized.js")) } as Models,
    cases: byName,
    async load(name) {
      const build = await loadBuild(name);
      return (item) => byName.get(item)!.prepare(build);
    },
  };
}
