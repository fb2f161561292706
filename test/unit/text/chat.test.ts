// Conversations by a model's own template, and templates that are wrong or hostile.

import { afterAll, beforeAll, describe, expect, test, vi } from "vitest";
import type { Kernels } from "../../../src/entries/core.ts";
import { type ChatMessage, chat, renderChat } from "../../../src/entries/text.ts";
import type { Model } from "../../../src/models/blocks/model.ts";
import { createSession } from "../../../src/models/decoder/session.ts";
import { loadModel } from "../../../src/models/load/load-model.ts";
import { badFileOf } from "../../support/bad-file.ts";
import { kernelsOf } from "../../support/layers.ts";
import { END, force, pieces } from "../../support/text-tokenizer.ts";
import { TINY, tinyFolder } from "../../support/tiny-models.ts";

const question: readonly ChatMessage[] = [{ role: "user", content: "hi" }];
const render = (chatTemplate: string, options = {}) => renderChat({ ...pieces, chatTemplate }, question, options);

describe("renderChat", () => {
  test("takes another template, and ends with what begins an answer unless an option is false", async () => {
    const template = "{{ messages[0].content }}{% if add_generation_prompt %}>{% endif %}";
    expect(await render("other", { template })).toBe("hi>");
    expect(await render(template, { addGenerationPrompt: false })).toBe("hi");
  });

  test("gives templates the date in English, and `variables` replace what they have", async () => {
    const template = "{{ strftime_now('%A %a %d %B %b %Y %y %m %H:%I:%M:%S %p %% %q') }}";
    const text = await render(template);
    expect(text).toMatch(
      /^[A-Z][a-z]+day [A-Z][a-z]{2} \d\d [A-Z][a-z]+ [A-Z][a-z]{2} \d{4} \d\d \d\d \d\d:\d\d:\d\d:\d\d [AP]M % %q$/,
    );
    expect(await render(template, { variables: { strftime_now: () => "today" } })).toBe("today");
  });

  test.each([
    [
      "loops without end",
      "{% macro m(f) %}{{ f(f) }}{% endmacro %}{{ m(m) }}",
      /renders these messages, got RangeError: Maximum/,
    ],
    [
      "loops for long",
      "{% for i in range(60000) %}{% for j in range(60000) %}{% endfor %}{% endfor %}",
      /at most 1048576 steps, got more$/,
    ],
    [
      "computes for long",
      "{% for i in range(60000) %}{% for j in range(99) %}{{ j }}{% endfor %}{% endfor %}",
      /steps, got more$/,
    ],
    ["makes long lists", "{% for i in range(1000000000) %}{% endfor %}", /at most 65536 elements of a list, got more$/],
    ["never steps", "{% for i in range(0, 5, 0) %}{% endfor %}", /at most 65536 elements of a list, got more$/],
    [
      "makes lists that grow",
      "{% set n = namespace(l=[1]) %}{% for i in range(60) %}{% set n.l = n.l + n.l %}{% endfor %}",
      /elements of a list, got more$/,
    ],
    [
      "makes long texts",
      "{% set n = namespace(s='ab') %}{% for i in range(60) %}{% set n.s = n.s + n.s %}{% endfor %}",
      /at most 4194304 characters of text, got more$/,
    ],
    [
      "writes lists that share their parts",
      "{% set n = namespace(l=[1]) %}{% for i in range(60) %}{% set n.l = [n.l, n.l] %}{% endfor %}{{ n.l | tojson }}",
      /at most 4194304 characters of text, got more$/,
    ],
    [
      "compares lists that share their parts",
      `{% set n = namespace(l=[1], m=[1]) %}{% for i in range(60) %}{% set n.l = [n.l, n.l] %}{% set n.m = [n.m, n.m] %}
       {% endfor %}{{ n.l == n.m }}`,
      /at most 1048576 steps, got more$/,
    ],
    [
      "gives functions lists that share their parts",
      "{% set n = namespace(l=[1]) %}{% for i in range(60) %}{% set n.l = [n.l, n.l] %}{% endfor %}{{ given(n.l) }}",
      /at most 4194304 characters of text, got more$/,
    ],
    [
      "writes namespaces that share their parts",
      `{% set a = namespace() %}{% set b = namespace() %}{% set c = namespace() %}{% set a.x = range(100) | list %}
       {% set b.x = [a${", a".repeat(99)}] %}{% set c.x = [b${", b".repeat(99)}] %}{{ c }}{{ c }}`,
      /at most 4194304 characters of text, got more$/,
    ],
    [
      "writes a list that has a long text many times",
      "{% set s = 'abcdefghijklmnop' | join %}{% set n = namespace(s=s) %}{% for i in range(16) %}{% set n.s = n.s + n.s %}" +
        "{% endfor %}{{ [n.s, n.s, n.s, n.s, n.s, n.s, n.s, n.s, n.s] | tojson }}",
      /at most 4194304 characters of text, got more$/,
    ],
    [
      "makes many lists",
      "{% for i in range(5000) %}{% set x = range(60000) %}{% endfor %}",
      /at most 1048576 steps, got more$/,
    ],
    ["throws", "{{ 1 / nothing }}", /renders these messages, got Error: /],
    ["is cut off", "{% for m in messages %}", /renders these messages, got /],
    ["is nested deeply", `${"{% if true %}".repeat(20_000)}x`, /renders these messages, got RangeError: Maximum/],
    ["is very long", "x".repeat(2 ** 18 + 1), /at most 262144 characters, got 262145$/],
    [
      "keeps lists that it makes",
      "{% set n = namespace(l=[]) %}{% for i in range(9999) %}{% set n.l = [n.l, range(60000) | list] %}{% endfor %}",
      /at most 1048576 steps, got more$/,
    ],
  ])("ends a template that %s with an error", async (_, template, text) => {
    const variables = { given: () => "x" };
    expect(await badFileOf(() => render(template, { variables }))).toMatch(text);
  });

  test("reads a template of many spaces in time that grows with their number", async () => {
    expect(await render(`${" \n".repeat(100_000)}{{- 'x' }}`)).toBe("x");
  });

  test("messages may be of an interface of the caller's, and of a union of such, without a cast", async () => {
    interface Message {
      role: string;
      content: string;
    }
    interface User {
      role: "user";
      content: string | { type: "text"; text: string }[];
      name?: string;
    }
    interface Assistant {
      role: "assistant";
      content?: string | null;
      tool_calls?: { id: string }[];
    }
    const template = "{% for m in messages %}[{{ m.role }} {{ m.content }}]{% endfor %}";
    const write = (messages: Parameters<typeof renderChat>[1]) => renderChat(pieces, messages, { template });
    const messages: Message[] = [{ role: "user", content: "a" }];
    const both: (User | Assistant)[] = [
      { role: "user", content: "a", name: "b" },
      { role: "assistant", content: "c", tool_calls: [] },
    ];
    expect(await write(messages)).toBe("[user a]");
    expect(await write(both)).toBe("[user a][assistant c]");
    expect(await write([{ role: "assistant", content: "d", tool_calls: [] }])).toBe("[assistant d]");
  });

  const LONG =
    "{% set n = namespace(s='a\n') %}{% for i in range(19) %}{% set n.s = n.s + n.s %}{% endfor %}{% set s = n.s %}";
  test.each([
    "{{ s | replace('a', s) }}",
    "{{ s.replace('', s) }}",
    "{{ s['replace']('a', s) }}",
    "{% set f = s.replace %}{{ f('a', s) }}",
    "{% filter replace('a', s) %}{{ s }}{% endfilter %}",
    "{{ range(60000) | join(s) }}",
    "{{ range(60000) | join(d=s) }}",
    "{{ s | join(s) }}",
    "{{ s | indent(5000) }}",
    "{{ 'a\n' | indent(width=1000000000) }}",
    "{{ [[1]] | tojson(indent=1000000000) }}",
    "{{ range(60000) | list | tojson(separators=(s, s)) }}",
  ])("stops before %s makes a text that is too long", async (template) => {
    expect(await badFileOf(() => render(LONG + template))).toMatch(
      /at most (4194304 characters of text|65536 elements of a list), got more$/,
    );
  });

  test.each(["{{ s.split('a') | length }}", "{{ s['split']('\n') }}", "{{ s.split() | length }}"])(
    "stops before %s makes a list that is too long",
    async (template) => {
      const [split, trimStart] = [vi.spyOn(String.prototype, "split"), vi.spyOn(String.prototype, "trimStart")];
      try {
        const text = await badFileOf(() => render(LONG + template));
        const divided = [...split.mock.contexts, ...trimStart.mock.contexts];
        expect(text).toMatch(/at most 65536 elements of a list, got more$/);
        expect(divided.filter((given) => String(given).length > 2 ** 19)).toEqual([]);
      } finally {
        split.mockRestore();
        trimStart.mockRestore();
      }
    },
  );

  test("operations that are measured give what they give otherwise", async () => {
    const template =
      "{{ 'a-b-c'.split('-', 1) | join('+') }} {{ 'aXbX'.replace('X', 'yy', count=1) }} {{ ' a  b '.split() | join(', ') }} " +
      "{{ {'k': [1, 2]} | tojson(separators=(',', ':')) }} {% filter replace('a', 'bb') %}xa{% endfilter %}" +
      "{{ 'p\nq' | indent(2, first=true) }} {{ 'abc'[1:] }} {{ 'abc'['upper']() }} {{ messages[0]['content'].strip() }}";
    expect(await render(template)).toBe('a+b-c ayybX a, b {"k":[1,2]} xbb  p\n  q bc ABC hi');
  });

  test.each<readonly [string, unknown, unknown, string]>([
    ["no messages", [], {}, "messages expected 1 or more messages, got 0"],
    ["a text", "hi", {}, 'messages expected a list of 1 or more messages, got "hi"'],
    ["a text among the messages", ["hi"], {}, 'messages[0] expected an object, got "hi"'],
    [
      "text under another name",
      [{ role: "user", text: "hi" }],
      {},
      "messages[0].content expected text, or the parts that the template knows, got undefined",
    ],
    ["no role", [{ content: "hi" }], {}, "messages[0].role expected a string, got undefined"],
    ["tools that are no list", question, { tools: {} }, "options.tools expected a list, got Object"],
    ["variables that are none", question, { variables: 1 }, "options.variables expected an object, got 1"],
    ["an unknown option", question, { tool: [] }, "options expected only"],
    [
      "no template",
      question,
      { template: undefined },
      "tokenizer expected a tokenizer with a chat template, or options.template, got undefined as the template",
    ],
    [
      "another library",
      question,
      { template: "", library: {} },
      "options.library expected the exports of @huggingface/jinja (parse), got Object",
    ],
  ])("refuses %s", async (_, messages, options, text) => {
    await expect(renderChat(pieces, messages as never, options as never)).rejects.toThrow(`renderChat: ${text}`);
  });
});

