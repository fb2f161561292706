// `headwise generate` with text: a tiny decoder with a tokenizer of words.

import { spawnSync } from "node:child_process";
import { copyFileSync, cpSync, mkdirSync, mkdtempSync, rmSync, symlinkSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { loadKernels } from "../../../src/entries/index.ts";
import { createSession, generate, loadModel, models } from "../../../src/entries/models.ts";
import { runCli } from "../../support/cli.ts";
import { text, writeGguf } from "../../support/gguf-writer.ts";
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

/** The folder with other files, or without some. */
function folderWith(files: Readonly<Record<string, string | undefined>>): string {
  const variant = join(folder, "variant");
  rmSync(variant, { recursive: true, force: true });
  mkdirSync(variant);
  for (const name of ["config.json", "model.safetensors", "tokenizer.json"])
    if (!(name in files)) copyFileSync(join(folder, name), join(variant, name));
  for (const [name, text] of Object.entries(files)) if (text !== undefined) writeFileSync(join(variant, name), text);
  return variant;
}

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
    expect(status).toBe(0);
    const [model, session, , decode] = stderr.trim().split("\n");
    expect(stdout.trim().split(/\s+/)).toEqual(ids.map((id) => `w${id}`));
    expect(model).toMatch(/^model +llama, 2 layers, .* KB, opened in \d+ ms$/);
    expect(session).toMatch(/^session +\d+ tokens, cache f16$/);
    expect(decode).toMatch(/^decode +\d+\.\d tokens\/s, 6 tokens, ended by length$/);
  });

  test.each([["w5 w6 w7"], ["--ids", "5,6,7"]])(
    "%s: prints the seed that was drawn, which gives the same output",
    (...prompt) => {
      const drawn = [...prompt, "--tokens", "20", "--temperature", "1", "--deterministic"];
      const { stdout, stderr } = run(...drawn);
      const seed = /^seed {11}(\d+)$/m.exec(stderr)?.[1] as string;
      const again = JSON.parse(run(...drawn, "--seed", seed, "--json").stdout);
      expect(again.seed).toBe(Number(seed));
      expect(stdout.trim().split("\n")[0]?.match(/\d+/g)).toEqual(again.ids.map(String));
      expect(run(...prompt, "--tokens", "2").stderr).not.toContain("seed");
    },
  );

  test("--chat writes the prompt by the template, and --json gives ids and text", async () => {
    const ids = await greedy([5, 6, 9], 4);
    const result = JSON.parse(run("w5 w6", "--chat", "--tokens", "4", "--deterministic", "--json").stdout);
    expect(result).toMatchObject({ ids, reason: "length", read: 3, written: 4, type: "llama" });
    expect(result.firstSeconds).toBeGreaterThan(0);
    expect(result.tokensPerSecond).toBeCloseTo((4 - 1) / (result.seconds - result.firstSeconds), 6);
    expect(result.logprobs.map((logprob: number) => logprob < 0)).toEqual([true, true, true, true]);
    expect(result.text.trim().split(/\s+/)).toEqual(ids.map((id) => `w${id}`));
  });

  test("--template is a file with another template", async () => {
    const file = join(folder, "other.jinja");
    writeFileSync(file, "{{ messages[0].content }} w7");
    const result = JSON.parse(
      run("w5 w6", "--chat", "--template", file, "--tokens", "4", "--deterministic", "--json").stdout,
    );
    expect(result.ids).toEqual(await greedy([5, 6, 7], 4));
  });

  test("a model without a template has no answers, unless one is given", () => {
    const plain = { "tokenizer_config.json": "{}" };
    const { status, stderr } = runCli(["generate", folderWith(plain), "w5", "--chat"]);
    const rule = "source expected a model with a chat template, or --template, got llama without one";
    expect([status, stderr]).toEqual([2, `headwise generate: ${join(folder, "variant")}: ${rule}\n`]);
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
    [[], "expected a prompt, or --ids with token ids, got neither"],
    [["w5", "--ids", "5"], "expected a prompt, or --ids with token ids, got both"],
    [["--ids", "5", "--chat"], "--chat expected a prompt, got none"],
    [["w5", "--template", "x"], "--template expected --chat beside it, got none"],
    [["w5", "w6", "w7"], 'expected one prompt, got 3: quote it, as in "w5 w6 w7"'],
    [["w5", "--max-tokens", "9"], "unknown option --max-tokens, did you mean --tokens?"],
  ])("%j is refused", (args, message) => {
    const stderr = `headwise generate: ${message} (see headwise generate --help)\n`;
    expect(run(...args)).toMatchObject({ status: 2, stderr });
  });

  test("a model without a tokenizer is refused before it is loaded", () => {
    const { status, stderr } = runCli(["generate", folderWith({ "tokenizer.json": undefined }), "w5"]);
    expect(status).toBe(2);
    expect(stderr).toContain('expected a file "tokenizer.json", got none');
  });

  test("--ngram guesses tokens, and gives the same ones", () => {
    const options = ["w5 w6 w7", "--tokens", "40", "--deterministic", "--json"];
    const [plain, drafted] = [run(...options), run(...options, "--ngram", "1")].map(({ stdout }) => JSON.parse(stdout));
    expect(drafted.ids).toEqual(plain.ids);
    expect(run("w5", "--ngram", "99").stderr).toMatch(
      /^headwise generate: draft.ngram expected an integer from 1 to 16/,
    );
  });

  test("an encoder is refused before anything else", () => {
    const model = folderWith({ "config.json": JSON.stringify(TINY.llama).replace('"llama"', '"bert"') });
    rmSync(join(model, "tokenizer.json"));
    const rule = "source expected a model that writes, got";
    const got = `headwise generate: ${model}: ${rule} bert, an encoder, which reads texts\n`;
    for (const args of [["w5"], ["--ids", "5"]])
      expect(runCli(["generate", model, ...args])).toMatchObject({ status: 2, stderr: got });
    const file = join(folder, "encoder.gguf");
    writeFileSync(file, writeGguf({ metadata: { "general.architecture": text("nomic-bert") }, tensors: [] }));
    expect(runCli(["generate", file, "w5"]).stderr).toBe(
      `headwise generate: ${file}: ${rule} nomic-bert, an encoder, which reads texts\n`,
    );
  });
});

