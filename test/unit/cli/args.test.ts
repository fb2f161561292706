import { describe, expect, test } from "vitest";
import { readArguments, suggestionOf, UsageError } from "../../../src/cli/args.ts";

const OPTIONS = {
  layer: { type: "string", default: "0" },
  config: { type: "string" },
  shape: { type: "string", multiple: true },
  deterministic: { type: "boolean", default: false },
  json: { type: "boolean", default: false },
  help: { type: "boolean", short: "h", default: false },
} as const;

const read = (...args: string[]) => readArguments("run", args, OPTIONS);

describe("arguments", () => {
  test("are options, their values and names of files", () => {
    const { values, positionals } = read("a", "--layer", "3", "--shape=x", "--shape", "-1", "-h", "--", "--json");
    expect({ ...values }).toEqual({ layer: "3", shape: ["x", "-1"], help: true, deterministic: false, json: false });
    expect(positionals).toEqual(["a", "--json"]);
    expect(read("--config", "").values.config).toBe("");
  });

  test.each([
    [["--layr", "3"], "run: unknown option --layr, did you mean --layer?"],
    [["--layers=3"], "run: unknown option --layers, did you mean --layer?"],
    [["--confg"], "run: unknown option --confg, did you mean --config?"],
    [["--det"], "run: unknown option --det, did you mean --deterministic?"],
    [["--jsno"], "run: unknown option --jsno, did you mean --json?"],
    [["--verbose"], "run: unknown option --verbose"],
    [["-x"], "run: unknown option -x"],
    [["--__proto__=1"], "run: unknown option --__proto__"],
    [["--config"], "run: --config expected a value, got none"],
    [["--config", "--json"], "run: --config expected a value, got --json"],
    [["--config", "-h"], "run: --config expected a value, got -h"],
    [["--json=yes"], "run: --json expected no value, got yes"],
  ])("%j is refused", (args, message) => {
    expect(() => read(...args)).toThrow(UsageError);
    expect(() => read(...args)).toThrow(new UsageError(message));
  });
});

const NAMES = ["info", "run", "bench", "quantize", "report"];

test.each([
  ["inof", "info"],
  ["inf", "info"],
  ["bnech", "bench"],
  ["quantise", "quantize"],
  ["dequantize", "quantize"],
  ["reports", "report"],
  ["ru", "run"],
  ["rum", "run"],
  ["r", undefined],
  ["", undefined],
  ["xyz", undefined],
  ["benchmark", "bench"],
  ["constructor", undefined],
])("the name nearest to %j is %s", (text, name) =>
  expect(suggestionOf(text, NAMES)).toBe(name ? `, did you mean ${name}?` : ""),
);

test("of several near names, the nearest is taken", () => {
  expect(suggestionOf("layerz", ["lawyer", "layers"])).toBe(", did you mean layers?");
});

test("a name that ends the text, or that it ends, is near", () => {
  expect(suggestionOf("max-new-tokens", ["tokens", "max-seq-len"])).toBe(", did you mean tokens?");
  expect(suggestionOf("seq-len", ["tokens", "max-seq-len"])).toBe(", did you mean max-seq-len?");
  expect(suggestionOf("at", ["format"])).toBe("");
});

test("case and punctuation do not count, and a common beginning counts most", () => {
  expect(suggestionOf("MAX_TOKENS", ["cache", "maxTokens", "tokens"], "--")).toBe(", did you mean --maxTokens?");
});
