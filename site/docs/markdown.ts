// Markdown to HTML, with the anchors of GitHub, links between the documents of the site, and blocks of code that run.

import { dirname, join, posix } from "node:path";
import GithubSlugger from "github-slugger";
import { Marked, type Tokens } from "marked";
import { escapeHtml } from "../../src/base/util/strings.ts";
import { highlight } from "./highlight.ts";

/** A part of a document below a heading, for the search. */
export interface Part {
  readonly id: string;
  readonly title: string;
  /** Of its heading, 1 to 6. */
  readonly depth: number;
  readonly text: string;
}

export interface Rendered {
  readonly title: string;
  readonly html: string;
  readonly parts: readonly Part[];
}

export interface RenderOptions {
  /** The address of a file of the repository, from the document that links to it; with its anchor. */
  link(target: string): string;
  /** The title of a document that a link leads to, which stands where the link has the name of its file. */
  titleOf?(target: string): string | undefined;
  /** The address of an image of the repository. */
  image(target: string): string;
  /** The id of the example of this code, if it runs in a page. */
  example(code: string): string | undefined;
}

/** Where a relative link of a document leads, from the root of the repository. */
export const resolveLink = (file: string, target: string): string => posix.normalize(join(dirname(file), target));

/** Renders a document. Its title is its first heading, which is left out: the layout shows it. */
export function renderMarkdown(text: string, { link, titleOf, image, example }: RenderOptions): Rendered {
  const slugger = new GithubSlugger();
  const parts: { id: string; title: string; depth: number; text: string }[] = [];
  let title = "";
  const marked = new Marked({
    gfm: true,
    walkTokens(token) {
      const last = parts.at(-1);
      // The text of an item of a list has tokens of its own, which come next.
      const isWords =
        "text" in token && !("tokens" in token && token.tokens) && /^(text|codespan|code)$/.test(token.type);
      if (last && isWords) last.text += ` ${token.text}`;
      if (token.type === "heading")
        parts.push({ id: "", title: plain(token as Tokens.Heading), depth: token.depth, text: "" });
    },
    renderer: {
      heading(token) {
        const id = slugger.slug(plain(token));
        const part = parts.find((each) => each.id === "" && each.title === plain(token));
        if (part) part.id = id;
        if (token.depth === 1 && title === "") {
          title = plain(token);
          return "";
        }
        const level = `h${token.depth}`;
        return `<${level} id="${id}">${this.parser.parseInline(token.tokens)}</${level}>\n`;
      },
      link({ href, title: hint, tokens }) {
        const to = /^[a-z]+:|^#/.test(href) ? href : link(href);
        const about = hint ? ` title="${escapeHtml(hint)}"` : "";
        const isFile = tokens.length === 1 && /^`?[\w./-]+\.md`?$/.test(tokens[0]?.raw ?? "");
        const title = isFile ? titleOf?.(href) : undefined;
        const shown = title === undefined ? this.parser.parseInline(tokens) : escapeHtml(title);
        return `<a href="${escapeHtml(to)}"${about}>${shown}</a>`;
      },
      image({ href, text: alt }) {
        return `<img src="${escapeHtml(image(href))}" alt="${escapeHtml(alt)}" />`;
      },
      table({ header, rows }) {
        const row = (of: string, cells: Tokens.TableCell[]) =>
          `<tr>${cells
            .map(({ tokens, text: cell, align }) => {
              const tag = cell === "" ? "td" : of;
              const kind = align === "right" ? ' class="number"' : "";
              return `<${tag}${kind}>${this.parser.parseInline(tokens)}</${tag}>`;
            })
            .join("")}</tr>`;
        const head = header.some(({ text: cell }) => cell !== "") ? `<thead>${row("th", header)}</thead>` : "";
        return `<div class="table" tabindex="0" role="group" aria-label="Table"><table>${head}<tbody>${rows.map((cells) => row("td", cells)).join("")}</tbody></table></div>\n`;
      },
      code({ text: code, lang = "" }) {
        const id = /^ts$/.test(lang) ? example(code) : undefined;
        const shown = `<pre tabindex="0"><code>${highlight(code, lang)}</code></pre><button type="button" class="copy" hidden>Copy</button>`;
        if (id === undefined) return `<div class="code">${shown}</div>\n`;
        return `<div class="example" data-example="${id}"><div class="code">${shown}</div><p class="actions"><button type="button">Run</button></p><output hidden></output></div>\n`;
      },
    },
  });
  const html = marked.parse(text, { async: false });
  return { title, html, parts };
}

/** The words of a heading. */
function plain(token: Tokens.Heading): string {
  return token.text
    .replace(/`([^`]*)`/g, "$1")
    .replace(/\[([^\]]*)\]\([^)]*\)/g, "$1")
    .replace(/\*{1,2}(\S.*?\S|\S)\*{1,2}/g, "$1");
}
