// Runs a chat template as Jinja does it in Python, within limits: what the library parses is evaluated here.

import { describe, HeadwiseError } from "../base/util/errors.ts";
import { reasonOf } from "../base/util/strings.ts";
import { applyFilter, globalsOf } from "./filters.ts";
import type { Jinja } from "./libraries.ts";
import { getAttribute, getItem, slice } from "./methods.ts";

import { NAMES, type Node, readTemplate } from "./read-template.ts";
import { createMarks, type MarkedText } from "./tokenizer.ts";
import {
  type Call,
  createWriter,
  Float,
  fail,
  fromHost,
  isTrue,
  itemsOf,
  keyOf,
  type Limits,
  Namespace,
  operate,
  Stream,
  signed,
  Tuple,
  textOf,
  Undefined,
  View,
} from "./values.ts";

/**
 * Limits of a template, which comes with a model and is a program: its characters, those of any text that it makes, the elements of
 * any list, and its work. That of a thousand messages is some hundred thousand.
 */
const LONGEST_TEMPLATE = 2 ** 18;
const LONGEST_TEXT = 2 ** 22;
const LONGEST_LIST = 2 ** 16;
const MOST_WORK = 2 ** 20;
/** How much is one unit of work: characters of a text, elements of a list or dict that is known, and of one that is new. */
const WORK_TEXT = 64;
const WORK_KNOWN = 256;
const WORK_NEW = 8;

/** The reason for which the template refuses the messages. */
class Refusal {
  readonly reason: string;
  constructor(reason: string) {
    this.reason = reason;
  }
}

/** Renders a chat template with variables, `given` among them, in which the texts of `specials` are to be told from the template's. */
export function renderTemplate(
  where: string,
  library: Jinja,
  template: string,
  variables: Readonly<Record<string, unknown>>,
  given: Readonly<Record<string, unknown>>,
  specials: readonly string[],
): MarkedText {
  const { length } = template;
  if (length > LONGEST_TEMPLATE)
    throw badTemplate(`${where}: chat template expected at most ${LONGEST_TEMPLATE} characters, got ${length}`);
  const limits = limit(where);
  const globals: Readonly<Record<string, unknown>> = {
    ...globalsOf(limits),
    raise_exception: ([reason]: readonly unknown[]) => {
      throw new Refusal(textOf(limits, reason));
    },
    strftime_now: ([format]: readonly unknown[]) => formatTime(new Date(), textOf(limits, format)),
  };
  try {
    const parsed = readTemplate(library, template);
    const marks = specials.length > 0 ? createMarks(where, specials, literalsOf(parsed), given) : undefined;
    if (marks) limits.original = marks.original;
    const scope = new Scope(new Map(Object.entries(globals)));
    const set = (key: string, value: unknown) => {
      if (value !== undefined) scope.values.set(key, fromHost(limits, value));
    };
    for (const [key, value] of Object.entries(variables)) set(key, value);
    for (const [key, value] of Object.entries(given)) set(key, marks ? marks.mark(value) : value);
    const text = new Interpreter(limits).block(parsed.body ?? [], scope);
    return marks ? marks.restore(text) : { text, plain: [] };
  } catch (cause) {
    if (cause instanceof HeadwiseError) throw cause;
    if (cause instanceof Refusal)
      throw new RangeError(`${where}: messages expected what the chat template allows, got ${describe(cause.reason)}`);
    throw badTemplate(
      `${where}: chat template expected one that renders these messages, got ${reasonOf(cause)}`,
      cause,
    );
  }
}

const badTemplate = (text: string, cause?: unknown) => new HeadwiseError("BAD_FILE", text, { cause });

/** The strings that a parsed template has in its expressions. */
function literalsOf(node: unknown): string[] {
  if (typeof node !== "object" || node === null) return [];
  const { type, value } = node as Node;
  if (type === "StringLiteral" && typeof value === "string") return [value];
  const parts = node instanceof Map ? [...node].flat() : Object.values(node);
  return [...new Set(parts.flatMap(literalsOf))];
}

function limit(where: string): Limits {
  let work = 0;
  const expect = (value: number, most: number, what: string) => {
    if (!(value <= most)) throw badTemplate(`${where}: chat template expected at most ${most} ${what}, got more`);
  };
  return {
    step(steps) {
      work += steps;
      expect(work, MOST_WORK, "steps");
    },
    text: (length) => expect(length, LONGEST_TEXT, "characters of text"),
    list: (length) => expect(length, LONGEST_LIST, "elements of a list"),
    original: (character) => character,
  };
}

