// Reads a chat template: Jinja's rules of tokens and white space here, its grammar by the optional library.

import type { Jinja } from "./libraries.ts";

/** A part of a parsed template, with the library's names. Which fields it has follows from `type`. */
export interface Node {
  readonly type: string;
  readonly value?: unknown;
  readonly body?: readonly Node[];
  readonly args?: readonly Node[];
  readonly [field: string]: unknown;
}

interface Token {
  readonly type: string;
  readonly value: string;
}

const NAME = "Identifier";
const [OPEN, CLOSE, COMMA, PIPE] = [
  { type: "OpenParen", value: "(" },
  { type: "CloseParen", value: ")" },
  { type: "Comma", value: "," },
  { type: "Pipe", value: "|" },
];
const nameOf = (value: string): Token => ({ type: NAME, value });

/** Names that no template can write: an expression that stood in parentheses, a loop that calls itself, what is no element. */
export const NAMES = {
  group: " group",
  recursive: " recursive",
  nothing: " nothing",
  generation: " generation",
} as const;

/** The operator of powers, which no source of this package uses. */
const POWER = "*".repeat(2);
const OPERATORS: Readonly<Record<string, string>> = {
  ...{ "(": "OpenParen", ")": "CloseParen", "[": "OpenSquareBracket", "]": "CloseSquareBracket" },
  ...{ "{": "OpenCurlyBracket", "}": "CloseCurlyBracket", ",": "Comma", ".": "Dot", ":": "Colon", "|": "Pipe" },
  ...{ "+": "AdditiveBinaryOperator", "-": "AdditiveBinaryOperator", "~": "AdditiveBinaryOperator", "=": "Equals" },
  ...{ "*": "MultiplicativeBinaryOperator", "/": "MultiplicativeBinaryOperator" },
  ...{ "//": "MultiplicativeBinaryOperator", "%": "MultiplicativeBinaryOperator" },
  ...{ [POWER]: "ExponentiationBinaryOperator", "<": "ComparisonBinaryOperator", ">": "ComparisonBinaryOperator" },
  ...{ "<=": "ComparisonBinaryOperator", ">=": "ComparisonBinaryOperator" },
  ...{ "==": "ComparisonBinaryOperator", "!=": "ComparisonBinaryOperator" },
};
const CLOSING: Readonly<Record<string, string>> = { "(": ")", "[": "]", "{": "}" };
/** Words behind which a parenthesis begins a group, and not arguments. */
const WORDS = new Set(["in", "if", "elif", "else", "and", "or", "not"]);

/** Parses a template. */
export function readTemplate(library: Jinja, source: string): Node {
  return library.parse(tokensOf(source.replace(/\r\n?/g, "\n").replace(/\n$/, ""))) as Node;
}

/** The tokens of a template, as Jinja reads them with `trim_blocks` and `lstrip_blocks`. */
function tokensOf(source: string): Token[] {
  const tokens: Token[] = [];
  let at = 0;
  let isLineStart = true;
  const match = (pattern: RegExp): RegExpExecArray | null => {
    pattern.lastIndex = at;
    const found = pattern.exec(source);
    if (found) at += found[0].length;
    return found;
  };
  const expect = (pattern: RegExp, what: string): RegExpExecArray => {
    const found = match(pattern);
    if (!found) throw new SyntaxError(`expected ${what}, got ${JSON.stringify(source.slice(at, at + 20))}`);
    isLineStart = found[0].endsWith("\n");
    return found;
  };
  const text = (end: number, sign: string, isBlock: boolean): void => {
    let data = source.slice(at, end);
    if (sign === "-") data = data.trimEnd();
    else if (sign !== "+" && isBlock) {
      const line = data.lastIndexOf("\n") + 1;
      if ((line > 0 || isLineStart) && /^\s*$/.test(data.slice(line))) data = data.slice(0, line);
    }
    if (data !== "") tokens.push({ type: "Text", value: data });
    at = end;
  };
  while (at < source.length) {
    const begin = /\{[{%#]/g;
    begin.lastIndex = at;
    const end = begin.exec(source)?.index ?? source.length;
    const kind = source[end + 1];
    const sign = source[end + 2] ?? "";
    text(end, sign, kind === "%" || kind === "#");
    if (at === source.length) break;
    at += 2 + Number(sign === "-" || sign === "+");
    if (kind === "#") expect(/[\s\S]*?(?:\+#\}|-#\}\s*|#\}\n?)/y, "the end of a comment");
    else if (kind === "%" && match(/\s*raw\s*(?:-%\}\s*|%\})/y)) {
      isLineStart = false;
      const close = /\{%([-+]?)\s*endraw\s*(?=[-+]?%\})/g;
      close.lastIndex = at;
      const found = close.exec(source);
      if (!found) throw new SyntaxError("expected endraw, got the end of the template");
      text(found.index, found[1] ?? "", true);
      at += found[0].length;
      expect(/\+%\}|-%\}\s*|%\}\n?/y, "the end of endraw");
    } else {
      const [open, close] = kind === "{" ? ["OpenExpression", "CloseExpression"] : ["OpenStatement", "CloseStatement"];
      const within = readTag(match, kind === "{" ? /-\}\}\s*|\}\}/y : /\+%\}|-%\}\s*|%\}\n?/y, (found) => {
        isLineStart = found.endsWith("\n");
      });
      tokens.push({ type: open, value: `{${kind}` }, ...rewrite(within, kind === "%"), { type: close, value: "" });
    }
  }
  return tokens;
}

