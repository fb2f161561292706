// The code of a process of its own. It writes its answer into the file that it is given, and the logits beside.

import { readFileSync, writeFileSync } from "node:fs";
import type { LoadDecoder } from "./decoder.ts";
import { measureDecoder } from "./measure-decoder.ts";
import type { Task } from "./task.ts";

export async function runChild(load: LoadDecoder): Promise<void> {
  const [task = "", loops = "", answerFile = ""] = process.argv.slice(2);
  const { request, vocabSize, effort } = JSON.parse(task) as Task;
  const { logits, ...answer } = await measureDecoder(load, request, vocabSize, effort, readFileSync(loops));
  const [, kilobytes] = /VmHWM:\s*(\d+) kB/.exec(readFileSync("/proc/self/status", "utf8"))!;
  writeFileSync(`${answerFile}.logits`, logits);
  writeFileSync(answerFile, JSON.stringify({ answer, heldBytes: 1024 * Number(kilobytes) }));
  process.exit(); // some peers leave handles open
}
