// Pages of HTML: the layout around a content, and the menu.

import { readFileSync } from "node:fs";
import { escapeHtml } from "../src/base/util/strings.ts";
import { PAGES } from "./pages.ts";

const LAYOUT = readFileSync(new URL("layout.html", import.meta.url), "utf8");

export interface PageParts {
  readonly title: string;
  readonly about: string;
  /** The page of the menu that it is, or belongs to. */
  readonly menu: string;
  /** The way from the page to the folder of the site: "./", "../". */
  readonly root: string;
  /** Paths in the site. */
  readonly style: string;
  readonly icon: string;
  readonly script: string;
  readonly content: string;
  readonly version: string;
}

export function pageHtml({ title, about, menu, ...rest }: PageParts): string {
  const links = PAGES.map(({ name, label }) => {
    const current = name === menu ? ' aria-current="page"' : "";
    return `<a href="${rest.root}${name}.html"${current}>${escapeHtml(label)}</a>`;
  });
  return fill(LAYOUT, { ...rest, title: escapeHtml(title), about: escapeHtml(about), menu: links.join("") });
}

/** Replaces each {name} of a text; a name without a value is an error. */
export function fill(template: string, values: Readonly<Record<string, string>>): string {
  return template.replace(/\{(\w+)\}/g, (_, name: string) => {
    const value = values[name];
    if (value === undefined) throw new Error(`fill: values expected a text for {${name}}, got none`);
    return value;
  });
}
