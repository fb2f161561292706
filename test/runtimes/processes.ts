// Child processes that end: by themselves, or by their time limit, or with this process.

import { type ChildProcess, spawn } from "node:child_process";

const alive = new Set<ChildProcess>();

export interface Command {
  readonly file: string;
  readonly args: readonly string[];
  readonly cwd: string;
  readonly env?: Readonly<Record<string, string>>;
}

/** Starts a command in a group of its own, so that `stop` ends what it started too. */
export function start({ file, args, cwd, env }: Command): ChildProcess {
  const child = spawn(file, args, {
    cwd,
    env: { ...process.env, ...env },
    stdio: ["ignore", "pipe", "pipe"],
    detached: true,
  });
  alive.add(child);
  child.once("exit", () => alive.delete(child));
  return child;
}

/** Ends a child and its children. */
export function stop(child: ChildProcess): void {
  if (!alive.delete(child) || child.pid === undefined) return;
  try {
    process.kill(-child.pid, "SIGKILL");
  } catch {
    child.kill("SIGKILL");
  }
}

/** Ends all that still run. */
export function stopAll(): void {
  for (const child of alive) stop(child);
}

/** What the command printed. Throws with its whole output when it fails or takes longer than `seconds`. */
export async function run(command: Command, seconds: number): Promise<string> {
  const child = start(command);
  const printed = { out: "", err: "" };
  child.stdout?.on("data", (data) => {
    printed.out += data;
  });
  child.stderr?.on("data", (data) => {
    printed.err += data;
  });
  const name = [command.file, ...command.args].join(" ");
  const limit = setTimeout(() => stop(child), seconds * 1000);
  const begin = performance.now();
  const code = await new Promise<number | null>((resolve, reject) => {
    child.once("error", reject);
    child.once("close", resolve);
  }).finally(() => clearTimeout(limit));
  if (code === 0) return printed.out;
  const late = performance.now() - begin >= seconds * 1000;
  const how = late ? `did not end within ${seconds} s` : `ended with ${code}`;
  throw new Error(`${name} ${how}\n${printed.out.slice(-2000)}${printed.err.slice(-4000)}`);
}

/**
 * The first match of `pattern` in what a child prints. Throws with its output when it ends before that, prints something
 * like `failure`, or takes longer than `seconds`.
 */
export function waitFor(
  child: ChildProcess,
  pattern: RegExp,
  failure: RegExp,
  seconds: number,
): Promise<RegExpExecArray> {
  return new Promise((resolve, reject) => {
    let printed = "";
    const limit = setTimeout(() => fail(`nothing like ${pattern} within ${seconds} s`), seconds * 1000);
    const fail = (why: string) => {
      clearTimeout(limit);
      reject(new Error(`${why}\n${printed.slice(-4000)}`));
    };
    const listen = (data: Buffer) => {
      printed += data;
      const match = pattern.exec(printed);
      if (match) {
        clearTimeout(limit);
        resolve(match);
      } else if (failure.test(printed)) {
        // The reason is printed after the words that match.
        setTimeout(() => fail("it failed"), 500);
      }
    };
    child.stdout?.on("data", listen);
    child.stderr?.on("data", listen);
    child.once("error", (error) => fail(String(error)));
    child.once("exit", (code) => fail(`it ended with ${code}`));
  });
}