/** The tokens until the end of a tag. */
function readTag(
  match: (pattern: RegExp) => RegExpExecArray | null,
  end: RegExp,
  ended: (found: string) => void,
): Token[] {
  const tokens: Token[] = [];
  const open: string[] = [];
  for (;;) {
    match(/\s+/y);
    const closed = open.length === 0 ? match(end) : null;
    if (closed) {
      ended(closed[0]);
      return tokens;
    }
    const number = match(/(?<!\.)(?:\d+_)*\d+(?:(?:\.(?:\d+_)*\d+)?e[+-]?(?:\d+_)*\d+|\.(?:\d+_)*\d+)/iy)?.[0];
    const whole = number ? undefined : match(/\d+(?:_\d+)*/y)?.[0];
    if (number) {
      const digits = number.replaceAll("_", "");
      tokens.push({ type: "NumericLiteral", value: digits.includes(".") ? digits : digits.replace(/e/i, ".e") });
      continue;
    }
    if (whole) {
      tokens.push({ type: "NumericLiteral", value: String(Number(whole.replaceAll("_", ""))) });
      continue;
    }
    const word = match(/[\p{L}\p{N}_]+/uy)?.[0];
    if (word) {
      tokens.push(nameOf(word));
      continue;
    }
    const string = match(/'([^'\\]*(?:\\[\s\S][^'\\]*)*)'|"([^"\\]*(?:\\[\s\S][^"\\]*)*)"/y);
    if (string) {
      tokens.push({ type: "StringLiteral", value: unescaped(string[1] ?? string[2] ?? "") });
      continue;
    }
    const operator = match(/\/\/|\*{2}|[=!<>]=|[-+/*%~[\](){}<>=.:|,]/y)?.[0];
    if (!operator) throw new SyntaxError("expected the end of a tag, got a character that is no token, or the end");
    if (CLOSING[operator]) open.push(CLOSING[operator]);
    else if (")]}".includes(operator) && open.pop() !== operator) throw new SyntaxError(`unexpected ${operator}`);
    tokens.push({ type: OPERATORS[operator] as string, value: operator });
  }
}

const LETTERS: Readonly<Record<string, string>> = {
  ...{ n: "\n", t: "\t", r: "\r", b: "\b", f: "\f", v: "\v", a: "\x07", "\n": "" },
  ...{ "'": "'", '"': '"', "\\": "\\" },
};

/** A string with its escapes as the characters that they stand for, as in Python. */
function unescaped(text: string): string {
  const escapes = /\\(?:x([\da-f]{2})|u([\da-f]{4})|U([\da-f]{8})|([0-7]{1,3})|([\s\S]))/gi;
  return text.replace(escapes, (found, x, u, long, octal, letter) => {
    const code = x ?? u ?? long;
    if (code) return String.fromCodePoint(Number.parseInt(code, 16));
    if (octal) return String.fromCharCode(Number.parseInt(octal, 8));
    if ("xuUN".includes(letter)) throw new SyntaxError(`the escape ${found} is unknown or not supported`);
    return LETTERS[letter] ?? found;
  });
}

/**
 * Writes a tag so that the library parses what it does not know, or would forget: tests are filters with the name "is …", what stood in
 * parentheses is marked, and so are a loop that is recursive and the elements that (a,) and () do not have.
 */
function rewrite(tokens: readonly Token[], isStatement: boolean): Token[] {
  const out: Token[] = [];
  const ends = closingPlaces(tokens);
  const isName = (at: number, ...names: string[]) =>
    tokens[at]?.type === NAME && names.includes((tokens[at] as Token).value);

  /** Behind a primary expression and what follows it: names, items and calls. */
  const skipPrimary = (at: number): number => {
    let end = (ends.get(at) ?? at) + 1;
    while (tokens[at]?.type === "StringLiteral" && tokens[end]?.type === "StringLiteral") end++;
    for (;;) {
      const value = tokens[end]?.value ?? "";
      if (tokens[end]?.type === "Dot") end += 2;
      else if ((value === "[" || value === "(") && ends.has(end)) end = (ends.get(end) as number) + 1;
      else return end;
    }
  };
  const isArgument = (at: number) =>
    ["StringLiteral", "NumericLiteral", "OpenSquareBracket", "OpenCurlyBracket"].includes(tokens[at]?.type ?? "") ||
    (tokens[at]?.type === NAME && !isName(at, "else", "or", "and"));

  const writeTest = (at: number): number => {
    const isNegated = isName(at + 1, "not");
    const place = at + (isNegated ? 2 : 1);
    const name = tokens[place];
    if (name?.type !== NAME) throw new SyntaxError("expected the name of a test behind is");
    out.push(PIPE as Token, nameOf(` is ${isNegated ? "not " : ""}${name.value}`));
    const next = place + 1;
    if (tokens[next]?.type === "OpenParen") {
      const end = ends.get(next) as number;
      out.push(OPEN as Token);
      write(next + 1, end);
      out.push(CLOSE as Token);
      return end + 1;
    }
    if (!isArgument(next)) return next;
    if (isName(next, "is")) throw new SyntaxError("You cannot chain multiple tests with is");
    const end = skipPrimary(next);
    out.push(OPEN as Token);
    write(next, end);
    out.push(CLOSE as Token);
    return end;
  };

  /** Writes the tokens of a range; groups are marked where they are no targets. */
  const write = (begin: number, end: number, isMarked = true): void => {
    for (let at = begin; at < end; at++) {
      const [token, close] = [tokens[at] as Token, ends.get(at)];
      const [before, next] = [tokens[at - 1], tokens[at + 1]];
      const isOperand = before?.type === NAME ? !WORDS.has(before.value) : /^Close|Literal$/.test(before?.type ?? "");
      const isNumber = next?.type === "NumericLiteral";
      if (isName(at, "is") && isMarked && before?.type !== "Dot") at = writeTest(at) - 1;
      else if (isNumber && !isOperand && (token.value === "-" || token.value === "+")) {
        // Versions of the library differ in whether they parse a sign before a number, and a place behind a dot.
        out.push({ type: next.type, value: token.value + next.value });
        at++;
      } else if (isNumber && token.type === "Dot") {
        out.push({ type: "OpenSquareBracket", value: "[" }, next, { type: "CloseSquareBracket", value: "]" });
        at++;
      } else if (close === undefined) out.push(token);
      else {
        const isGroup = isMarked && token.type === "OpenParen" && !isOperand;
        out.push(token);
        if (isGroup) {
          out.push(token);
          const last = tokens[close - 1] as Token;
          const isEmpty = close === at + 1;
          write(at + 1, close);
          if (isEmpty) out.push(nameOf(NAMES.nothing), COMMA as Token);
          if (isEmpty || last.type === "Comma") out.push(nameOf(NAMES.nothing));
          out.push(CLOSE as Token, PIPE as Token, nameOf(NAMES.group));
        } else write(at + 1, close, isMarked);
        out.push(tokens[close] as Token);
        at = close;
      }
    }
  };

  const findFlat = (begin: number, isFound: (at: number) => boolean): number => {
    for (let at = begin; at < tokens.length; at = (ends.get(at) ?? at) + 1) if (isFound(at)) return at;
    return -1;
  };
  const { length } = tokens;
  if (isStatement && isName(0, "generation") && length === 1)
    return [nameOf("call"), nameOf(NAMES.generation), OPEN as Token, CLOSE as Token];
  if (isStatement && isName(0, "endgeneration") && length === 1) return [nameOf("endcall")];
  if (isStatement && isName(0, "set")) {
    const equals = findFlat(1, (at) => tokens[at]?.type === "Equals");
    write(0, Math.max(equals, 0), false);
    write(Math.max(equals, 0), length);
  } else if (isStatement && isName(0, "for")) {
    const begin = findFlat(1, (at) => isName(at, "in"));
    if (begin < 0) throw new SyntaxError("expected in, got a loop without it");
    const isRecursive = isName(length - 1, "recursive");
    const end = isRecursive ? length - 1 : length;
    const found = findFlat(begin + 1, (at) => isName(at, "if"));
    const condition = found < 0 ? end : found;
    write(0, begin, false);
    out.push(tokens[begin] as Token, OPEN as Token);
    write(begin + 1, condition);
    out.push(CLOSE as Token);
    if (isRecursive) out.push(PIPE as Token, nameOf(NAMES.recursive));
    if (condition < end) {
      out.push(tokens[condition] as Token, OPEN as Token);
      write(condition + 1, end);
      out.push(CLOSE as Token);
    }
  } else write(0, length);
  return out;
}

/** Of each opening bracket, where the closing one is. */
function closingPlaces(tokens: readonly Token[]): ReadonlyMap<number, number> {
  const ends = new Map<number, number>();
  const open: number[] = [];
  for (const [at, { type }] of tokens.entries()) {
    if (type.startsWith("Open")) open.push(at);
    else if (type.startsWith("Close")) ends.set(open.pop() as number, at);
  }
  return ends;
}
