// Hosts that run a file: Node in four versions, Deno, Bun.

import { existsSync } from "node:fs";
import { join } from "node:path";
import { run } from "../processes.ts";
import { tools } from "../project.ts";
import { expectThreads, type Outcome, parseLast, type Scenario } from "../scenario.ts";
import type { Report } from "../suite.ts";

interface Host {
  readonly runtime: string;
  /** The binary, by its path in node_modules. */
  readonly binary: string;
  /** What stands before the file's name. */
  readonly args: readonly string[];
  /** Besides these, for an entry that reads a file. */
  readonly forFiles?: readonly string[];
}

const NODES = [20, 22, 24, 26].map((major) => ({
  runtime: `node ${major}`,
  binary: `node${major}/bin/node`,
  args: [],
}));
// Without permissions: no network, no files, no environment. Deno asks for none of them for an import.
const DENO = {
  runtime: "deno",
  binary: "@deno/linux-x64-glibc/deno",
  args: ["run", "--no-prompt", "--cached-only", "--no-lock"],
  forFiles: ["--allow-read=node_modules"],
};
const BUN = { runtime: "bun", binary: "@oven/bun-linux-x64/bin/bun", args: ["run"] };
const HOSTS: readonly Host[] = [...NODES, DENO, BUN];

/** A suite takes two or three seconds; this machine may be busy. */
const SECONDS = 120;
/** Time for a process to end that has nothing left to do but its idle workers. */
const END_SECONDS = 30;

function binaryOf({ runtime, binary }: Host): string {
  const path = join(tools, binary);
  if (!existsSync(path))
    throw new Error(`${runtime}: ${binary} is not installed; the packages are those of Linux on x86-64`);
  return path;
}

async function runEntry(host: Host, project: string, entry: string, seconds = SECONDS): Promise<string> {
  return run(
    { file: binaryOf(host), args: [...host.args, entry], cwd: project, env: { DENO_NO_UPDATE_CHECK: "1" } },
    seconds,
  );
}

async function versionOf(host: Host, project: string): Promise<string> {
  const printed = await run({ file: binaryOf(host), args: ["--version"], cwd: project }, SECONDS);
  return /\d+\.\d+\.\d+/.exec(printed)?.[0] ?? printed.trim();
}

function suiteOf(host: Host, scenario: string, entry: string, threads = 1): Scenario {
  return {
    runtime: host.runtime,
    scenario,
    async run(project): Promise<Outcome> {
      const report = parseLast<Report>(await runEntry(host, project, entry));
      expectThreads(report, threads);
      return { version: await versionOf(host, project), report };
    },
  };
}

/** An entry that says how many threads it used, and how many workers ended. */
function threadsOf(host: Host, scenario: string, entry: string, found: string, threads: number): Scenario {
  return {
    runtime: host.runtime,
    scenario,
    async run(project) {
      const printed = await runEntry(host, project, entry, END_SECONDS);
      const { used, ok, ended = threads - 1 } = parseLast<{ used: number; ok: boolean; ended?: number }>(printed);
      if (used !== threads || ended !== threads - 1 || !ok)
        throw new Error(`expected ${threads} threads, their end and a good self-test, got ${printed}`);
      return { version: await versionOf(host, project), found };
    },
  };
}

export const hostScenarios: readonly Scenario[] = HOSTS.flatMap((host) => {
  const isNode = host.runtime.startsWith("node");
  return [
    suiteOf(host, "import", "default.mjs"),
    ...(isNode ? [suiteOf(host, "require", "required.cjs")] : []),
    suiteOf({ ...host, args: [...host.args, ...(host.forFiles ?? [])] }, "core", "core.mjs"),
    suiteOf(host, "threads", "threads.mjs", 2),
    threadsOf(host, "threads, unreleased", "unreleased.mjs", "the process ends", 2),
    threadsOf(host, "createWorker, released", "released.mjs", "the workers end", 3),
    ...(isNode ? [threadsOf(host, "threads, released", "listed.mjs", "the workers end", 3)] : []),
  ];
});
