// `headwise generate` with text, as built: a tiny decoder with a tokenizer of words.

import { mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { loadKernels } from "../../../src/entries/index.ts";
import { createSession, generate, loadModel, models } from "../../../src/entries/models.ts";
import { runCli } from "../../support/cli.ts";
import { TINY, tinyFolder } from "../../support/tiny-models.ts";
import { wordTokenizer } from "../../support/word-tokenizer.ts";

const TEMPLATE = "{% for m in messages %}{{ m.content }} w9 {% endfor %}";
let folder: string;
beforeAll(() => {
  folder = mkdtempSync(join(tmpdir(), "headwise-generate-"));
  const file = tinyFolder(TINY.llama);
  for (const name of ["config.json", "model.safetensors"]) writeFileSync(join(folder, name), file(name) as Uint8Array);
  writeFileSync(join(folder, "tokenizer.json"), JSON.stringify(wordTokenizer(TINY.llama.vocab_size)));
  writeFileSync(join(folder, "tokenizer_config.json"), JSON.stringify({ chat_template: TEMPLATE }));
});
afterAll(() => rmSync(folder, { recursive: true, force: true }));

const run = (...args: string[]) => runCli(["generate", folder, ...args]);

/** What greedy decoding gives behind these ids. */
async function greedy(ids: readonly number[], maxTokens: number): Promise<number[]> {
  using kernels = await loadKernels({ deterministic: true, models });
  const found: number[] = [];
  const session = createSession(await loadModel(kernels, folder), { maxSeqLen: 64 });
  for await (const { id } of generate(session, ids, { maxTokens })) found.push(id);
  return found;
}

describe("generate with text", () => {
  test("streams the text of the ids that generate gives, with the tokens a second behind it", async () => {
    const ids = await greedy([5, 6, 7], 6);
    const { status, stdout, stderr } = run("w5 w6 w7", "--tokens", "6", "--deterministic");
    expect([status, stderr]).toEqual([0, ""]);
    const [text, , , , decode] = stdout.trim().split("\n");
    expect(text?.trim().split(/\s+/)).toEqual(ids.map((id) => `w${id}`));
    expect(decode).toMatch(/^decode +\d+\.\d tokens\/s, 6 tokens, ended by length$/);
  });

  test("--chat writes the prompt by the template, and --json gives ids and text", async () => {
    const ids = await greedy([5, 6, 9], 4);
    const result = JSON.parse(run("w5 w6", "--chat", "--tokens", "4", "--deterministic", "--json").stdout);
    expect(result).toMatchObject({ ids, reason: "length", promptTokens: 3, type: "llama" });
    expect(result.promptMs).toBeGreaterThan(0);
    expect(result.tokensPerSecond).toBeCloseTo((1000 * (4 - 1)) / result.generationMs, 6);
    expect(result.text.trim().split(/\s+/)).toEqual(ids.map((id) => `w${id}`));
  });

  test("--stop is a text, which is not printed", async () => {
    const ids = await greedy([5, 6, 7], 6);
    const last = ids.findIndex((id, i) => i > 0 && id !== ids[0]);
    const word = last < 0 ? `w${ids[0]}` : `w${ids[last]}`;
    const result = JSON.parse(run("w5 w6 w7", "--stop", word, "--tokens", "6", "--deterministic", "--json").stdout);
    expect([result.reason, result.stop]).toEqual(["stop", word]);
    expect(result.text).not.toContain(word);
  });

  test.each([
    [[], "--ids expected token ids, or a prompt instead, got neither"],
    [["w5", "--ids", "5"], "--ids expected token ids, or a prompt instead, got both"],
    [["--ids", "5", "--chat"], "--chat expected a prompt, got none"],
    [["w5", "w6"], "expected a model and a prompt, got 3 arguments"],
  ])("%j is refused", (args, message) => {
    const stderr = `headwise generate: ${message} (see headwise generate --help)\n`;
    expect(run(...args)).toMatchObject({ status: 2, stderr });
  });

  test("a model without a tokenizer is refused before it is loaded", () => {
    rmSync(join(folder, "tokenizer.json"));
    const { status, stderr } = run("w5");
    expect(status).toBe(2);
    expect(stderr).toContain('expected a file "tokenizer.json", got none');
  });
});
