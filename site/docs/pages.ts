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

const GROUPS: readonly { readonly group: string; readonly folder: string }[] = [
  { group: "Guides", folder: "docs/guide" },
  { group: "Look up", folder: "docs" },
  { group: "Design", folder: "docs/design" },
];
/** Of the repository alone, or not made for reading in a page. */
const LEFT_OUT = new Set(["docs/README.md", "docs/CONTRIBUTING.md"]);

/** Renders all documents. Links to `others`, pages of the site by their names, stay in it; to other files, they lead to the repository. */
export function renderDocuments(
  root: string,
  repository: string,
  others: readonly string[],
  examples: Examples,
): DocumentPage[] {
  const files = GROUPS.flatMap(({ group, folder }) =>
    readdirSync(join(root, folder))
      .filter((name) => name.endsWith(".md"))
      .map((name) => ({ group, file: `${folder}/${name}` }))
      .filter(({ file }) => !LEFT_OUT.has(file)),
  );
  const pages = new Map(files.map(({ file }) => [file, file.replace(/\.md$/, "")]));
  pages.set("docs/README.md", "docs");
  for (const name of others) pages.set(`site/pages/${name}.html`, name);
  const linkFrom = (file: string) => (target: string) => {
    const [path = "", anchor] = target.split("#");
    const page = pages.get(resolveLink(file, path));
    const hash = anchor === undefined ? "" : `#${anchor}`;
    if (page === undefined) return `${repository}/blob/main/${resolveLink(file, path)}${hash}`;
    return posix.relative(posix.dirname(file), `${page}.html`) + hash;
  };
  const example = (code: string) => examples.add(code);
  const documents = files.map(({ group, file }): DocumentPage => {
    const text = readFileSync(join(root, file), "utf8");
    const images: string[] = [];
    const image = (target: string) => {
      images.push(resolveLink(file, target));
      return target;
    };
    const rendered = renderMarkdown(text, { link: linkFrom(file), image, example });
    return { ...rendered, path: pages.get(file) as string, group, images };
  });
  const entries = ENTRIES.filter(({ worker }) => !worker).map(({ subpath, name }): DocumentPage => {
    const title = subpath.replace(/^\./, "headwise");
    const text = referenceText(title, readFileSync(join(root, "dist", `${name}.d.ts`), "utf8"));
    const link = linkFrom("docs/reference/x.md");
    const rendered = renderMarkdown(text, { link, image: (target) => target, example });
    return { ...rendered, path: `docs/reference/${name}`, group: "API", images: [] };
  });
  return [...documents, ...entries];
}
