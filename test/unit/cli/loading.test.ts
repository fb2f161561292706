// How commands load models: what is kept of URLs, and the progress on a terminal.

import { spawn } from "node:child_process";
import { mkdtempSync, readdirSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { afterEach, beforeEach, describe, expect, test, vi } from "vitest";
import { storeFolder } from "../../../src/base/platform/host.ts";
import { showOpening } from "../../../src/cli/load.ts";
import { cli } from "../../support/cli.ts";
import { serveFolder } from "../../support/range-server.ts";
import { sampled } from "../../support/sampled.ts";
import { TINY, tinyFolder } from "../../support/tiny-models.ts";
import { wordTokenizer } from "../../support/word-tokenizer.ts";

describe("a model at a URL", () => {
  let caches: string;
  beforeEach(() => {
    caches = mkdtempSync(join(tmpdir(), "headwise-caches-"));
  });
  afterEach(() => rmSync(caches, { recursive: true, force: true }));

  const serveModel = () => {
    const file = tinyFolder(TINY.llama);
    const tokenizer = new TextEncoder().encode(JSON.stringify(wordTokenizer(TINY.llama.vocab_size)));
    return serveFolder((name) => (name === "tokenizer.json" ? tokenizer : (file(name) as Uint8Array | undefined)));
  };

  /** Runs a command while the server of this process answers. */
  const run = (...args: string[]): Promise<{ code: number | null; stdout: string }> => {
    const env = { ...process.env, XDG_CACHE_HOME: caches, HOME: caches, LOCALAPPDATA: caches };
    const child = spawn(process.execPath, [cli, ...args], { env, stdio: ["ignore", "pipe", "inherit"] });
    let stdout = "";
    child.stdout.setEncoding("utf8").on("data", (text) => (stdout += text));
    return new Promise((resolve) => child.on("close", (code) => resolve({ code, stdout })));
  };

  const commands: [command: string, args: string[]][] = [
    ["generate", ["URL", "w5 w6", "--tokens", "3", "--quiet"]],
    ["embed", ["URL", "w5 w6", "--quiet"]],
    ["run", ["URL", "--ids", "5,6"]],
    ["inspect", ["URL", "w5 w6"]],
    ["configure", ["--model", "URL", "--seq-len", "8"]],
  ];
  test.each(sampled(commands, 2))(
    "is kept by %s in the user's folder, which a second run reads without the server",
    async (command, args) => {
      const server = await serveModel();
      const url = `http://127.0.0.1:${(server.address() as { port: number }).port}/`;
      const given = args.map((arg) => (arg === "URL" ? url : arg));
      expect((await run(command, ...given)).code).toBe(0);
      expect(readdirSync(caches, { recursive: true }).length).toBeGreaterThan(3);
      server.closeAllConnections();
      await new Promise((resolve) => server.close(resolve));
      expect((await run(command, ...given)).code).toBe(0);
    },
  );

  test("is not kept with --no-store", async () => {
    const server = await serveModel();
    const url = `http://127.0.0.1:${(server.address() as { port: number }).port}/`;
    expect((await run("generate", url, "w5 w6", "--tokens", "3", "--quiet", "--no-store")).code).toBe(0);
    expect(readdirSync(caches)).toEqual([]);
    server.closeAllConnections();
    await new Promise((resolve) => server.close(resolve));
  });
});

describe("the folder of what is kept", () => {
  const unix = { XDG_CACHE_HOME: "/caches" };
  test.each([
    ["linux", unix, join("/caches", "headwise")],
    ["linux", {}, join("/home/a", ".cache", "headwise")],
    ["freebsd", { XDG_CACHE_HOME: "relative" }, join("/home/a", ".cache", "headwise")],
    ["darwin", unix, join("/home/a", "Library", "Caches", "headwise")],
    ["win32", { LOCALAPPDATA: "/local" }, join("/local", "headwise")],
    ["win32", {}, join("/home/a", "AppData", "Local", "headwise")],
  ])("on %s with %j is %s", (platform, env, folder) => {
    expect(storeFolder(env, platform, "/home/a")).toBe(folder);
  });
});

describe("progress of loading", () => {
  beforeEach(() => {
    vi.useFakeTimers();
  });
  afterEach(() => {
    vi.useRealTimers();
  });

  const written = (isTTY: boolean, quiet: boolean) => {
    const lines: string[] = [];
    const stderr = { isTTY, columns: 80, write: (text: string) => lines.push(text) };
    const { onProgress, end } = showOpening("model", quiet, stderr);
    vi.advanceTimersByTime(10_000);
    onProgress({ file: "model", files: 1, bytes: 5e6, allBytes: 20e6, secondsLeft: 29.5 });
    end();
    return lines;
  };

  test("is one line of a terminal, which is erased", () => {
    const bar = `[######${".".repeat(18)}]  25 %  5.00 MB of 20.0 MB, 30 s left  model`;
    expect(written(true, false)).toEqual([`\r\u001b[K${bar}`, "\r\u001b[K"]);
  });

  test("is not written elsewhere, nor with --quiet", () => {
    expect([...written(false, false), ...written(true, true)]).toEqual([]);
  });
});
