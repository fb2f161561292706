// Faults of host code: each one edit of one place in a function of one file, found from the syntax tree.

import { readFileSync } from "node:fs";
import { join } from "node:path";
import { parseAst } from "vitest/node";

/** One edit, and the expression or statement that it is in. */
export interface Fault {
  /** Below src/. */
  readonly file: string;
  readonly line: number;
  /** The line that is changed, and what it becomes; equal lines of a file are told apart by `#2`, `#3` behind `from`. */
  readonly from: string;
  readonly to: string;
  readonly place: Place;
  /** The text of the place with the fault; empty for a statement that is dropped. */
  readonly text: string;
}

/** Where an expression or a statement lies in its file. */
interface Place {
  readonly start: number;
  readonly end: number;
  readonly statement: boolean;
}

interface Node {
  readonly type: string;
  readonly start: number;
  readonly end: number;
  readonly [field: string]: unknown;
}

export const SOURCES = join(import.meta.dirname, "../../../src");

/** Operators, and what a fault makes of them. */
const OPERATORS: Readonly<Record<string, string>> = {
  ...{ "+": "-", "-": "+", "*": "/", "/": "*", "%": "*", "<<": ">>", ">>": "<<", ">>>": "<<", "&": "|", "|": "&" },
  ...{ "<": "<=", "<=": "<", ">": ">=", ">=": ">", "===": "!==", "!==": "===", "&&": "||", "||": "&&" },
  ...{ "+=": "-=", "-=": "+=", "*=": "/=", "/=": "*=", "|=": "&=", "&=": "|=", "??=": "=", "++": "--", "--": "++" },
};

/** Functions and methods, and what a fault calls in their place. */
const CALLS: ReadonlyMap<string, string> = new Map([
  ...pairs(["min", "max"], ["ceil", "floor"], ["every", "some"], ["shift", "pop"]),
  ["push", "unshift"],
]);

function pairs(...names: [string, string][]): [string, string][] {
  return names.flatMap(([a, b]) => [[a, b] as [string, string], [b, a] as [string, string]]);
}

/** Expressions that types are behind: of these, only the expression is looked at. */
const TYPED = ["TSAsExpression", "TSNonNullExpression", "TSSatisfiesExpression"];

