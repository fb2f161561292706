// `headwise chat`: a conversation by lines of standard input.

import { spawnSync } from "node:child_process";
import { mkdtempSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { afterAll, describe, expect, test } from "vitest";
import { cli } from "../../support/cli.ts";

const root = join(import.meta.dirname, "../../..");
const folder = mkdtempSync(join(tmpdir(), "headwise-chat-"));
afterAll(() => rmSync(folder, { recursive: true, force: true }));
const template = join(folder, "template.jinja");

/** Runs `headwise chat` with these lines as its input. */
function chat(lines: readonly string[], ...args: string[]) {
  const input = lines.map((line) => `${line}\n`).join("");
  const { status, stdout, stderr } = spawnSync(process.execPath, [cli, "chat", ...args], {
    cwd: root,
    encoding: "utf8",
    input,
  });
  return { status, stdout, stderr };
}

const MODEL = ["model/stories/stories.gguf", "--template", template, "--tokens", "1"];

writeFileSync(template, "{% for m in messages %}{{ m.content }} {% endfor %}");

describe("headwise chat", () => {
  test("answers lines, with the tokens a second on stderr", () => {
    const { status, stdout, stderr } = chat(
      ["the cat sat on the mat because it was", "", "what was soft ? the"],
      ...MODEL,
    );
    expect([status, stdout.split("\n").map((line) => line.trim())]).toEqual([0, ["soft", "mat", ""]]);
    expect(stderr).toMatch(/^llama, .*, weights stored, cache q8, 192 tokens, threads 1, build /);
    expect(stderr.match(/\(1 tokens; \d+ read, \d+ known; length\)/g)?.length).toBe(2);
  });

  test("answers again, begins anew, saves the messages, and says what there is", () => {
    const file = join(folder, "saved.json");
    const lines = [
      "the cat sat on the mat because it was",
      "/retry",
      `/save ${file}`,
      "/new",
      "/retry",
      "/sing",
      "/help",
      "/quit",
      "no",
    ];
    const { status, stdout, stderr } = chat(lines, ...MODEL, "--system", "the");
    const [first, second, help] = stdout.split("\n");
    expect([status, second]).toEqual([0, first]);
    expect(help).toMatch(/^\/stop ends an answer/);
    expect(stderr).toContain("/sing is no command: /stop, /retry, /new, /save, /help, /quit");
    const messages = JSON.parse(readFileSync(file, "utf8")) as { role: string }[];
    expect(messages.map(({ role }) => role)).toEqual(["system", "user", "assistant"]);
  });

  test("refuses wrong arguments, and models that cannot chat", () => {
    expect(chat([], "a", "b")).toMatchObject({
      status: 2,
      stderr: "headwise chat: expected one model, got 2 arguments (see headwise chat --help)\n",
    });
    const { status, stderr } = chat([], "model/stories/stories.gguf");
    expect([status, stderr]).toEqual([
      2,
      "headwise chat: model/stories/stories.gguf: source expected a model with a chat template, or --template, got llama without one\n",
    ]);
  });
});
