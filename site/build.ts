// npm run site: the site as static files in build/site, which any server can hand out from any folder.
// `-- --serve [PORT]` serves it too; `-- --address URL` says where it will lie.

import { createHash } from "node:crypto";
import { cpSync, existsSync, mkdirSync, readdirSync, readFileSync, rmSync, statSync, writeFileSync } from "node:fs";
import { basename, dirname, join, relative, resolve } from "node:path";
import { fileURLToPath } from "node:url";
import { parseArgs } from "node:util";
import { gzipSync } from "node:zlib";
import { type BuildOptions, build } from "esbuild";
import { escapeHtml } from "../src/base/util/strings.ts";
import { headsCard, storyCard } from "./card.ts";
import { collectExamples } from "./docs/examples.ts";
import { documentHtml, documentsHtml } from "./docs/layout.ts";
import { type DocumentPage, renderDocuments } from "./docs/pages.ts";
import { recordGallery } from "./gallery.ts";
import { fill, type PageParts, pageHtml } from "./html.ts";
import { readFigures } from "./numbers.ts";
import { PAGES } from "./pages.ts";
import { ISOLATION, POLICY, serveSite } from "./serve.ts";
import { answerOf, sayStory } from "./src/story/say.ts";
import { recordStory } from "./story.ts";
import type { Recording } from "./worker/story-run.ts";

const ROOT = fileURLToPath(new URL("..", import.meta.url));
const SITE = join(ROOT, "site");
const OUT = join(ROOT, "build", "site");
const { version, homepage } = JSON.parse(readFileSync(join(ROOT, "package.json"), "utf8"));
const REPOSITORY = homepage.replace(/#.*/, "");

/** Models that the pages offer: what is copied of which folder of the repository. */
const MODELS = [
  {
    from: "model/stories",
    files: [
      ...["stories.gguf", "config.json", "model.safetensors", "tokenizer.json", "tokenizer_config.json"],
      "heldout.json",
    ],
  },
  {
    from: "model",
    to: "induction",
    files: ["config.json", "model.safetensors", "tokenizer.json", "heldout.json"],
  },
];

/** The style of a page alone, if it has some: all others would read it for nothing. */
const styleOf = (name: string): string[] =>
  existsSync(join(SITE, "styles", `${name}.css`)) ? [`styles/${name}.css`] : [];

/** Options of both bundles: what the oldest browsers of the package run, of Firefox the first with modules in workers. */
const BUNDLE = {
  bundle: true,
  // The paths of tsconfig.json name sources; the site is made from the package in dist/.
  tsconfigRaw: {},
  splitting: true,
  format: "esm",
  minify: true,
  target: ["chrome103", "firefox114", "safari16.4"],
  charset: "utf8",
  outdir: join(OUT, "assets"),
  entryNames: "[name]-[hash]",
  chunkNames: "[name]-[hash]",
  assetNames: "[name]-[hash]",
  loader: { ".svg": "copy" },
  alias: { "headwise-site/prelude": join(SITE, "docs", "prelude.ts") },
  logLevel: "warning",
} satisfies BuildOptions;

/** Writes a bundle, and says which file of it each entry became, by the path of its source in site/. */
async function bundle(entryPoints: string[], define: Record<string, string> = {}): Promise<Map<string, string>> {
  const absolute = entryPoints.map((file) => resolve(SITE, file));
  const { metafile } = await build({ ...BUNDLE, metafile: true, entryPoints: absolute, define });
  return new Map(
    Object.entries(metafile.outputs).flatMap(([file, { entryPoint }]) =>
      entryPoint === undefined ? [] : [[relative(SITE, resolve(entryPoint)), relative(OUT, resolve(file))]],
    ),
  );
}

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
  const versionOf = (files: readonly string[], first = "") => {
    const hash = createHash("sha256").update(first);
    for (const file of files) hash.update(file).update(readFileSync(join(OUT, file)));
    return { version: hash.digest("hex").slice(0, 16), files };
  };
  const [all, isModel] = [filesIn(OUT), (file: string) => file.startsWith("models/")];
  const pages = versionOf(
    all.filter((file) => !isModel(file)),
    text,
  );
  const list = JSON.stringify({ ...pages, models: versionOf(all.filter(isModel)) });
  writeFileSync(join(OUT, "service-worker.js"), `const SITE=${list};\n${text}`);
}

/** The headers of a host that reads them from this file, as Cloudflare Pages and Netlify do. */
function writeHeaders(): void {
  const headers = { "Content-Security-Policy": POLICY, ...ISOLATION, "X-Content-Type-Options": "nosniff" };
  const block = (path: string, lines: Readonly<Record<string, string>>) =>
    [path, ...Object.entries(lines).map(([name, value]) => `  ${name}: ${value}`)].join("\n");
  const caching = { "Cache-Control": "public, max-age=31536000, immutable" };
  writeFileSync(join(OUT, "_headers"), `${block("/*", headers)}\n${block("/assets/*", caching)}\n`);
}

