// npm run site: the site as static files in build/site, which any server can hand out from any folder.
// `-- --serve [PORT]` serves it too.

import { createHash } from "node:crypto";
import { cpSync, mkdirSync, readdirSync, readFileSync, rmSync, statSync, writeFileSync } from "node:fs";
import { basename, join, relative, resolve } from "node:path";
import { fileURLToPath } from "node:url";
import { parseArgs } from "node:util";
import { gzipSync } from "node:zlib";
import { type BuildOptions, build } from "esbuild";
import { PAGES, type Page } from "./pages.ts";
import { serveSite } from "./serve.ts";

const ROOT = fileURLToPath(new URL("..", import.meta.url));
const SITE = join(ROOT, "site");
const OUT = join(ROOT, "build", "site");
const { version } = JSON.parse(readFileSync(join(ROOT, "package.json"), "utf8"));

/** Models that the pages offer: what is copied of which folder of the repository. */
const MODELS = [
  {
    from: "model/stories",
    files: ["stories.gguf", "config.json", "model.safetensors", "tokenizer.json", "tokenizer_config.json"],
  },
  { from: "model", to: "induction", files: ["config.json", "model.safetensors"] },
];

/** Options of both bundles: what the browsers of the package's table run. */
const BUNDLE = {
  bundle: true,
  // The paths of tsconfig.json name sources; the site is made from the package in dist/.
  tsconfigRaw: {},
  splitting: true,
  format: "esm",
  minify: true,
  target: ["chrome103", "firefox113", "safari16.4"],
  charset: "utf8",
  outdir: join(OUT, "assets"),
  entryNames: "[name]-[hash]",
  chunkNames: "[name]-[hash]",
  assetNames: "[name]-[hash]",
  loader: { ".svg": "copy" },
  logLevel: "warning",
} satisfies BuildOptions;

/** Writes a bundle, and says which file of it each entry became, by the path of its source in site/. */
async function bundle(entryPoints: string[], define: Record<string, string> = {}): Promise<Map<string, string>> {
  const absolute = entryPoints.map((file) => join(SITE, file));
  const { metafile } = await build({ ...BUNDLE, metafile: true, entryPoints: absolute, define });
  return new Map(
    Object.entries(metafile.outputs).flatMap(([file, { entryPoint }]) =>
      entryPoint === undefined ? [] : [[relative(SITE, resolve(entryPoint)), relative(OUT, resolve(file))]],
    ),
  );
}

const escapeHtml = (text: string): string => text.replace(/[&<>"]/g, (character) => `&#${character.charCodeAt(0)};`);

/** Replaces each {name} of a text; a name without a value is an error. */
export function fill(template: string, values: Readonly<Record<string, string>>): string {
  return template.replace(/\{(\w+)\}/g, (_, name: string) => {
    const value = values[name];
    if (value === undefined) throw new Error(`site: expected a value for {${name}}`);
    return value;
  });
}

/** The menu, from a page that lies `root` below the folder of the site. */
const menuOf = (here: Page, root: string): string =>
  PAGES.map(({ name, label }) => {
    const current = name === here.name ? ' aria-current="page"' : "";
    return `<a href="${root}${name}.html"${current}>${escapeHtml(label)}</a>`;
  }).join("");

function filesIn(folder: string): string[] {
  return readdirSync(folder, { recursive: true, withFileTypes: true })
    .filter((entry) => entry.isFile())
    .map((entry) => relative(folder, join(entry.parentPath, entry.name)).replaceAll("\\", "/"))
    .sort();
}

/** What the service worker keeps: all but the models, which it keeps when they are first read. */
function writeServiceWorker(script: string): void {
  const text = readFileSync(join(OUT, script), "utf8");
  rmSync(join(OUT, script));
  const files = filesIn(OUT).filter((file) => !file.startsWith("models/"));
  const hash = createHash("sha256").update(text);
  for (const file of files) hash.update(file).update(readFileSync(join(OUT, file)));
  const list = JSON.stringify({ version: hash.digest("hex").slice(0, 16), files });
  writeFileSync(join(OUT, "service-worker.js"), `const SITE=${list};\n${text}`);
}

/** Bytes, gzip, of what a first visit of a page reads: the page, its style, all scripts that it imports at once, and the engine. */
function firstLoad(page: string, engine: string): number {
  const seen = new Set<string>();
  const read = (file: string): void => {
    if (seen.has(file)) return;
    seen.add(file);
    const text = readFileSync(join(OUT, file), "utf8");
    if (file.endsWith(".html"))
      for (const [, link] of text.matchAll(/(?:src|href)="\.?\/?(assets\/[^"]+)"/g)) read(link as string);
    else {
      if (text.includes(engine)) read(join("assets", engine));
      for (const [, link] of text.matchAll(/(?:from|import)\s*"\.\/([^"]+)"/g)) read(join("assets", link as string));
    }
  };
  read(page);
  return [...seen].reduce((sum, file) => sum + gzipSync(readFileSync(join(OUT, file))).length, 0);
}

export async function buildSite(): Promise<void> {
  rmSync(OUT, { recursive: true, force: true });
  mkdirSync(OUT, { recursive: true });
  const workers = await bundle(["worker/main.ts"]);
  const engine = basename(workers.get("worker/main.ts") as string);
  const assets = await bundle(
    [...PAGES.map(({ name }) => `src/${name}.ts`), "site.css", "service-worker/main.ts", "icon.svg"],
    { ENGINE: JSON.stringify(engine) },
  );
  const asset = (source: string): string => assets.get(source) as string;
  const layout = readFileSync(join(SITE, "layout.html"), "utf8");
  for (const page of PAGES) {
    const html = fill(layout, {
      ...{
        title: escapeHtml(page.title),
        about: escapeHtml(page.about),
        root: "./",
        menu: menuOf(page, "./"),
        version,
      },
      ...{ icon: asset("icon.svg"), style: asset("site.css"), script: asset(`src/${page.name}.ts`) },
      content: readFileSync(join(SITE, "pages", `${page.name}.html`), "utf8").replace(/^(?=.)/gm, "      "),
    });
    writeFileSync(join(OUT, `${page.name}.html`), html);
  }
  const icons = [{ src: asset("icon.svg"), sizes: "any", type: "image/svg+xml" }];
  const manifest = {
    name: "headwise",
    short_name: "headwise",
    start_url: "./index.html",
    display: "standalone",
    icons,
  };
  writeFileSync(join(OUT, "site.webmanifest"), JSON.stringify(manifest));
  for (const { from, to = basename(from), files } of MODELS)
    for (const file of files) cpSync(join(ROOT, from, file), join(OUT, "models", to, file));
  writeServiceWorker(asset("service-worker/main.ts"));
  for (const { name } of PAGES) {
    const kb = firstLoad(`${name}.html`, engine) / 1000;
    console.log(`${`${name}.html`.padEnd(18)} ${kb.toFixed(1).padStart(6)} kB gzip at the first visit`);
  }
  const all = filesIn(OUT).reduce((sum, file) => sum + statSync(join(OUT, file)).size, 0);
  console.log(`build/site: ${filesIn(OUT).length} files, ${(all / 1e6).toFixed(1)} MB with the models`);
}

const { values, positionals } = parseArgs({ options: { serve: { type: "boolean" } }, allowPositionals: true });
await buildSite();
if (values.serve) console.log(`Listening on ${(await serveSite(Number(positionals[0] ?? 8000))).url}`);
