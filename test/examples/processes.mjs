// Commands and servers with a time limit; all of them are ended with the runner.

import { spawn } from "node:child_process";

const running = new Set();

/** Ends all running processes. */
export function endAll() {
  for (const child of running) end(child);
}

/** Ends a process and those that it started. */
export function end(child) {
  running.delete(child);
  try {
    process.kill(-child.pid, "SIGKILL");
  } catch (error) {
    if (error.code !== "ESRCH") throw error;
  }
}

function begin(command, args, { cwd, env = {} }) {
  const child = spawn(command, args, {
    cwd,
    env: { ...process.env, NO_COLOR: "1", ...env },
    stdio: ["ignore", "pipe", "pipe"],
    detached: true, // a process group of its own, which can be ended at once
  });
  running.add(child);
  child.printed = "";
  for (const stream of [child.stdout, child.stderr])
    stream.setEncoding("utf8").on("data", (text) => {
      child.printed += text;
      child.emit("printed");
    });
  child.on("close", () => running.delete(child));
  return child;
}

/** Resolves as `watch(resolve, reject)` does, or rejects after `seconds` with what the process printed. */
async function within(seconds, what, child, watch) {
  let timer;
  try {
    return await new Promise((resolve, reject) => {
      timer = setTimeout(
        () => reject(new Error(`${what} took longer than ${seconds} s\n${child.printed}`)),
        seconds * 1000,
      );
      child.on("error", reject);
      watch(resolve, reject);
    });
  } finally {
    clearTimeout(timer);
  }
}

/** Runs a command to its end and returns what it printed; throws unless it ends with `code`. */
export async function run(command, args, { seconds = 120, code = 0, ...options } = {}) {
  const child = begin(command, args, options);
  const what = [command, ...args].join(" ");
  try {
    const ended = await within(seconds, what, child, (resolve) => child.on("close", resolve));
    if (ended !== code) throw new Error(`${what} ended with ${ended}, not with ${code}\n${child.printed}`);
    return child.printed;
  } finally {
    end(child);
  }
}

/** Starts a server and waits until it prints its address: `{ child, url }`. */
export async function serve(command, args, { seconds = 60, ...options } = {}) {
  const child = begin(command, args, options);
  const what = [command, ...args].join(" ");
  const url = await within(seconds, what, child, (resolve, reject) => {
    child.on("printed", () => {
      const found = /http:\/\/[\w.]+:\d+\//.exec(child.printed);
      if (found) resolve(found[0]);
    });
    child.on("close", (code) => reject(new Error(`${what} ended with ${code}\n${child.printed}`)));
  });
  return { child, url };
}

/** Waits for the end of a server and returns its code. */
export function ended(child, seconds) {
  return within(seconds, "the end of the server", child, (resolve) => {
    if (child.exitCode !== null) resolve(child.exitCode);
    child.on("close", resolve);
  });
}
