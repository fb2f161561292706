// `headwise cache`: what the user's store has, whether it is whole, and how it is forgotten.

import { spawnSync } from "node:child_process";
import { mkdtempSync, readdirSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { afterAll, beforeAll, expect, test } from "vitest";
import { createFolderStore, listStore } from "../../../src/entries/models.ts";
import { cli } from "../../support/cli.ts";
import { serveFolder } from "../../support/range-server.ts";

const caches = mkdtempSync(join(tmpdir(), "headwise-cache-"));
const folder = join(caches, "headwise");
afterAll(() => rmSync(caches, { recursive: true, force: true }));

const env = { ...process.env, XDG_CACHE_HOME: caches, HOME: caches, LOCALAPPDATA: caches };
function cache(...args: string[]) {
  const { status, stdout, stderr } = spawnSync(process.execPath, [cli, "cache", ...args], { encoding: "utf8", env });
  return { status, stdout, stderr };
}

let url = "";
beforeAll(async () => {
  const files: Record<string, Uint8Array> = {
    "small.gguf": new Uint8Array(1000),
    "large.gguf": new Uint8Array(9_000_000),
  };
  const server = await serveFolder((name) => files[name]);
  url = `http://127.0.0.1:${(server.address() as { port: number }).port}/models`;
  const store = createFolderStore(folder);
  await (await store.open(`${url}/small.gguf`)).read(0, 1000);
  await (await store.open(`${url}/large.gguf`)).read(5_000_000, 10);
  await store.open(`${url}/none.json`).catch(() => {});
  server.closeAllConnections();
  await new Promise((resolve) => server.close(resolve));
});

test("lists what is kept, and how much of it", async () => {
  const { status, stdout, stderr } = cache();
  expect([status, stdout, stderr]).toEqual([
    0,
    `4.19 MB of 9.00 MB  ${url}/large.gguf\n1.00 KB  ${url}/small.gguf\n`,
    `2 files, 4.20 MB, in ${folder}\n`,
  ]);
  const files = await listStore(folder);
  expect(JSON.parse(cache("--json").stdout)).toEqual({ folder, action: "list", files });
  expect(files.map(({ size, bytes }) => [size, bytes])).toEqual([
    [9_000_000, 2 ** 22],
    [0, 0],
    [1000, 1000],
  ]);
});

test("checks what is kept: what has changed is named, with exit code 1", () => {
  expect(cache("check")).toMatchObject({
    status: 0,
    stdout: expect.stringMatching(/whole .*large.*\n.*whole .*small/),
  });
  const large = readdirSync(folder).find((name) => readFileSync(join(folder, name)).length > 10_000) as string;
  const bytes = readFileSync(join(folder, large));
  bytes[7] = 1;
  writeFileSync(join(folder, large), bytes);
  expect(cache("check")).toMatchObject({ status: 1, stdout: expect.stringContaining("1 pieces have changed") });
});

test("removes what is named, or all", () => {
  expect(cache("remove", "large.gguf")).toMatchObject({
    status: 0,
    stderr: `1 file, 4.19 MB, removed from ${folder}\n`,
  });
  expect(cache().stdout).toBe(`1.00 KB  ${url}/small.gguf\n`);
  expect(cache("remove", "--all").status).toBe(0);
  expect([cache().stdout, readdirSync(folder)]).toEqual(["", []]);
});

test("refuses other actions, and removing nothing", () => {
  expect(cache("show").stderr).toBe(
    "headwise cache: expected list, check or remove, got show (see headwise cache --help)\n",
  );
  expect(cache("remove").stderr).toBe(
    "headwise cache: remove expected parts of URLs, or --all, got neither (see headwise cache --help)\n",
  );
  expect(cache("list", "x").stderr).toBe("headwise cache: list expected nothing, got x (see headwise cache --help)\n");
});
