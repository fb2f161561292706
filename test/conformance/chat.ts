// Folders of chat templates: conversations and snippets of Jinja, and what Python's transformers renders of them.

import { existsSync, readdirSync, readFileSync } from "node:fs";
import { join } from "node:path";
import { describe, HeadwiseError } from "../../src/base/util/errors.ts";
import { type ChatMessage, renderChat } from "../../src/entries/text.ts";
import type { Result } from "./suite.ts";

/** What Python gives: a text, the reason of the template's own `raise_exception`, or the text of another error. */
interface Expected {
  readonly text?: string;
  readonly refused?: string;
  readonly error?: string;
}

interface Conversation {
  readonly name: string;
  readonly messages: readonly ChatMessage[];
  readonly tools?: readonly unknown[];
  readonly addGenerationPrompt?: boolean;
  readonly variables?: Readonly<Record<string, unknown>>;
}

interface Snippet extends Expected {
  readonly name: string;
  readonly template: string;
  readonly variables: Readonly<Record<string, unknown>>;
}

/** What templates see as now: the date that the texts were made with. */
const NOW = [2026, 6, 26, 9, 5, 3] as const;
const SPECIAL = { bos_token: "<s>", eos_token: "</s>" };
/** Further files that such folders may have. */
const OTHERS = [
  { file: "tool-calls.json", set: "tool calls", reason: "not covered: calls are not read from answers" },
  { file: "json-schema", set: "json schemas", reason: "not covered: answers are not held to a schema" },
];

/** Whether a folder has chat templates, and no `index.json`. */
export const isChatFolder = (folder: string): boolean => existsSync(join(folder, "jinja-snippets.json"));

/** Renders each template with each conversation, and each snippet. */
export async function runChatFolder(folder: string): Promise<Result[]> {
  const read = (...path: string[]) => readFileSync(join(folder, ...path), "utf8");
  const results: Result[] = [];
  const run = async (set: string, name: string, want: Expected | undefined, render: () => Promise<string>) => {
    const problem = want ? await problemOf(want, render) : "expected a text or an error of it in expected/";
    const problems = problem === undefined ? [] : [problem];
    results.push({ name, set, op: "renderChat", state: problem ? "failed" : "passed", problems, maskedRows: 0 });
  };
  const before = globalThis.Date;
  globalThis.Date = class extends before {
    constructor() {
      super(...NOW);
    }
  } as typeof Date;
  try {
    const conversations: Conversation[] = JSON.parse(read("conversations.json"));
    for (const file of readdirSync(join(folder, "templates")).sort()) {
      const [template, name] = [read("templates", file), file.replace(/\.jinja$/, "")];
      const expected: Readonly<Record<string, Expected>> = JSON.parse(read("expected", `${name}.json`));
      for (const { name: which, messages, ...options } of conversations)
        await run("templates", `${name}, ${which}`, expected[which], () =>
          renderChat(tokenizerOf(template), messages, options),
        );
    }
    const messages = [{ role: "u", content: "hi" }];
    for (const { name, template, variables, ...want } of JSON.parse(read("jinja-snippets.json")) as Snippet[])
      await run("snippets", name, want, () => renderChat(tokenizerOf(template), messages, { variables }));
  } finally {
    globalThis.Date = before;
  }
  for (const { file, set, reason } of OTHERS)
    if (existsSync(join(folder, file)))
      results.push({ name: file, set, op: "", state: "skipped", problems: [reason], maskedRows: 0 });
  return results;
}

const tokenizerOf = (chatTemplate: string) => ({
  ...{ encode: () => [], decode: () => "" },
  ...{ chatTemplate, specialTokens: SPECIAL },
});

async function problemOf(want: Expected, render: () => Promise<string>): Promise<string | undefined> {
  let text: string;
  try {
    text = await render();
  } catch (error) {
    if (want.text !== undefined) return `got ${error}`;
    const isRefused = error instanceof RangeError && error.message.endsWith(`got ${describe(want.refused)}`);
    const isError = want.refused === undefined && (error instanceof HeadwiseError || error instanceof RangeError);
    return isRefused || isError ? undefined : `expected the error ${JSON.stringify(want)}, got ${error}`;
  }
  if (want.text === undefined) return `expected the error ${JSON.stringify(want)}, got ${JSON.stringify(text)}`;
  if (text === want.text) return undefined;
  let at = 0;
  while (text[at] === want.text[at]) at++;
  const show = (all: string) => JSON.stringify(all.slice(Math.max(0, at - 20), at + 40));
  return `expected ${show(want.text)} at ${at}, got ${show(text)}`;
}