/** Variables of a part of a template; what it does not have, the part around it may. */
class Scope {
  readonly values: Map<string, unknown>;
  readonly parent: Scope | undefined;
  constructor(values: Map<string, unknown>, parent?: Scope) {
    this.values = values;
    this.parent = parent;
  }
  find(name: string): unknown {
    for (let scope: Scope | undefined = this; scope; scope = scope.parent)
      if (scope.values.has(name)) return scope.values.get(name);
    return new Undefined(`'${name}' is undefined`);
  }
}

const CONSTANTS: ReadonlyMap<unknown, unknown> = new Map<unknown, unknown>(
  Object.entries({ true: true, True: true, false: false, False: false, none: null, None: null }),
);

type Writer = ReturnType<typeof createWriter>;
/** How a statement ends: a loop goes on, or not. */
type End = "break" | "continue" | undefined;

class Interpreter {
  readonly limits: Limits;
  /** Lists and others that were counted. */
  readonly known = new WeakSet<object>();
  constructor(limits: Limits) {
    this.limits = limits;
  }

  /** The text of statements. */
  block(body: readonly Node[], scope: Scope): string {
    const out = createWriter(this.limits);
    if (this.execute(body, scope, out)) throw new SyntaxError("break and continue expected a loop around them");
    return out.text();
  }

  execute(body: readonly Node[], scope: Scope, out: Writer): End {
    for (const node of body) {
      const end = this.statement(node, scope, out);
      if (end) return end;
    }
    return undefined;
  }

  statement(node: Node, scope: Scope, out: Writer): End {
    this.limits.step(1);
    switch (node.type) {
      case "Comment":
        return undefined;
      case "Break":
        return "break";
      case "Continue":
        return "continue";
      case "If": {
        const isMet = isTrue(this.evaluate(node.test as Node, scope));
        return this.execute((isMet ? node.body : node.alternate) as Node[], scope, out);
      }
      case "For":
        this.loop(node, scope, out);
        return undefined;
      case "Set":
        this.set(node, scope);
        return undefined;
      case "Macro":
        scope.values.set((node.name as Node).value as string, this.macro(node, scope));
        return undefined;
      case "CallStatement": {
        const call = node.call as Node;
        const params = { name: { value: "caller" }, args: node.callerArgs ?? [], body: node.body };
        const caller = this.macro(params as unknown as Node, scope);
        const isPlain = (call.callee as Node).value === NAMES.generation;
        const [args, named] = this.arguments(call.args ?? [], scope);
        const callee = isPlain ? caller : this.evaluate(call.callee as Node, scope);
        out.put(this.print(this.call(callee, args, isPlain ? named : new Map([...named, ["caller", caller]]))));
        return undefined;
      }
      case "FilterStatement": {
        const text = this.block(node.body ?? [], new Scope(new Map(), scope));
        out.put(this.print(this.filter(text, node.filter as Node, scope)));
        return undefined;
      }
      default:
        out.put(this.print(this.evaluate(node, scope)));
        return undefined;
    }
  }

  print(value: unknown): string {
    return textOf(this.limits, value);
  }

  loop(node: Node, outer: Scope, out: Writer): void {
    const select = node.iterable as Node;
    const isSelected = select.type === "SelectExpression";
    const iterable = (isSelected ? select.lhs : select) as Node;
    const isRecursive = iterable.type === "FilterExpression" && (iterable.filter as Node).value === NAMES.recursive;
    const given = this.evaluate(isRecursive ? (iterable.operand as Node) : iterable, outer);
    const run = (value: unknown, depth: number, to: Writer): void => {
      let items = itemsOf(this.limits, value);
      this.limits.step(items.length);
      if (isSelected)
        items = items.filter((item) => {
          const scope = new Scope(new Map(), outer);
          this.assign(node.loopvar as Node, item, scope);
          return isTrue(this.evaluate(select.test as Node, scope));
        });
      const again: Call = ([inner]) => {
        if (!isRecursive) throw new Error("the loop expected the word recursive to be called");
        const writer = createWriter(this.limits);
        run(inner, depth + 1, writer);
        return writer.text();
      };
      let isDone = false;
      for (const [i, item] of items.entries()) {
        const scope = new Scope(new Map(), outer);
        this.assign(node.loopvar as Node, item, scope);
        scope.values.set("loop", this.loopState(items, i, depth, again));
        const end = this.execute(node.body ?? [], scope, to);
        if (end === "break") break;
        // Python marks an iteration as done at its end.
        isDone ||= end === undefined;
      }
      const behind = isDone ? undefined : this.execute(node.defaultBlock as Node[], new Scope(new Map(), outer), to);
      if (behind) throw new Error("break and continue are not supported behind else of a loop");
    };
    run(given, 0, out);
  }

