// Processes that run tests on sources with faults.

import { type ChildProcess, fork } from "node:child_process";
import { join } from "node:path";
import { pathToFileURL } from "node:url";
import type { Reply, Request } from "./child.ts";

const hooks = (path: string) => pathToFileURL(join(import.meta.dirname, path)).href;

/** What the start of a process, a file and what runs before its tests may take, or all tests of a file without a fault. */
const LOADING_MS = 600_000;

/** A process that is started when it is asked, and again when it has ended. */
export class TestProcess {
  readonly #sources: string;
  #child: ChildProcess | undefined;

  constructor(sources: string) {
    this.#sources = sources;
  }

  /** The reply, or how the process ended instead. `patience`: milliseconds that a test may take, by its index. */
  ask(request: Request, patience: (at: number) => number = () => LOADING_MS): Promise<Reply | string> {
    this.#child ??= fork(join(import.meta.dirname, "child.ts"), {
      execArgv: ["--import", hooks("../../../scripts/source-hooks.mjs"), "--import", hooks("hooks.mjs")],
      env: { ...process.env, HOST_MUTANTS: this.#sources },
      stdio: "ignore",
    });
    const child = this.#child;
    return new Promise((resolve) => {
      let timer: NodeJS.Timeout | undefined;
      let at = 0;
      const wait = (ms: number) => {
        clearTimeout(timer);
        timer = setTimeout(() => done(`test ${at} does not end`), ms);
      };
      const done = (reply: Reply | string) => {
        clearTimeout(timer);
        child.off("message", receive).off("exit", exited);
        if (typeof reply === "string") this.end();
        resolve(reply);
      };
      const receive = (reply: Reply) => {
        if (reply.kind !== "loads" && reply.kind !== "begins") return done(reply);
        at = reply.at;
        wait(reply.kind === "loads" ? LOADING_MS : patience(at));
      };
      const exited = (code: number | null, signal: string | null) =>
        done(`the process ends in test ${at}: ${code ?? signal}`);
      child.on("message", receive).on("exit", exited);
      wait(LOADING_MS);
      child.send(request);
    });
  }

  end(): void {
    this.#child?.kill("SIGKILL");
    this.#child = undefined;
  }
}

/** Calls `work` for each item, in that many processes at once; the results are in the order of the items. */
export async function inTurns<T, R>(
  sources: string,
  processes: number,
  items: readonly T[],
  work: (item: T, process: TestProcess, i: number) => Promise<R>,
): Promise<R[]> {
  const results: R[] = [];
  let next = 0;
  await Promise.all(
    Array.from({ length: processes }, async () => {
      const process = new TestProcess(sources);
      try {
        while (next < items.length) {
          const i = next++;
          results[i] = await work(items[i] as T, process, i);
        }
      } finally {
        process.end();
      }
    }),
  );
  return results;
}
