// Pages of HTML: the layout around a content, and the menu.

import { readFileSync } from "node:fs";
import { escapeHtml } from "../src/base/util/strings.ts";
import { GROUPS, type Group, PAGES, type Page } from "./pages.ts";

/** Seven arcs over two dots. */
const MARK = `<svg class="logo" viewBox="0 0 34 23" aria-hidden="true">${Array.from(
  { length: 7 },
  (_, head) => `<path class="head-${head}" d="M4 19A13 ${2.2 + 2.3 * head} 0 0 1 30 19" />`,
).join("")}<circle cx="4" cy="19.5" r="2.6" /><circle class="answer" cx="30" cy="19.5" r="2.6" /></svg>`;

/** Above the content; the first page has its own. */
const HEAD = `      <header>
        <h1>{title}</h1>
        <p>{about}</p>
      </header>
`;
const LAYOUT = readFileSync(new URL("layout.html", import.meta.url), "utf8");

export interface PageParts {
  readonly title: string;
  readonly about: string;
  /** The page of the menu that it is, or belongs to. */
  readonly menu: string;
  /** The way from the page to the folder of the site: "./", "../". */
  readonly root: string;
  /** Paths in the site. */
  readonly styles: readonly string[];
  readonly icon: string;
  readonly script: string;
  readonly content: string;
  readonly version: string;
  /** Where the site will lie, with a slash at its end, and the page in it; empty if that is not known. */
  readonly address: string;
  readonly path: string;
}

export function pageHtml({ title, about, menu, styles, address, path, ...rest }: PageParts): string {
  const own = PAGES.find(({ name }) => name === menu);
  const pagesOf = (group: Group) => PAGES.filter((page) => page.group === group);
  const link = (name: string, label: string, current = "") =>
    `<a href="${rest.root}${name}.html"${current && ` aria-current="${current}"`}>${escapeHtml(label)}</a>`;
  const currentOf = (name: string) => (name === menu ? "page" : "");
  const groups = GROUPS.map((group) => {
    const [first] = pagesOf(group) as [Page];
    const isOf = own?.group === group;
    // Of a group with several pages, the menu says which group it is, and the line below it which page.
    return link(first.name, group, isOf ? (pagesOf(group).length === 1 ? "page" : "true") : "");
  });
  const others = own === undefined || own.group === "Foot" ? [] : pagesOf(own.group);
  const list = others.map(({ name, label }) => link(name, label, currentOf(name))).join("");
  const local = others.length < 2 ? "" : `<nav class="local" aria-label="${own?.group}">${list}</nav>`;
  const foot = pagesOf("Foot").map(({ name, label }) => link(name, label, currentOf(name)));
  const texts = { title: escapeHtml(title), about: escapeHtml(about) };
  const head = menu === "index" ? "" : fill(HEAD, texts);
  const sheets = styles.map((style) => `<link rel="stylesheet" href="${rest.root}${style}" />`).join("");
  const card = `${address || rest.root}${own?.group === "See" ? "heads" : "story"}.png`;
  return fill(LAYOUT, {
    ...{ card, address: address && `<meta property="og:url" content="${escapeHtml(`${address}${path}.html`)}" />` },
    ...rest,
    ...texts,
    head,
    styles: sheets,
    mark: MARK,
    menu: groups.join(""),
    local,
    foot: foot.join(""),
  });
}

/** Replaces each {name} of a text; a name without a value is an error. */
export function fill(template: string, values: Readonly<Record<string, string>>): string {
  return template.replace(/\{(\w+)\}/g, (_, name: string) => {
    const value = values[name];
    if (value === undefined) throw new Error(`fill: values expected a text for {${name}}, got none`);
    return value;
  });
}