  loopState(items: readonly unknown[], i: number, depth: number, again: Call): Namespace {
    const { length } = items;
    const near = (at: number, what: string) => (at in items ? items[at] : new Undefined(`there is no ${what} item`));
    const fields: Readonly<Record<string, unknown>> = {
      ...{ index: i + 1, index0: i, revindex: length - i, revindex0: length - i - 1, length },
      ...{ first: i === 0, last: i === length - 1, depth: depth + 1, depth0: depth },
      ...{ previtem: near(i - 1, "previous"), nextitem: near(i + 1, "next") },
    };
    return new Namespace(new Map(Object.entries(fields)), again);
  }

  set(node: Node, scope: Scope): void {
    let target = node.assignee as Node;
    let value: unknown;
    if (node.value) value = this.evaluate(node.value as Node, scope);
    else {
      const filters: Node[] = [];
      for (; target.type === "FilterExpression"; target = target.operand as Node)
        filters.unshift(target.filter as Node);
      value = this.block(node.body ?? [], new Scope(new Map(), scope));
      for (const filter of filters) value = this.filter(value, filter, scope);
    }
    this.assign(target, value, scope);
  }

  /** Sets what stands on the left of an assignment, or between `for` and `in`. */
  assign(target: Node, value: unknown, scope: Scope): void {
    if (target.type === "Identifier") {
      if (CONSTANTS.has(target.value)) throw new SyntaxError(`${target.value} expected to stay as it is`);
      scope.values.set(target.value as string, value);
    } else if (target.type === "TupleLiteral") {
      const [parts, items] = [target.value as Node[], itemsOf(this.limits, value)];
      if (parts.length !== items.length)
        throw new Error(`expected ${parts.length} values to unpack, got ${items.length}`);
      for (const [i, part] of parts.entries()) this.assign(part, items[i], scope);
    } else if (
      target.type === "MemberExpression" &&
      (target.property as Node).type === "Identifier" &&
      !target.computed
    ) {
      const object = this.evaluate(target.object as Node, scope);
      if (!(object instanceof Namespace) || object.call)
        throw new Error("cannot assign attribute on non-namespace object");
      const name = (target.property as Node).value as string;
      if (name.startsWith("_")) throw new Error(`a namespace expected names without _, got ${name}`);
      object.fields.set(name, value);
    } else throw new SyntaxError("expected a name to assign to");
  }

  /** A macro: its names are those of where it stands. */
  macro(node: Node, outer: Scope): Call {
    const params = (node.args ?? []).map((arg) => {
      const isNamed = arg.type === "KeywordArgumentExpression";
      const name = (isNamed ? (arg.key as Node).value : arg.value) as string;
      return { name, other: isNamed ? (arg.value as Node) : undefined };
    });
    const used = new Set(["varargs", "kwargs", "caller"].filter((name) => mentions(node.body, name)));
    const what = `macro '${(node.name as Node).value}'`;
    return (args, named) => {
      const scope = new Scope(new Map(), outer);
      const rest = new Map(named);
      for (const [i, { name }] of params.entries()) {
        if (i < args.length && rest.has(name)) throw new TypeError(`${what} got multiple values for '${name}'`);
        const isGiven = i < args.length || rest.has(name);
        const missing = new Undefined(`parameter '${name}' was not provided`);
        scope.values.set(name, i < args.length ? args[i] : isGiven ? rest.get(name) : missing);
        rest.delete(name);
        if (!isGiven) rest.set(` ${name}`, null);
      }
      for (const { name, other } of params)
        if (rest.delete(` ${name}`) && other) scope.values.set(name, this.evaluate(other, scope));
      if (used.has("caller") && !params.some(({ name }) => name === "caller")) {
        scope.values.set("caller", rest.get("caller") ?? new Undefined("No caller defined"));
        rest.delete("caller");
      }
      if (used.has("kwargs")) scope.values.set("kwargs", rest);
      else for (const key of rest.keys()) throw new TypeError(`${what} takes no keyword argument '${key}'`);
      if (used.has("varargs")) scope.values.set("varargs", Tuple.from(args.slice(params.length)));
      else if (args.length > params.length) throw new TypeError(`${what} takes at most ${params.length} arguments`);
      return this.block(node.body ?? [], scope);
    };
  }

