// What surrounds a document: the list of all, the contents of this one, and the ones before and behind it.

import { escapeHtml } from "../../src/base/util/strings.ts";
import type { DocumentPage } from "./pages.ts";

/** The field of the search, which src/docs.ts enables. */
const SEARCH = `<div class="search" role="search"><label for="search">Search <kbd>/</kbd></label><input id="search" type="search" autocomplete="off" disabled /><p id="found" class="quiet small" role="status"></p><ul id="results" class="results"></ul></div>`;

/** Headings from which on a document has a list of them. */
const FEW = 3;

/** The documents by group, as links from a page at `root`; that at `here` is marked. */
function lists(documents: readonly DocumentPage[], root: string, here?: string): string[] {
  return [...new Set(documents.map(({ group }) => group))].map((group) => {
    const links = documents
      .filter((each) => each.group === group)
      .map(({ path, title }) => {
        const current = path === here ? ' aria-current="page"' : "";
        return `<li><a href="${root}${path}.html"${current}>${escapeHtml(title)}</a></li>`;
      });
    return `<h2>${group}</h2>\n<ul>${links.join("")}</ul>`;
  });
}

/** The headings of a document, at its right where there is room. */
function contents({ parts }: DocumentPage): string {
  const shown = parts.filter(({ depth }) => depth === 2 || depth === 3);
  if (shown.length < FEW) return "";
  const links = shown.map(
    ({ id, title, depth }) => `<li class="depth-${depth}"><a href="#${id}">${escapeHtml(title)}</a></li>`,
  );
  return `<nav class="contents" aria-label="On this page"><h2>On this page</h2><ul>${links.join("")}</ul></nav>`;
}

/** All documents, and the search: the page that has their lists. */
export const documentsHtml = (documents: readonly DocumentPage[]): string =>
  `${SEARCH}<div class="lists">${lists(documents, "./")
    .map((each) => `<section>${each}</section>`)
    .join("\n")}</div>`;

/** A document with what surrounds it; `content` is its text. */
export function documentHtml(documents: readonly DocumentPage[], at: number, content: string): string {
  const own = documents[at] as DocumentPage;
  const root = "../".repeat(own.path.split("/").length - 1);
  const beside = (index: number, rel: "prev" | "next", says: string) => {
    const other = documents[index];
    if (!other) return "<span></span>";
    return `<a rel="${rel}" href="${root}${other.path}.html"><span class="quiet small">${says}</span>${escapeHtml(other.title)}</a>`;
  };
  const around = `${beside(at - 1, "prev", "← Before")}${beside(at + 1, "next", "Next →")}`;
  const list = lists(documents, root, own.path).join("\n");
  return `<div class="sides documents-sides">
<aside class="documents" aria-label="Documents">${SEARCH}<nav aria-label="Documents">${list}</nav></aside>
<article class="document">
${content}<nav class="around" aria-label="Before and next">${around}</nav>
</article>
${contents(own)}</div>
<textarea id="manual" class="manual" aria-label="Text to copy" readonly hidden></textarea>`;
}
