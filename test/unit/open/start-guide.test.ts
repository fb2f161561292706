// The programs of docs/guide/start.md, run as they stand: with the sources in place of the package, and a hub of this machine that
// has small models under the names in them.

import { type ChildProcess, spawn } from "node:child_process";
import { mkdirSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { afterAll, beforeAll, expect, test } from "vitest";
import { type LocalHub, startHub } from "../../support/hub-server.ts";
import { encoderFolder } from "../../support/tiny-encoders.ts";
import { wordTokenizer } from "../../support/word-tokenizer.ts";

const root = join(import.meta.dirname, "../../..");
const guide = readFileSync(join(root, "docs/guide/start.md"), "utf8");
const folder = join(root, "build/start-guide");
const read = (name: string) => new Uint8Array(readFileSync(join(root, "model/stories", name)));
const bytesOf = (value: object) => new TextEncoder().encode(JSON.stringify(value));

/** A decoder that chats: words one after the other. */
function chatFiles(): Record<string, Uint8Array> {
  const names = ["config.json", "model.safetensors", "tokenizer.json"];
  const config = JSON.parse(new TextDecoder().decode(read("tokenizer_config.json")));
  const chat_template = "{% for m in messages %}{{ m.content }} {% endfor %}";
  return {
    ...Object.fromEntries(names.map((name) => [name, read(name)])),
    "tokenizer_config.json": bytesOf({ ...config, chat_template }),
  };
}

function encoderFiles(): Record<string, Uint8Array> {
  const find = encoderFolder("bert");
  const names = ["config.json", "model.safetensors"];
  const module = (name: string, path: string) => ({ type: `sentence_transformers.models.${name}`, path });
  return {
    ...Object.fromEntries(names.map((name) => [name, find(name) as Uint8Array])),
    "tokenizer.json": bytesOf({
      ...wordTokenizer(1),
      model: { type: "WordLevel", vocab: { w0: 0, a: 1, feline: 2, cat: 3 }, unk_token: "w0" },
    }),
    "modules.json": bytesOf([
      module("Transformer", ""),
      module("Pooling", "1_Pooling"),
      module("Normalize", "2_Normalize"),
    ]),
    "1_Pooling/config.json": bytesOf({ pooling_mode_mean_tokens: true }),
  };
}

const caches = mkdtempSync(join(tmpdir(), "headwise-start-"));
let hub: LocalHub;
beforeAll(async () => {
  mkdirSync(folder, { recursive: true });
  const models = {
    "HuggingFaceTB/SmolLM2-135M-Instruct": chatFiles(),
    "sentence-transformers/all-MiniLM-L6-v2": encoderFiles(),
  };
  hub = await startHub({ models });
});
afterAll(async () => {
  await hub[Symbol.asyncDispose]();
  for (const each of [folder, caches]) rmSync(each, { recursive: true, force: true });
});

/** Starts a program as a file, with the sources in place of the package. */
function start(name: string, code: string, env: Record<string, string> = {}): ChildProcess {
  const file = join(folder, name);
  writeFileSync(file, code);
  const own = { HF_ENDPOINT: hub.url, XDG_CACHE_HOME: caches, HOME: caches, LOCALAPPDATA: caches, ...env };
  const hooks = join(root, "scripts/source-hooks.mjs");
  return spawn(process.execPath, ["--import", hooks, file], { env: { ...process.env, ...own } });
}

/** Resolves with what a program printed once that has `text` in it, or it has ended. */
function printed(child: ChildProcess, text?: string): Promise<string> {
  return new Promise((resolve, reject) => {
    let [out, errors] = ["", ""];
    child.stdout?.on("data", (data) => {
      out += data;
      if (text !== undefined && out.includes(text)) resolve(out);
    });
    child.stderr?.on("data", (data) => {
      errors += data;
    });
    child.on("close", (code) => (code === 0 || code === null ? resolve(out) : reject(new Error(errors))));
  });
}

/** The block of the guide in this language that begins with, or contains, a text. */
function blockWith(language: string, text: string): string {
  const blocks = Array.from(
    guide.matchAll(new RegExp(`^\`\`\`${language}.*\\n([\\s\\S]*?)^\`\`\``, "gm")),
    ([, code]) => code as string,
  );
  const found = blocks.find((code) => code.includes(text));
  if (found === undefined) throw new Error(`the guide has no block of ${language} with ${text}`);
  return found;
}

test("the server answers a conversation, and refuses what is none", { timeout: 60_000 }, async () => {
  const child = start("server.mjs", blockWith("js", "// server.mjs"), { PORT: "0" });
  try {
    const port = /listening on (\d+)/.exec(await printed(child, "listening on"))?.[1];
    const ask = async (body: string) => (await fetch(`http://127.0.0.1:${port}/`, { method: "POST", body })).text();
    const messages = JSON.stringify([{ role: "user", content: "the cat sat on the mat because it was" }]);
    const [first, second] = await Promise.all([ask(messages), ask(messages)]);
    expect(first.trim()).toMatch(/^soft/);
    expect(second).toBe(first);
    expect(await ask('"the"')).toBe('chat: messages expected a list of 1 or more messages, got "the"');
  } finally {
    child.kill();
  }
});

test("the terminal answers lines, one after the other", { timeout: 60_000 }, async () => {
  const child = start("chat.mjs", blockWith("js", "// chat.mjs"));
  const output = printed(child);
  child.stdin?.end("the cat sat on the mat because it was\nwhat was soft ? the\n");
  expect(await output).toMatch(/^> ?(?:.*\n)*? *soft[\s\S]*tokens a second\)\n> ?[\s\S]*tokens a second\)/);
});

test("the page shows how far it is, and the answer as it is written", { timeout: 60_000 }, async () => {
  const [, script = ""] = /<script type="module">\n([\s\S]*?)<\/script>/.exec(blockWith("html", "<script")) ?? [];
  const page = `
    const elements = {
      form: { elements: { question: { value: "the cat sat on the mat because it was" } } },
      progress: { value: 0, remove() { this.removed = true; } },
      pre: { textContent: "" },
      "#stop": {},
    };
    globalThis.document = { querySelector: (name) => elements[name] };
    await import("./page-script.mjs");
    await elements.form.onsubmit({ preventDefault() {} });
    console.log(JSON.stringify([elements.progress.value, elements.progress.removed, elements.pre.textContent.trim().slice(0, 4)]));
    process.exit();`;
  writeFileSync(join(folder, "page-script.mjs"), script);
  const output = await printed(start("page.mjs", page));
  expect(JSON.parse(output)).toEqual([1, true, "soft"]);
});

test("vectors of two texts have a cosine", { timeout: 60_000 }, async () => {
  const output = await printed(start("vectors.mts", blockWith("ts", "sentence-transformers")));
  expect(Number(output)).toBeGreaterThan(-1);
  expect(Number(output)).toBeLessThanOrEqual(1.0001);
});