  call(callee: unknown, args: readonly unknown[], named: ReadonlyMap<string, unknown>): unknown {
    const run = callee instanceof Namespace ? callee.call : callee;
    if (typeof run === "function") return (run as Call)(args, named);
    throw new Error(callee instanceof Undefined ? callee.reason : "expected a function to call, got another value");
  }

  arguments(args: readonly Node[], scope: Scope): readonly [unknown[], Map<string, unknown>] {
    const listed: unknown[] = [];
    const named = new Map<string, unknown>();
    const add = (key: string, value: unknown) => {
      if (named.has(key)) throw new TypeError(`got multiple values for keyword argument '${key}'`);
      named.set(key, value);
    };
    for (const arg of args) {
      if (arg.type === "KeywordArgumentExpression")
        add((arg.key as Node).value as string, this.evaluate(arg.value as Node, scope));
      else if (arg.type === "SpreadExpression")
        for (const item of itemsOf(this.limits, this.evaluate(arg.argument as Node, scope))) listed.push(item);
      else if (arg.type === "KeywordSpreadExpression") {
        const dict = this.evaluate(arg.argument as Node, scope);
        if (!(dict instanceof Map)) throw new TypeError("expected a dict of arguments by name");
        for (const [key, value] of dict) add(String(key), value);
      } else listed.push(this.evaluate(arg, scope));
    }
    return [listed, named];
  }

  filter(value: unknown, filter: Node, scope: Scope): unknown {
    const isCalled = filter.type === "CallExpression";
    const name = (isCalled ? (filter.callee as Node) : filter).value;
    if (name === NAMES.group) return value;
    const [args, named] = isCalled ? this.arguments(filter.args ?? [], scope) : [[], new Map<string, unknown>()];
    return applyFilter(this.limits, String(name), value, args, named);
  }

  /** The value of an expression. */
  evaluate(node: Node, scope: Scope): unknown {
    const value = this.compute(node, scope);
    this.limits.step(1);
    if (typeof value === "string") {
      this.limits.text(value.length);
      this.limits.step(value.length / WORK_TEXT);
    } else if (typeof value === "object" && value !== null) {
      const held = heldBy(value);
      if (Array.isArray(value)) this.limits.list(held);
      this.limits.step(held / (this.known.has(value) ? WORK_KNOWN : WORK_NEW));
      this.known.add(value);
    }
    return value;
  }

  compute(node: Node, scope: Scope): unknown {
    const { limits } = this;
    const of = (part: unknown) => this.evaluate(part as Node, scope);
    switch (node.type) {
      case "StringLiteral":
      case "IntegerLiteral":
        return node.value;
      case "FloatLiteral":
        return new Float(node.value as number);
      case "Identifier":
        return CONSTANTS.has(node.value) ? CONSTANTS.get(node.value) : scope.find(node.value as string);
      case "ArrayLiteral":
        return (node.value as Node[]).map(of);
      case "TupleLiteral":
        return Tuple.from(
          (node.value as Node[]).filter(({ type, value }) => type !== "Identifier" || value !== NAMES.nothing),
          of,
        );
      case "ObjectLiteral":
        return dictOf([...(node.value as Map<Node, Node>)].map(([key, value]) => [of(key), of(value)] as const));
      case "UnaryExpression": {
        const operator = (node.operator as Node).value as string;
        const value = of(node.argument);
        return operator === "not" ? !isTrue(value) : signed(operator, value);
      }
      case "BinaryExpression":
        return this.binary(node, scope);
      case "Ternary":
        return isTrue(of(node.condition)) ? of(node.trueExpr) : of(node.falseExpr);
      case "SelectExpression":
        return isTrue(of(node.test)) ? of(node.lhs) : new Undefined("the condition without else is false");
      case "FilterExpression":
        return this.filter(of(node.operand), node.filter as Node, scope);
      case "MemberExpression": {
        const object = of(node.object);
        const property = node.property as Node;
        if (property.type === "SliceExpression") {
          const bounds = [property.start, property.stop, property.step];
          return slice(
            limits,
            object,
            bounds.map((bound) => (bound ? of(bound) : null)),
          );
        }
        if (node.computed) return getItem(limits, object, of(property));
        if (property.type === "IntegerLiteral") return getItem(limits, object, property.value);
        return getAttribute(limits, object, property.value as string);
      }
      case "CallExpression": {
        const callee = of(node.callee);
        return this.call(callee, ...this.arguments(node.args ?? [], scope));
      }
      default:
        throw new SyntaxError(`${node.type} is unknown or not supported`);
    }
  }

