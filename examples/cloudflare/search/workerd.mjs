// The Worker as it is uploaded, in workerd itself: without the proxy of `wrangler dev`, whose time and memory are not the Worker's.

import { spawn, spawnSync } from "node:child_process";
import { existsSync, mkdtempSync, readdirSync, readFileSync, rmSync, statSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { setTimeout as wait } from "node:timers/promises";
import { freePort } from "../harness/server.mjs";

const modules = join(import.meta.dirname, "../node_modules");
const START_MS = 120_000;
const KINDS = { ".js": "esModule", ".wasm": "wasm", ".bin": "data", ".safetensors": "data" };

/** Bundles the Worker. Returns the folder, which is removed with this process, and the bytes that are uploaded. */
export function bundle() {
  const folder = mkdtempSync(join(tmpdir(), "headwise-search-"));
  process.once("exit", () => rmSync(folder, { recursive: true, force: true }));
  const args = ["deploy", "--dry-run", "--outdir", folder, "--config", join(import.meta.dirname, "wrangler.jsonc")];
  const env = { ...process.env, CI: "1", WRANGLER_SEND_METRICS: "false" };
  const wrangler = [join(modules, "wrangler/bin/wrangler.js"), ...args];
  const { status, stdout, stderr } = spawnSync(process.execPath, wrangler, { env, encoding: "utf8" });
  if (status !== 0) throw new Error(`wrangler cannot bundle the Worker:\n${stdout}${stderr}`);
  const parts = readdirSync(folder).flatMap((name) => {
    const [ending] = /\.[a-z]+$/.exec(name) ?? [];
    return KINDS[ending] ? [{ name, kind: KINDS[ending] }] : [];
  });
  // workerd begins with the first module.
  parts.sort((a, b) => Number(b.name === "index.js") - Number(a.name === "index.js"));
  const bytes = parts.reduce((sum, { name }) => sum + statSync(join(folder, name)).size, 0);
  return { folder, parts, bytes };
}

/** Starts workerd with a bundle and waits until it answers; `startMs` is how long that took. */
export async function startWorkerd({ folder, parts }) {
  const [port, inspectorPort] = [await freePort(), await freePort()];
  const settings = readFileSync(join(import.meta.dirname, "wrangler.jsonc"), "utf8");
  const [, date] = /"compatibility_date": "([^"]+)"/.exec(settings);
  const list = parts.map(({ name, kind }) => `(name = "${name}", ${kind} = embed "${name}")`).join(", ");
  writeFileSync(
    join(folder, "config.capnp"),
    `using Workerd = import "/workerd/workerd.capnp";
    const config :Workerd.Config = (
      services = [(name = "main", worker = (modules = [${list}], compatibilityDate = "${date}"))],
      sockets = [(name = "http", address = "127.0.0.1:${port}", http = (), service = "main")],
    );`,
  );
  const began = performance.now();
  const args = ["serve", join(folder, "config.capnp"), "--inspector-addr", `127.0.0.1:${inspectorPort}`];
  const child = spawn(join(modules, "workerd/bin/workerd"), args, { stdio: ["ignore", "inherit", "inherit"] });
  const stop = () => child.kill("SIGKILL");
  process.once("exit", stop);
  const base = `http://127.0.0.1:${port}`;
  // Any answer will do: before the Worker has run its global scope, there is none.
  while (!(await fetch(base).catch(() => undefined))) {
    if (child.exitCode !== null) throw new Error(`workerd ended with ${child.exitCode}`);
    if (performance.now() - began > START_MS) throw new Error(`workerd did not answer within ${START_MS} ms`);
    await wait(5);
  }
  return {
    base,
    inspectorPort,
    startMs: performance.now() - began,
    used: () => usedBy(child.pid),
    stop,
  };
}

const TICKS = 100;

/** What a process has used: seconds of CPU, and the most bytes in memory. Undefined where there is no /proc. */
function usedBy(pid) {
  const folder = `/proc/${pid}`;
  if (!existsSync(folder)) return undefined;
  // Behind the name, which may have any characters: the user's time is field 11, the system's 12.
  const fields = readFileSync(`${folder}/stat`, "utf8").replace(/.*\) /s, "").split(" ");
  const [, peak] = /VmHWM:\s+(\d+)/.exec(readFileSync(`${folder}/status`, "utf8"));
  return { cpuSeconds: (Number(fields[11]) + Number(fields[12])) / TICKS, peakBytes: 1024 * Number(peak) };
}
