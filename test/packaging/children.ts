// Other programs, each with a time limit, none of which outlives the run.

import { type ChildProcess, spawn } from "node:child_process";
import { setTimeout } from "node:timers/promises";

const running = new Set<ChildProcess>();
process.on("exit", stopAll);
for (const signal of ["SIGINT", "SIGTERM"] as const) process.on(signal, () => process.exit(1));

export interface Child {
  readonly folder: string;
  /** Seconds it may take. */
  readonly limit: number;
  readonly env?: Readonly<Record<string, string>>;
}

/** Runs a program to its end. Returns what it printed; throws with that when it fails or takes too long. */
export async function run(command: string, args: readonly string[], child: Child): Promise<string> {
  const { program, printed } = start(command, args, child);
  const outcome = await Promise.race([ended(program), later(child.limit)]);
  if (outcome === 0) return printed();
  stop(program);
  const why = outcome === undefined ? `took longer than ${child.limit} s` : `ended with ${outcome}`;
  throw new Error(`${[command, ...args].join(" ")} ${why}\n${printed().slice(-4000)}`);
}

/** Starts a server and waits for the address that it prints. `stop` ends it and what it started. */
export async function serve(command: string, args: readonly string[], child: Child) {
  const { program, printed } = start(command, args, child);
  const gone = ended(program);
  for (const end = Date.now() + child.limit * 1000; Date.now() < end; ) {
    const url = printed().match(/http:\/\/(?:127\.0\.0\.1|localhost):\d+/)?.[0];
    if (url) return { url, stop: () => stop(program) };
    if ((await Promise.race([gone, later(0.1)])) !== undefined) break;
  }
  stop(program);
  throw new Error(`${[command, ...args].join(" ")} printed no address within ${child.limit} s\n${printed()}`);
}

/** A group of its own, so that it ends with everything it started. */
function start(command: string, args: readonly string[], { folder, env }: Child) {
  const program = spawn(command, args, {
    cwd: folder,
    detached: true,
    env: { ...process.env, ...env, NO_COLOR: "1", FORCE_COLOR: undefined },
    stdio: ["ignore", "pipe", "pipe"],
  });
  running.add(program);
  let text = "";
  for (const stream of [program.stdout, program.stderr])
    stream.setEncoding("utf8").on("data", (part: string) => {
      text += part;
    });
  return { program, printed: () => text };
}

function ended(program: ChildProcess): Promise<number | string> {
  return new Promise((resolve) => {
    program.once("error", (error) => resolve(error.message));
    program.once("close", (code, signal) => resolve(code ?? signal ?? "no exit code"));
  });
}

function later(seconds: number): Promise<undefined> {
  return setTimeout(seconds * 1000, undefined, { ref: false });
}

function stop(program: ChildProcess): void {
  running.delete(program);
  if (program.pid === undefined) return;
  try {
    process.kill(-program.pid, "SIGKILL");
  } catch {
    // It ended by itself.
  }
}

function stopAll(): void {
  for (const program of running) stop(program);
}