  binary(node: Node, scope: Scope): unknown {
    const { limits } = this;
    const of = (part: unknown) => this.evaluate(part as Node, scope);
    const operatorOf = (part: Node) =>
      (part.type === "BinaryExpression" ? (part.operator as Node).value : "") as string;
    const operator = operatorOf(node);
    const left = node.left as Node;
    if (operator === "and" || operator === "or") {
      const value = of(left);
      return isTrue(value) === (operator === "and") ? of(node.right) : value;
    }
    if (operator === "~") {
      // The library takes a + b ~ c for (a + b) ~ c, Jinja for a + (b ~ c).
      const parts = [node.right as Node];
      let first = left;
      for (; operatorOf(first) === "~"; first = first.left as Node) parts.unshift(first.right as Node);
      const sum = operatorOf(first);
      const isSum = sum === "+" || sum === "-";
      const before = isSum ? of(first.left) : undefined;
      const writer = createWriter(limits);
      for (const part of [isSum ? (first.right as Node) : first, ...parts]) writer.put(this.print(of(part)));
      return isSum ? operate(limits, sum, before, writer.text()) : writer.text();
    }
    if (!COMPARISONS.has(operator) || !COMPARISONS.has(operatorOf(left))) {
      const value = of(left);
      return operate(limits, operator, value, of(node.right));
    }
    // a < b < c is a < b and b < c.
    const chain: Node[] = [];
    let first: Node = node;
    for (; COMPARISONS.has(operatorOf(first)); first = first.left as Node) chain.unshift(first);
    let value = of(first);
    for (const each of chain) {
      const next = of(each.right);
      if (operate(limits, operatorOf(each), value, next) !== true) return false;
      value = next;
    }
    return true;
  }
}

const COMPARISONS = new Set(["==", "!=", "<", "<=", ">", ">=", "in", "not in"]);

/** Whether statements have a name. */
function mentions(node: unknown, name: string): boolean {
  if (typeof node !== "object" || node === null) return false;
  if ((node as Node).type === "Identifier" && (node as Node).value === name) return true;
  return (node instanceof Map ? [...node].flat() : Object.values(node)).some((part) => mentions(part, name));
}

const MONTHS = "January February March April May June July August September October November December".split(" ");
const DAYS = "Sunday Monday Tuesday Wednesday Thursday Friday Saturday".split(" ");

/** Python's `strftime` with the directives that templates have, in English and local time; `%-d` is `%d` without a zero before it. */
function formatTime(date: Date, format: string): string {
  const two = (value: number) => String(value).padStart(2, "0");
  const [month, day] = [MONTHS[date.getMonth()] as string, DAYS[date.getDay()] as string];
  const [year, hours] = [date.getFullYear(), date.getHours()];
  const days = Math.round((Date.UTC(year, date.getMonth(), date.getDate()) - Date.UTC(year, 0, 0)) / 86_400_000);
  const values: Readonly<Record<string, string>> = {
    ...{ Y: String(year), y: two(year % 100), m: two(date.getMonth() + 1), d: two(date.getDate()) },
    ...{ B: month, b: month.slice(0, 3), A: day, a: day.slice(0, 3), H: two(hours), I: two(((hours + 11) % 12) + 1) },
    ...{ M: two(date.getMinutes()), S: two(date.getSeconds()), p: hours < 12 ? "AM" : "PM", "%": "%" },
    ...{ j: String(days).padStart(3, "0"), e: String(date.getDate()).padStart(2) },
  };
  return format.replace(/%(-?)([A-Za-z%])/g, (directive, minus: string, letter: string) => {
    const value = values[letter];
    if (value === undefined && "cDFfGghklnPRrsTtUuVvWwXxZzCE+O".includes(letter))
      throw new Error(`strftime_now expected another directive than ${directive}`);
    return value === undefined ? directive : minus ? value.replace(/^[0 ]+(?=.)/, "") : value;
  });
}

/** How many values one holds, not counting those that these hold. */
function heldBy(value: object): number {
  if (value instanceof Map) return value.size;
  return Array.isArray(value)
    ? value.length
    : value instanceof View || value instanceof Stream
      ? value.items.length
      : 0;
}

/** Makes a dict of entries. */
function dictOf(entries: readonly (readonly [unknown, unknown])[]): Map<unknown, unknown> {
  const key = (value: unknown) =>
    typeof value === "boolean" || value instanceof Undefined
      ? fail(value, "keys of dicts expected texts, whole numbers or None, got a bool")
      : keyOf(value);
  return new Map(entries.map(([name, value]) => [key(name), value]));
}
