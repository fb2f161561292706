import { spawnSync } from "node:child_process";
import { readFileSync } from "node:fs";
import { fileURLToPath } from "node:url";
import { MessageChannel, receiveMessageOnPort, Worker } from "node:worker_threads";

/** The built command line. */
export const cli: string = fileURLToPath(new URL("../../dist/cli.js", import.meta.url));

export const manifest = JSON.parse(readFileSync(new URL("../../package.json", import.meta.url), "utf8")) as {
  readonly version: string;
  readonly description: string;
  readonly bin: Readonly<Record<string, string>>;
};

/** What a command printed, and how it ended. */
export interface Ended {
  readonly status: number | null;
  readonly stdout: string;
  readonly stderr: string;
}

/** Runs the built `headwise ...args`, in Node with `flags`, and with `env` in its environment. */
export function spawnCli(
  args: readonly string[],
  flags: readonly string[] = [],
  env: Readonly<Record<string, string>> = {},
): Ended {
  return spawnSync(process.execPath, [...flags, cli, ...args], { encoding: "utf8", env: { ...process.env, ...env } });
}

/** The thread of this process that runs commands, its port, and a counter of commands that are over. */
let thread: { readonly port: MessageChannel["port1"]; readonly over: Int32Array<SharedArrayBuffer> } | undefined;

function startThread(): NonNullable<typeof thread> {
  const over = new Int32Array(new SharedArrayBuffer(4));
  const { port1, port2 } = new MessageChannel();
  const workerData = { port: port2, over, manifest };
  const worker = new Worker(new URL("cli-thread.ts", import.meta.url), { workerData, transferList: [port2] });
  worker.unref();
  port1.unref();
  return { port: port1, over };
}

/** Runs `headwise ...args` of the sources, in a thread that has them loaded: a child takes 60 ms longer. */
export function runCli(args: readonly string[]): Ended {
  thread ??= startThread();
  const { port, over } = thread;
  const before = Atomics.load(over, 0);
  port.postMessage(args);
  if (Atomics.wait(over, 0, before, 60_000) === "timed-out") throw new Error(`headwise ${args.join(" ")}: no end`);
  return receiveMessageOnPort(port)?.message as Ended;
}
