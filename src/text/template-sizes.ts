// How large what an operation of a template makes would be, before it runs: those that can make much more than they are given.

/** A value of the interpreter: lists hold others in an array, records and namespaces in a map. Only namespaces change. */
export interface Value {
  readonly type?: unknown;
  readonly value?: unknown;
}

/** A part of a parsed template, as far as it is looked at. */
export interface Node {
  readonly type?: unknown;
  readonly value?: unknown;
  readonly computed?: boolean;
  readonly iterable?: Node & { readonly lhs?: Node };
  readonly object?: Node;
  readonly property?: Node;
  readonly operand?: Node;
  readonly filter?: Node & { readonly callee?: Node; readonly args?: readonly Node[] };
  readonly body?: unknown;
  readonly key?: Node;
  readonly argument?: Node;
  /** A value that stands for itself: what a part was evaluated to. */
  readonly known?: Value;
}

/** Of what an operation makes, at most: characters of text, and elements of a list. */
export interface Size {
  readonly text: number;
  readonly list: number;
}

type Sizes = (operand: unknown, args: readonly unknown[], named: ReadonlyMap<unknown, unknown>) => Size;

const ofText = (text: number): Size => ({ text, list: 0 });
const lengthOf = (value: unknown) => (typeof value === "string" ? value.length : String(value ?? "").length);

/** How often a text has another. */
function countOf(text: string, part: string): number {
  if (part === "") return text.length + 1;
  let count = 0;
  for (let at = text.indexOf(part); at >= 0; at = text.indexOf(part, at + part.length)) count++;
  return count;
}

/** The number of values within one, itself among them, and how deeply they lie in each other. */
function nestingOf(value: unknown): readonly [values: number, depth: number] {
  if (!(Array.isArray(value) || value instanceof Map)) return [1, 1];
  let [values, depth] = [1, 0];
  for (const each of value.values()) {
    const [within, below] = nestingOf(Object(each).value);
    values += within;
    depth = Math.max(depth, below);
  }
  return [values, depth + 1];
}

const SIZES: Readonly<Record<string, Sizes>> = {
  replace(operand, [old, by]) {
    if (typeof operand !== "string" || typeof old !== "string") return ofText(0);
    return ofText(operand.length + countOf(operand, old) * Math.max(0, lengthOf(by) - old.length));
  },
  split(operand, [separator]) {
    if (typeof operand !== "string") return ofText(0);
    if (typeof separator === "string") return { text: 0, list: countOf(operand, separator) + 1 };
    let list = 0;
    for (const _ of operand.matchAll(/\S+/g)) list++;
    return { text: 0, list };
  },
  join(operand, args, named) {
    const separator = lengthOf(args[0] ?? named.get("separator"));
    if (typeof operand === "string") return ofText(operand.length * (1 + separator));
    const items = Array.isArray(operand) ? operand : [];
    return ofText(items.reduce((sum: number, item) => sum + separator + lengthOf(Object(item).value), 0));
  },
  indent(operand, args, named) {
    const width = Number(args[0] ?? named.get("width") ?? 4);
    return ofText(typeof operand === "string" ? operand.length + countOf(operand, "\n") * width + width : 0);
  },
  tojson(operand, _, named) {
    const [values, depth] = nestingOf(operand);
    const separators = named.get("separators");
    const between = Array.isArray(separators) ? separators.map((each) => lengthOf(Object(each).value)) : [];
    const added = Number(named.get("indent") ?? 0) * depth + between.reduce((sum, length) => sum + length, 0);
    return ofText(values * added);
  },
};

/**
 * Evaluates a part of a template, of which the operations that can make much are measured when what they are given is known: `expect`
 * throws if they make too much.
 */
export function evaluateMeasured(
  node: Node,
  evaluate: (node: Node) => Value,
  evaluateInner: (node: Node) => Value,
  expect: (size: Size) => void,
): Value {
  const known = (part: Node): Node => ({ type: "Known", known: evaluate(part) });
  const { type, filter } = node;
  if (type === "FilterStatement")
    return evaluate({
      type: "FilterExpression",
      operand: { type: "Program", body: node.body },
      ...(filter && { filter }),
    });
  const sizes = SIZES[String(filter?.callee?.value)];
  if (type === "FilterExpression" && filter?.args && sizes && node.operand) {
    const operand = known(node.operand);
    const args = filter.args.map((arg): Node => {
      if (arg.type === "KeywordArgumentExpression") return { ...arg, value: known(arg.value as Node) };
      if (arg.type === "SpreadExpression" || arg.type === "KeywordSpreadExpression")
        return { ...arg, argument: known(arg.argument as Node) };
      return known(arg);
    });
    const [listed, named] = readArguments(args);
    expect(sizes(operand.known?.value, listed, named));
    return evaluateInner({ ...node, operand, filter: { ...filter, args } });
  }
  if (type !== "MemberExpression" || !node.object || !node.property) return evaluateInner(node);
  const object = known(node.object);
  const isName = node.computed === true && node.property.type !== "SliceExpression";
  const property = isName ? known(node.property) : node.property;
  const method = evaluateInner({ ...node, object, property });
  const name = String(isName ? property.known?.value : property.value);
  const ofMethod = ["replace", "split"].includes(name) ? SIZES[name] : undefined;
  if (method.type !== "FunctionValue" || !ofMethod) return method;
  const call = (args: readonly Value[], scope: unknown): Value => {
    const values = args.map(({ value }) => value);
    expect(ofMethod(object.known?.value, values, new Map()));
    return (method.value as typeof call)(args, scope);
  };
  return Object.assign(Object.create(Object.getPrototypeOf(method)), method, { value: call });
}

/** The values of arguments that are known, by place and by name. */
function readArguments(args: readonly Node[]): readonly [unknown[], Map<unknown, unknown>] {
  const listed: unknown[] = [];
  const named = new Map<unknown, unknown>();
  for (const { type, key, value, argument, known } of args) {
    const inner = argument?.known?.value;
    if (type === "KeywordArgumentExpression") named.set(key?.value, (value as Node).known?.value);
    else if (inner instanceof Map) for (const [name, each] of inner) named.set(name, Object(each).value);
    else if (Array.isArray(inner)) listed.push(...inner.map((each) => Object(each).value));
    else listed.push(known?.value);
  }
  return [listed, named];
}