describe("a source that is no model", () => {
  const commands = [["generate", "a"], ["embed", "a"], ["run", "--ids", "1"], ["bench"], ["inspect", "--ids", "1"]];

  test.each(["nope", "nope.gguf", "./some-one/a.model"])("%s, which does not exist", (source) => {
    const rule = 'a path that exists, a URL, or "owner/name" of a model on a hub';
    for (const [command = "", ...args] of commands)
      expect(runCli([command, source, ...args])).toMatchObject({
        ...{ status: 2, stderr: `headwise ${command}: ${source}: source expected ${rule}, got "${source}"\n` },
      });
  });

  test("a file of a folder", () => {
    const file = join(folder, "tokenizer.json");
    const stderr = `headwise generate: ${file}: source expected a folder or a GGUF file, got ${JSON.stringify(file)}\n`;
    expect(runCli(["generate", file, "a"])).toMatchObject({ status: 2, stderr });
  });
});

describe("headwise in a folder of its own, as npx keeps it", () => {
  const root = join(import.meta.dirname, "../../..");
  let own: string;
  let project: string;
  beforeAll(() => {
    own = mkdtempSync(join(tmpdir(), "headwise-npx-"));
    project = join(own, "project");
    for (const name of ["dist", "package.json"])
      cpSync(join(root, name), join(own, "cache", name), { recursive: true });
    mkdirSync(join(project, "node_modules/@huggingface"), { recursive: true });
  });
  afterAll(() => rmSync(own, { recursive: true, force: true }));
  const ask = () =>
    spawnSync(
      process.execPath,
      [join(own, "cache/dist/cli.js"), "generate", folder, "w5 w6", "--chat", "--tokens", "3"],
      { cwd: project, encoding: "utf8" },
    );

  test("finds the optional packages in the current directory, and says how to install them there", () => {
    for (const name of ["@huggingface/tokenizers", "@huggingface/jinja"]) {
      expect(ask()).toMatchObject({
        status: 1,
        stderr: `headwise generate: text expected the package ${name}, got none in ${project}: run npm install ${name} there\n`,
      });
      symlinkSync(join(root, "node_modules", name), join(project, "node_modules", name));
    }
    const { status, stderr } = ask();
    expect(status).toBe(0);
    expect(stderr).toMatch(/decode .*, 3 tokens, ended by length/);
  });
});
