// What the example of a search makes of documents.

import { readdirSync, readFileSync } from "node:fs";
import { join } from "node:path";
import GithubSlugger from "github-slugger";
import { marked, type Token } from "marked";
import { expect, test } from "vitest";
import { passagesOf } from "../../examples/search/passages.ts";

const docs = join(import.meta.dirname, "../../docs");

test("a passage has its headings, its address and its text without marks", () => {
  const markdown = ["Before.", "# A *b* `c`", "", "One [link](to.md).", "## D", "```", "# [0](1)", "```", "### E"];
  const second = ["## D", "| a | b |", "|---|---|", "| 1 | **2** |", ...["x", "y"].map((mark) => mark.repeat(600))];
  expect(passagesOf([...markdown, ...second].join("\n"), "doc")).toEqual([
    { title: "", url: "doc", text: "Before." },
    { title: "A *b* c", url: "doc#a-b-c", text: "One link." },
    { title: "A *b* c › D", url: "doc#d", text: "# [0](1)" },
    { title: "A *b* c › D", url: "doc#d-1", text: `| a | b |\n| 1 | 2 |\n${"x".repeat(600)}` },
    { title: "A *b* c › D", url: "doc#d-1", text: "y".repeat(600) },
  ]);
});

test("addresses of passages are those that GitHub gives headings, in all documents", () => {
  const textOf = (token: Token): string =>
    "tokens" in token && token.tokens ? token.tokens.map(textOf).join("") : "text" in token ? token.text : "";
  let count = 0;
  for (const path of readdirSync(docs, { recursive: true, encoding: "utf8" })) {
    if (!path.endsWith(".md") || path.includes("node_modules")) continue;
    const markdown = readFileSync(join(docs, path), "utf8");
    const slugger = new GithubSlugger();
    const headings = marked.lexer(markdown).filter(({ type }) => type === "heading");
    const known = new Set(["", ...headings.map((heading) => `#${slugger.slug(textOf(heading))}`)]);
    const found = passagesOf(markdown, "");
    count += found.length;
    expect(found.filter(({ url }) => !known.has(url))).toEqual([]);
  }
  expect(count).toBeGreaterThan(500);
});
