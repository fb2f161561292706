// Runs commands one after the other, whose output is a message: the thread of `runCli`.

import { type MessagePort, workerData } from "node:worker_threads";
import { runCommand } from "../../src/cli/commands.ts";
import type { Ended, manifest } from "./cli.ts";

const { port, over, ...given } = workerData as {
  readonly port: MessagePort;
  readonly over: Int32Array<SharedArrayBuffer>;
  readonly manifest: typeof manifest;
};

const written = { stdout: "", stderr: "" };
for (const name of ["stdout", "stderr"] as const)
  process[name].write = (text: string | Uint8Array) => {
    written[name] += typeof text === "string" ? text : Buffer.from(text).toString();
    return true;
  };
console.error = (text) => process.stderr.write(`${text}\n`);

port.on("message", async (args: string[]) => {
  Object.assign(written, { stdout: "", stderr: "" });
  process.exitCode = undefined;
  await runCommand(args, given.manifest);
  const ended: Ended = { status: Number(process.exitCode ?? 0), ...written };
  process.exitCode = undefined;
  port.postMessage(ended);
  Atomics.add(over, 0, 1);
  Atomics.notify(over, 0);
});