describe("chat", () => {
  const template =
    "{% for m in messages %}{{ m.role }}: {{ m.content }}\n{% endfor %}{% if add_generation_prompt %}bot:{% endif %}";
  const tokenizer = { ...pieces, chatTemplate: template };
  let kernels: Kernels;
  let model: Model;
  beforeAll(async () => {
    kernels = await kernelsOf("relaxed");
    model = await loadModel(kernels, tinyFolder(TINY.llama));
  });
  afterAll(() => kernels.release());

  /** Has the model say `text` behind the messages. */
  async function answer(on: Parameters<typeof chat>[0], messages: readonly ChatMessage[], text: string) {
    const { length } = pieces.encode(await renderChat(tokenizer, messages));
    const all = chat(on, tokenizer, messages, { logitsProcessors: [force([...pieces.encode(text), END], length)] });
    const given: string[] = [];
    for await (const piece of all) given.push(piece);
    const { promptMs, generationMs, ...end } = await all.end;
    return { given, end, length };
  }

  test("answers in pieces, and of a conversation that goes on reads only what is new", async () => {
    using session = createSession(model, { maxSeqLen: 128 });
    const messages: ChatMessage[] = [{ role: "u", content: "hi" }];
    const first = await answer(session, messages, " Hello.\n");
    expect(first.given).toEqual([" ", "Hello", ".", "\n"]);
    expect(first.end).toMatchObject({ reason: "stop", stopId: END, text: " Hello.\n", reusedTokens: 0 });
    messages.push({ role: "bot", content: first.end.text.trim() }, { role: "u", content: "bye" });
    const second = await answer(session, messages, "x");
    expect(second.end).toMatchObject({
      promptTokens: second.length,
      reusedTokens: first.length + first.end.ids.length,
    });
    expect((await answer(model, messages, "x")).end).toEqual({ ...second.end, reusedTokens: 0 });
  });

  test("reads the template's text without further special tokens", async () => {
    const options: unknown[] = [];
    const encode = (text: string, given: unknown) => {
      options.push(given);
      return pieces.encode(text);
    };
    await chat(model, { ...tokenizer, encode }, question, { maxTokens: 1 }).next();
    expect(options).toEqual([{ addSpecial: false }]);
  });

  test("names itself in errors, and refuses unknown options", async () => {
    const next = (messages: unknown, options = {}) => chat(model, tokenizer, messages as never, options).next();
    await expect(next([])).rejects.toThrow("chat: messages expected 1 or more messages, got 0");
    await expect(next(question, { temperatur: 1 })).rejects.toThrow("chat: options expected only");
    await expect(next(question, { minP: 2 })).rejects.toThrow("chat: minP expected");
    await expect(next([{ role: "u", content: "é€" }])).rejects.toThrow("no token for byte 226");
  });
});