/** What most hosts send for a name that the site lacks. Without it Cloudflare Pages sends the first page, as if it were the file. */
const NOT_FOUND = `<!doctype html>
<html lang="en">
  <meta charset="utf-8" />
  <title>No such page · headwise</title>
  <meta name="viewport" content="width=device-width, initial-scale=1" />
  <p>There is no page at this address.</p>
</html>
`;

/** What a first visit of a page may read, in bytes of gzip. */
const MOST_FIRST_LOAD = 426_000;

/** What is read until the story of the first page shows: all but the engine. */
const MOST_BEFORE_STORY = 100_000;

/**
 * Bytes, gzip, of what a first visit of a page reads: the page, its style, all scripts that it imports at once, and the engine, if it
 * is named, with the modules of its first tasks.
 */
function firstLoad(page: string, engine?: string, tasks: readonly string[] = []): number {
  const seen = new Set<string>();
  const read = (file: string): void => {
    if (seen.has(file)) return;
    seen.add(file);
    const text = readFileSync(join(OUT, file), "utf8");
    if (file.endsWith(".html"))
      for (const [, link] of text.matchAll(/(?:src|href)="\.?\/?(assets\/[^"]+)"/g)) read(link as string);
    else {
      if (engine !== undefined && text.includes(engine))
        for (const each of [engine, ...tasks]) read(join("assets", each));
      for (const [, link] of text.matchAll(/(?:from|import)\s*"\.\/([^"]+)"/g)) read(join("assets", link as string));
    }
  };
  read(page);
  return [...seen].reduce((sum, file) => sum + gzipSync(readFileSync(join(OUT, file))).length, 0);
}

