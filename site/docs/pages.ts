// The documents of the repository as pages: guides, what one looks up, and the API reference.

import { readdirSync, readFileSync } from "node:fs";
import { join, posix } from "node:path";
import { ENTRIES } from "../../scripts/entries.mjs";
import { referenceText } from "./declarations.ts";
import type { Examples } from "./examples.ts";
import { type Rendered, renderMarkdown, resolveLink } from "./markdown.ts";

export interface DocumentPage extends Rendered {
  /** Images that it shows: their paths in the repository, and in the site. */
  readonly images: readonly string[];
  /** Its path in the site, without .html: docs/guide/decode. */
  readonly path: string;
  readonly group: string;
}

/** The documents in the order in which one learns: what does not run comes last. */
const GROUPS: Readonly<Record<string, readonly string[]>> = {
  Start: ["README", "docs/guide/start"],
  Models: ["models", "decoders", "configure"].map((name) => `docs/guide/${name}`),
  Text: ["docs/guide/text"],
  Retrieval: ["retrieval", "encoders", "search"].map((name) => `docs/guide/${name}`),
  "Attention by hand": ["decode", "masks", "cross-attention", "linear", "latent", "convert", "weights"].map(
    (name) => `docs/guide/${name}`,
  ),
  Quantisation: ["docs/guide/quantisation"],
  Threads: ["threads", "shards", "async"].map((name) => `docs/guide/${name}`),
  Hosts: ["docs/guide/modules", "docs/hosting", "docs/cli"],
  "Looking inside": ["docs/guide/inspect", "docs/guide/heads", "docs/guide/stages", "docs/seeds"],
  "Look up": ["docs/api", "docs/glossary", "docs/numerics", "docs/benchmarks"],
  API: [],
  Internals: [
    ...["docs/design", "docs/kernels"],
    ...["layout", "layer", "states", "model", "formats", "modules", "memory", "identity", "errors", "threads"].map(
      (name) => `docs/design/${name}`,
    ),
    ...["loading", "open", "text", "inspection", "tests"].map((name) => `docs/design/${name}`),
  ],
};
/** Of the repository alone, or not made for reading in a page. */
const LEFT_OUT = new Set(["docs/README", "docs/CONTRIBUTING"]);
/** Pages whose place is not that of their file, or whose first heading says less than they do. */
const PATHS: Readonly<Record<string, string>> = { README: "docs/overview" };
const TITLES: Readonly<Record<string, string>> = { README: "Overview" };

/** Throws if a document of the repository is in no group. */
function expectAll(root: string, files: readonly string[]): void {
  const found = ["docs", "docs/guide", "docs/design"].flatMap((folder) =>
    readdirSync(join(root, folder)).flatMap((name) =>
      name.endsWith(".md") ? [`${folder}/${name.slice(0, -".md".length)}`] : [],
    ),
  );
  const missing = found.filter((file) => !files.includes(file) && !LEFT_OUT.has(file));
  if (missing.length > 0) throw new Error(`GROUPS of site/docs/pages.ts expected ${missing.join(", ")}`);
}

/** Renders all documents. Links to `others`, pages of the site by their names, stay in it; to other files, they lead to the repository. */
export function renderDocuments(
  root: string,
  repository: string,
  others: readonly string[],
  examples: Examples,
): DocumentPage[] {
  const files = Object.values(GROUPS).flat();
  expectAll(root, files);
  const texts = new Map(files.map((file) => [file, readFileSync(join(root, `${file}.md`), "utf8")]));
  const paths = new Map(files.map((file) => [`${file}.md`, PATHS[file] ?? file]));
  paths.set("docs/README.md", "docs");
  for (const name of others) paths.set(`site/pages/${name}.html`, name);
  const nameOf = (file: string) => TITLES[file] ?? /^# (.*)/.exec(texts.get(file) ?? "")?.[1]?.replaceAll("`", "");
  const titleOf = (file: string) => (target: string) => nameOf(resolveLink(file, target.replace(/\.md(?:#.*)?$/, "")));
  /** Links from a file of the repository, whose page is at `path`. */
  const linkFrom = (file: string, path: string) => (target: string) => {
    const [to = "", anchor] = target.split("#");
    const page = paths.get(resolveLink(file, to));
    // The page that has all documents has no headings of its own.
    const hash = anchor === undefined || page === "docs" ? "" : `#${anchor}`;
    if (page === undefined) return `${repository}/blob/main/${resolveLink(file, to)}${hash}`;
    return posix.relative(posix.dirname(path), `${page}.html`) + hash;
  };
  const example = (code: string) => examples.add(code);
  const render = (file: string, group: string): DocumentPage => {
    const path = paths.get(`${file}.md`) as string;
    const images: string[] = [];
    const image = (target: string) => {
      images.push(resolveLink(file, target));
      return posix.relative(posix.dirname(path), resolveLink(file, target));
    };
    const text = texts.get(file) as string;
    const rendered = renderMarkdown(text, { link: linkFrom(file, path), titleOf: titleOf(file), image, example });
    return { ...rendered, title: TITLES[file] ?? rendered.title, path, group, images };
  };
  const reference = ENTRIES.filter(({ worker }) => !worker).map(({ subpath, name }): DocumentPage => {
    const title = subpath.replace(/^\./, "headwise");
    const text = referenceText(title, readFileSync(join(root, "dist", `${name}.d.ts`), "utf8"));
    const path = `docs/reference/${name}`;
    const rendered = renderMarkdown(text, { link: linkFrom(path, path), image: (target) => target, example });
    return { ...rendered, path, group: "API", images: [] };
  });
  return Object.entries(GROUPS).flatMap(([group, own]) =>
    group === "API" ? reference : own.map((file) => render(file, group)),
  );
}
