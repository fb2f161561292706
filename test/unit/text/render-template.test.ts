// What renderChat gives templates besides what Python renders, and what it refuses. What it renders: test/vectors/chat.

import { expect, test } from "vitest";
import { renderChat } from "../../../src/entries/text.ts";
import { encodeChat } from "../../../src/text/chat.ts";
import { badFileOf } from "../../support/bad-file.ts";
import { pieces } from "../../support/text-tokenizer.ts";

const question = [{ role: "user", content: "hi" }];
const render = (template: string, variables = {}) => renderChat(pieces, question, { template, variables });

test.each([
  ["a filter", "{{ 'a' | center(5) }}", "the filter center is unknown or not supported"],
  ["a filter in map", "{{ ['a'] | map('wordwrap') | list }}", "the filter wordwrap is unknown or not supported"],
  ["a test", "{{ 1 is nothing_known }}", "the test nothing_known is unknown or not supported"],
  ["a method", "{{ 'a'.zfill(5) }}", "the method zfill of texts is not supported"],
  ["a function", "{{ cycler('a') }}", "the function cycler is not supported"],
  ["a statement", "{% include 'a' %}", "include"],
  ["a format", "{{ '{:e}'.format(1.5) }}", "a format in braces expected a place or a name alone"],
  ["a format of %", "{{ '%+d' % 1 }}", "the format %+ is not supported"],
  ["a key", "{{ {true: 1} }}", "keys of dicts expected texts, whole numbers or None"],
  ["a power", "{{ 0.5 ** 2 }}", "powers of numbers with a fraction"],
  ["a number beyond 2 to the 53", "{{ 9007199254740991 + 1 }}", "expected a result below 2^53"],
  ["an escape", "{{ '\\N{DASH}' }}", "is unknown or not supported"],
  ["a directive of time", "{{ strftime_now('%U') }}", "strftime_now expected another directive than %U"],
  [
    "a value without a text",
    "{{ messages | map(attribute='role') }}",
    "expected a value that has a text, got a generator",
  ],
  ["a break without a loop", "{% break %}", "expected a loop around them"],
])("refuses %s by name, and renders nothing else", async (_, template, text) => {
  expect(await badFileOf(() => render(template))).toContain(text);
});

test("functions among the variables are given values as JSON has them, and what they return is a value of the template", async () => {
  const show = (...args: unknown[]) => ({ given: JSON.stringify(args), none: null, skipped: undefined });
  const template = "{{ show(messages, 1.5, none, (1, 'a'), '<' | safe) }}";
  expect(await render(template, { show })).toBe(
    `{'given': '[[{"role":"user","content":"hi"}],1.5,null,[1,"a"],"<"]', 'none': None}`,
  );
  expect(await badFileOf(() => render("{{ x }}", { x: Symbol("a") }))).toContain("the type symbol");
});

test("reasoning is there under the names that templates read, and variables replace what is None", async () => {
  const template = "{{ messages[0] }}{{ tools }}{{ documents }}";
  const of = (message: object, variables = {}) =>
    renderChat(pieces, [{ role: "a", ...message }], { template, variables });
  expect(await of({ reasoning: "r" })).toBe(
    "{'thinking': 'r', 'role': 'a', 'reasoning': 'r', 'reasoning_content': 'r'}NoneNone",
  );
  expect(await of({ thinking: "t", reasoning_content: "c" }, { documents: [] })).toBe(
    "{'thinking': 't', 'role': 'a', 'reasoning_content': 'c'}None[]",
  );
  expect(await of({ reasoning: null })).toBe("{'role': 'a', 'reasoning': None}NoneNone");
});

test("markup escapes what a message has of special tokens, and they are text where it does not", async () => {
  const seen: unknown[] = [];
  const encode = (...args: unknown[]) => {
    seen.push(...args);
    return [];
  };
  const chatTemplate = "{{ '<b>' | safe + messages[0].content }}{{ messages[0].content }}{{ [messages[0].content] }}";
  const tokenizer = { encode, decode: () => "", chatTemplate, specialTexts: ["<x>"] };
  await encodeChat("chat", tokenizer, [{ role: "user", content: "<x>" }], {}, false);
  const text = "<b>&lt;x&gt;<x>['<x>']";
  const plain = [12, 14, 17, 19].map((at) => at);
  expect(seen).toEqual([text, { addSpecial: false, plain }]);
});
