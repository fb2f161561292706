// `wrangler dev` as a child process that can be killed without notice, like a machine that loses power, and restarted.

import { spawn } from "node:child_process";
import { existsSync, mkdtempSync, readdirSync, readFileSync, rmSync } from "node:fs";
import { createServer } from "node:net";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { setTimeout as wait } from "node:timers/promises";

const here = join(import.meta.dirname, "..");
/** Wrangler writes its bundles here, and does not remove them when it is killed. */
const bundles = join(here, ".wrangler", "tmp");
const START_MS = 120_000;

if (Number(process.versions.node.split(".")[0]) < 22) {
  console.error(`wrangler needs Node 22 or later, this is ${process.version}`);
  process.exit(1);
}

/** Starts the Worker with other values of some variables. Its storage is a folder that `stop` removes. */
export async function startServer(vars = {}) {
  const folder = mkdtempSync(join(tmpdir(), "headwise-cloudflare-"));
  const port = await freePort();
  const others = new Set(filesIn(bundles));
  const base = `http://127.0.0.1:${port}`;
  let child;
  let output = "";

  const kill = () => {
    if (child?.exitCode === null && child.signalCode === null) {
      // The group: wrangler and the workerd that it started.
      process.kill(-child.pid, "SIGKILL");
    }
    child = undefined;
  };
  const stop = () => {
    kill();
    const left = filesIn(bundles).filter((name) => !others.has(name));
    for (const path of [folder, ...left.map((name) => join(bundles, name))])
      rmSync(path, { recursive: true, force: true, maxRetries: 5, retryDelay: 100 });
  };
  const start = async () => {
    const settings = Object.entries({ DEBUG: 1, ...vars }).flatMap(([name, value]) => ["--var", `${name}:${value}`]);
    const wrangler = join(here, "node_modules", "wrangler", "bin", "wrangler.js");
    const address = ["--ip", "127.0.0.1", "--port", String(port), "--inspector-port", "0"];
    const args = [wrangler, "dev", ...address, "--persist-to", folder, "--log-level", "warn", ...settings];
    const env = { ...process.env, CI: "1", WRANGLER_SEND_METRICS: "false", CLOUDFLARE_CF_FETCH_ENABLED: "false" };
    const options = { cwd: here, env, detached: true, stdio: ["ignore", "pipe", "pipe"] };
    const started = spawn(process.execPath, args, options);
    child = started;
    for (const stream of [started.stdout, started.stderr])
      stream.on("data", (data) => {
        output = (output + data).slice(-8000);
      });
    for (const end = Date.now() + START_MS; ; await wait(100)) {
      const up = await fetch(base, { signal: AbortSignal.timeout(10_000) }).then(
        ({ ok }) => ok,
        () => false,
      );
      if (up) return;
      if (started.exitCode !== null) throw new Error(`wrangler dev ended with ${started.exitCode}:\n${output}`);
      if (Date.now() > end) throw new Error(`wrangler dev did not answer within ${START_MS} ms:\n${output}`);
    }
  };

  process.once("exit", stop);
  for (const signal of ["SIGINT", "SIGTERM"]) process.once(signal, () => process.exit(1));
  try {
    await start();
  } catch (error) {
    stop();
    throw error;
  }
  return {
    base,
    stop,
    /** Kills it without notice and starts it again with its storage. */
    async restart() {
      kill();
      await start();
    },
    /** Seconds of CPU that workerd has used since it was started; undefined where there is no /proc. */
    cpuSeconds: () => (child ? cpuSeconds(child.pid) : undefined),
    output: () => output,
  };
}

export function freePort() {
  return new Promise((resolve, reject) => {
    const server = createServer()
      .once("error", reject)
      .listen(0, "127.0.0.1", () => {
        const { port } = server.address();
        server.close(() => resolve(port));
      });
  });
}

function filesIn(folder) {
  return existsSync(folder) ? readdirSync(folder) : [];
}

const TICKS = 100;

function cpuSeconds(group) {
  let ticks = 0;
  let found = false;
  try {
    for (const pid of readdirSync("/proc").filter((name) => /^\d+$/.test(name))) {
      const stat = statOf(pid);
      if (!stat || stat.group !== group || stat.command !== "workerd") continue;
      ticks += stat.ticks;
      found = true;
    }
  } catch {
    return undefined;
  }
  return found ? ticks / TICKS : undefined;
}

function statOf(pid) {
  try {
    const text = readFileSync(`/proc/${pid}/stat`, "utf8");
    const close = text.lastIndexOf(")");
    const fields = text.slice(close + 2).split(" ");
    // From the state on: parent 1, group 2, …, user time 11, system time 12.
    const command = text.slice(text.indexOf("(") + 1, close);
    return { command, group: Number(fields[2]), ticks: Number(fields[11]) + Number(fields[12]) };
  } catch {
    return undefined;
  }
}