/** Writes the documents; returns their lists for the page that has them all. */
function writeDocuments(
  documents: readonly DocumentPage[],
  write: (path: string, page: Pick<PageParts, "title" | "about" | "menu" | "script" | "content">) => void,
  scripts: ReadonlyMap<string, string>,
  script: string,
): string {
  for (const [at, { path, title, group, html, images }] of documents.entries()) {
    for (const image of images) cpSync(join(ROOT, image), join(OUT, image));
    const text = html.replace(/data-example="(\w+)"/g, (_, id: string) => `data-example="${scripts.get(id)}"`);
    write(path, { title, about: group, menu: "docs", script, content: documentHtml(documents, at, text) });
  }
  const parts = documents.flatMap(({ path, title: document, parts }) =>
    parts.map(({ id, title, text }) => ({ id: `${path}.html${id && `#${id}`}`, title, document, text })),
  );
  writeFileSync(join(OUT, "docs-search.json"), JSON.stringify(parts));
  return documentsHtml(documents);
}

/** What the groups of the menu have, for the first page. */
const DOORS: Readonly<Record<string, string>> = {
  See: "Every head of every layer as it runs, what heads learn, how they know positions, and what attention keeps.",
  Try: "Have a model write, stop it and change a word; sort lines by meaning.",
  Docs: "From the first answer to the last kernel, with examples that run where you read them.",
};

function doors(): string {
  const groups = Object.entries(DOORS).map(([group, about]) => {
    const links = PAGES.filter((page) => page.group === group).map(
      ({ name, label, title }) => `<li><a href="./${name}.html" title="${escapeHtml(title)}">${label}</a></li>`,
    );
    return `<section><h2>${group}</h2><p>${about}</p><ul>${links.join("")}</ul></section>`;
  });
  return groups.join("\n");
}

/** The code of the first page, which runs there. */
const CODE = `import { openModel } from "headwise";

const file = "model/stories/stories.gguf";
using model = await openModel(file);
const answer = model.text("the cat sat on the mat");
console.log(await answer.text);`;

const STORIES = join(ROOT, "model/stories/stories.gguf");

/** What fills the first page: a recorded run of the model, in words too, and what the repository has measured. */
async function firstPage(
  title: string,
  about: string,
  example: string,
  recording: Recording,
): Promise<Record<string, string>> {
  const { story, seven } = recording;
  const words = story.words.map(({ word }, i) => {
    const isLast = i === story.words.length - 1;
    return `<span class="token${isLast ? " asking" : ""}">${escapeHtml(word)}</span>`;
  });
  words.push(`<span class="token guess">${answerOf(story)?.word}</span>`);
  const figures = (await readFigures(ROOT)).map(
    ({ value, about }) => `<div><dt>${escapeHtml(about)}</dt><dd>${value}</dd></div>`,
  );
  return {
    ...{ title: escapeHtml(title), about: escapeHtml(about), code: escapeHtml(CODE), example, doors: doors() },
    ...{ words: words.join(" "), said: escapeHtml(sayStory(story, seven)), figures: figures.join("") },
    megabytes: (statSync(STORIES).size / 1e6).toFixed(1),
    recording: JSON.stringify(recording).replaceAll("<", "\\u003c"),
  };
}

/** What the package's doctor.html has between its verdict and its report. */
function doctorHtml(): string {
  const whole = readFileSync(join(ROOT, "src", "entries", "doctor.html"), "utf8");
  const [part] = /^ *<p id="summary"[\s\S]*(?=^ *<dl id="report")/m.exec(whole) ?? [];
  if (part === undefined) throw new Error("doctor.html expected a summary and a report");
  return part;
}

/** `address` is where the site will lie, if that is known: other sites want whole addresses of pictures. */
export async function buildSite(address = ""): Promise<void> {
  rmSync(OUT, { recursive: true, force: true });
  mkdirSync(OUT, { recursive: true });
  const examples = collectExamples();
  const documents = renderDocuments(
    ROOT,
    REPOSITORY,
    PAGES.map(({ name }) => name),
    examples,
  );
  const own = examples.add(CODE);
  if (own === undefined) throw new Error("the code of the first page expected to run in a page");
  const folder = join(ROOT, "build", "site-examples");
  mkdirSync(folder, { recursive: true });
  const sources = examples.write(folder);

  const workers = await bundle(["worker/main.ts", ...sources.values()]);
  const engine = basename(workers.get("worker/main.ts") as string);
  const assets = await bundle(
    [
      ...PAGES.map(({ name }) => `src/${name}.ts`),
      "site.css",
      ...PAGES.flatMap(({ name }) => styleOf(name)),
      "service-worker/main.ts",
      "icon.svg",
    ],
    { ENGINE: JSON.stringify(engine) },
  );
  const asset = (source: string): string => assets.get(source) as string;
  const icon = asset("icon.svg");
  const { recording, maps } = await recordStory(STORIES);
  writeFileSync(join(OUT, "story.png"), storyCard(recording.story));
  writeFileSync(join(OUT, "heads.png"), headsCard(maps));
  const write = (path: string, page: Pick<PageParts, "title" | "about" | "menu" | "script" | "content">) => {
    const root = "../".repeat(path.split("/").length - 1) || "./";
    mkdirSync(dirname(join(OUT, path)), { recursive: true });
    const styles = ["site.css", ...styleOf(page.menu)].map(asset);
    writeFileSync(join(OUT, `${path}.html`), pageHtml({ ...page, root, styles, icon, version, address, path }));
  };
  const scripts = new Map([...sources].map(([id, file]) => [id, workers.get(relative(SITE, file)) as string]));
  const list = writeDocuments(documents, write, scripts, asset("src/docs.ts"));
  const values = { documents: list, doctor: doctorHtml(), version };
  for (const { name, title, about } of PAGES) {
    const first = name === "index" ? await firstPage(title, about, scripts.get(own) as string, recording) : {};
    const content = fill(readFileSync(join(SITE, "pages", `${name}.html`), "utf8"), { ...values, ...first });
    write(name, { title, about, menu: name, script: asset(`src/${name}.ts`), content });
  }
  writeFileSync(join(OUT, "gallery.json"), await recordGallery(ROOT));
  const icons = [{ src: icon, sizes: "any", type: "image/svg+xml" }];
  const names = { name: "headwise", short_name: "headwise" };
  const manifest = { ...names, start_url: "./index.html", display: "standalone", icons };
  writeFileSync(join(OUT, "site.webmanifest"), JSON.stringify(manifest));
  for (const { from, to = basename(from), files } of MODELS)
    for (const file of files) cpSync(join(ROOT, from, file), join(OUT, "models", to, file));
  writeServiceWorker(asset("service-worker/main.ts"));
  writeHeaders();
  writeFileSync(join(OUT, "404.html"), NOT_FOUND);
  for (const { name, tasks = [] } of PAGES) {
    const modules = tasks.map((task) => basename(workers.get(`worker/${task}.ts`) as string));
    const bytes = firstLoad(`${name}.html`, engine, modules);
    const line = `${`${name}.html`.padEnd(18)} ${(bytes / 1000).toFixed(1).padStart(6)} kB gzip at the first visit`;
    if (bytes > MOST_FIRST_LOAD) throw new Error(`${line}: at most ${MOST_FIRST_LOAD / 1000}`);
    console.log(line);
  }
  const story = firstLoad("index.html");
  if (story > MOST_BEFORE_STORY) throw new Error(`the story: at most ${MOST_BEFORE_STORY} bytes of gzip, got ${story}`);
  console.log(`${"the story".padEnd(18)} ${(story / 1000).toFixed(1).padStart(6)} kB gzip until it shows`);
  const all = filesIn(OUT);
  const bytes = all.reduce((sum, file) => sum + statSync(join(OUT, file)).size, 0);
  console.log(`build/site: ${all.length} files, ${(bytes / 1e6).toFixed(1)} MB with the models`);
}

const { values, positionals } = parseArgs({
  options: { serve: { type: "boolean" }, address: { type: "string" } },
  allowPositionals: true,
});
await buildSite(values.address?.replace(/\/*$/, "/"));
if (values.serve) {
  const { url } = await serveSite(Number(positionals[0] ?? 8000), { isolated: true });
  console.log(`Listening on ${url}`);
}
