// The titles of the tests that a file runs, from its syntax tree: neither comments nor tests that are skipped count.

import { parseAst } from "vitest/node";

interface Node {
  readonly type: string;
  readonly start: number;
  readonly end: number;
  readonly [field: string]: unknown;
}

/** What keeps a test from being run, wherever the file is. */
const NOT_RUN = ["skip", "todo"];

/** The titles of `test` and `describe` in the text of a test file; what is inserted into one is as the file has it. */
export function titlesOf(source: string): Set<string> {
  const titles = new Set<string>();
  walk(source, (node) => {
    const [name = "", ...how] = node.type === "CallExpression" ? namesOf(node.callee as Node) : [];
    const [title, ...rest] = (node.arguments ?? []) as Node[];
    if (!["test", "it", "describe"].includes(name) || !title || rest.length === 0) return true;
    const isOff = rest.some(({ start, end, type }) => {
      return type === "ObjectExpression" && /\b(?:skip|todo):/.test(source.slice(start, end));
    });
    if (isOff || how.some((way) => NOT_RUN.includes(way))) return false;
    titles.add(textOf(source, title));
    return true;
  });
  return titles;
}

/** The strings of a file, those with insertions as the file has them, and the names of properties. */
export function stringsOf(source: string): Set<string> {
  const strings = new Set<string>();
  walk(source, (node) => {
    if (typeof node.value === "string" || node.type === "TemplateLiteral") strings.add(textOf(source, node));
    else if (node.type === "Property") strings.add(String((node.key as Node).name));
    return true;
  });
  return strings;
}

/** Visits the nodes of a file, and those below each one for which `visit` gives true. */
function walk(source: string, visit: (node: Node) => boolean): void {
  const step = (node: Node): void => {
    if (!visit(node)) return;
    for (const child of Object.values(node).flat() as (Node | null)[]) if (typeof child?.type === "string") step(child);
  };
  step(parseAst(source, { lang: "ts" }) as unknown as Node);
}

/** The names of `test.skip` or `test.each(rows)`. */
function namesOf(node: Node): string[] {
  if (node.type === "Identifier") return [node.name as string];
  if (node.type === "MemberExpression") return [...namesOf(node.object as Node), ...namesOf(node.property as Node)];
  if (node.type === "CallExpression") return namesOf(node.callee as Node);
  return [];
}

function textOf(source: string, node: Node): string {
  if (node.type === "Literal") return String(node.value);
  if (node.type === "BinaryExpression") return textOf(source, node.left as Node) + textOf(source, node.right as Node);
  return source.slice(node.start + 1, node.end - 1);
}