/** All faults of a file, in the order of their places. */
export function faultsOf(file: string): Fault[] {
  const source = readFileSync(join(SOURCES, file), "utf8");
  const faults: Fault[] = [];
  const seen = new Map<string, number>();

  /** Adds the fault that has `text` at `start` to `end`, within a place. */
  function add(place: Place, start: number, end: number, text: string): void {
    const first = source.lastIndexOf("\n", start - 1) + 1;
    const last = source.indexOf("\n", start);
    const before = source.slice(first, last).trim();
    const whole = text === "" && place.statement;
    const to = whole ? "" : (source.slice(first, start) + text + source.slice(Math.min(end, last), last)).trim();
    const key = `${before}\n${to}`;
    const count = (seen.get(key) ?? 0) + 1;
    seen.set(key, count);
    faults.push({
      file,
      line: source.slice(0, start).split("\n").length,
      from: count > 1 ? `${before} #${count}` : before,
      to,
      place,
      text: whole ? "" : source.slice(place.start, start) + text + source.slice(end, place.end),
    });
  }

  const expression = ({ start, end }: Node): Place => ({ start, end, statement: false });

  /** Changes the operator between two ends. */
  function operator(node: Node, from: number, to: number): void {
    const name = node.operator as string;
    const other = OPERATORS[name];
    const start = source.slice(0, to).indexOf(name, from);
    if (other !== undefined && start >= 0) add(expression(node), start, start + name.length, other);
  }

  function whole(node: Node, texts: readonly string[]): void {
    for (const text of texts) add(expression(node), node.start, node.end, text);
  }

  function visit(node: Node, inChain: boolean): void {
    const [left, right, test] = [node.left, node.right, node.test] as (Node | undefined)[];
    switch (node.type) {
      case "BinaryExpression":
      case "LogicalExpression":
      case "AssignmentExpression":
        if (node.operator === "??") whole(node, [source.slice((right as Node).start, (right as Node).end)]);
        else operator(node, (left as Node).end, (right as Node).start);
        break;
      case "UpdateExpression":
        operator(node, node.start, node.end);
        break;
      case "UnaryExpression": {
        const argument = node.argument as Node;
        const drop = node.operator === "!" || (node.operator === "-" && argument.type !== "Literal");
        if (drop) whole(node, [source.slice(argument.start, argument.end)]);
        break;
      }
      case "IfStatement":
      case "ConditionalExpression":
        whole(test as Node, ["true", "false"]);
        break;
      case "WhileStatement":
      case "ForStatement":
        if (test) whole(test, ["false"]);
        break;
      case "Literal":
        if (typeof node.value === "number") whole(node, node.value === 1 ? ["2", "0"] : [`${node.value + 1}`]);
        else if (typeof node.value === "boolean") whole(node, [`${!node.value}`]);
        break;
      case "CallExpression": {
        const property = (node.callee as Node).property as Node | undefined;
        const other = property?.type === "Identifier" ? CALLS.get(property.name as string) : undefined;
        if (property && other && !inChain) add(expression(node), property.start, property.end, other);
        break;
      }
      case "ExpressionStatement":
        add({ start: node.start, end: node.end, statement: true }, node.start, node.end, "");
        break;
    }
  }

  function walk(node: Node, inFunction: boolean, inChain: boolean): void {
    if (TYPED.includes(node.type)) walk(node.expression as Node, inFunction, inChain);
    if (node.type.startsWith("TS")) return;
    if (inFunction) visit(node, inChain);
    const inside = inFunction || /Function/.test(node.type) || node.type === "MethodDefinition";
    for (const [field, value] of Object.entries(node)) {
      if (field === "key" && !node.computed) continue;
      for (const child of Array.isArray(value) ? value : [value])
        if (typeof child?.type === "string") walk(child, inside, node.type === "ChainExpression" || inChain);
    }
  }

  walk(parseAst(source, { lang: "ts" }) as unknown as Node, false, false);
  return faults.sort((a, b) => a.place.start - b.place.start || b.place.end - a.place.end);
}

/**
 * The source of a file in which `fault(n)`, a function of the global scope, says at every place whether the fault of
 * number n is there. `faults` are of this file, with their numbers.
 */
export function sourceWith(file: string, faults: ReadonlyMap<number, Fault>): string {
  const source = readFileSync(join(SOURCES, file), "utf8");
  const numbered = [...faults].sort(([, a], [, b]) => a.place.start - b.place.start || b.place.end - a.place.end);
  let next = 0;

  /** The text from `start` to `end`, with all places within. */
  function render(start: number, end: number): string {
    let [text, at] = ["", start];
    while (next < numbered.length) {
      const { place } = (numbered[next] as [number, Fault])[1];
      if (place.start >= end) break;
      text += source.slice(at, place.start) + renderPlace(place);
      at = place.end;
    }
    return text + source.slice(at, end);
  }

  /** A place with its faults, and what is within it. */
  function renderPlace(place: Place): string {
    const here: [number, Fault][] = [];
    const isHere = (other: Place) =>
      other.start === place.start && other.end === place.end && other.statement === place.statement;
    while (next < numbered.length && isHere((numbered[next] as [number, Fault])[1].place))
      here.push(numbered[next++] as [number, Fault]);
    const inner = render(place.start, place.end);
    if (place.statement) return `{ if (!fault(${here[0]?.[0]})) { ${inner} } }`;
    return `(${here.map(([n, { text }]) => `fault(${n}) ? (${text}) : `).join("")}(${inner}))`;
  }

  return render(0, source.length);
}
