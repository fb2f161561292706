// The engine: a worker that runs tasks for the page (src/engine.ts), each a function of what it is given and of its call.

import { HeadwiseError } from "headwise";
import type { Answer, Call } from "./call.ts";
import { replaced } from "./load.ts";
import { plainMessage } from "./plain-error.ts";
import { TASKS } from "./tasks.ts";

type Request =
  | { readonly id: number; readonly task: keyof typeof TASKS; readonly given: never }
  | { readonly stop: number };

const running = new Map<number, AbortController>();
const post = (answer: Answer, transfer: Transferable[] = []) => postMessage(answer, { transfer });

addEventListener("message", async ({ data }: MessageEvent<Request>) => {
  if ("stop" in data) return running.get(data.stop)?.abort();
  const { id, task, given } = data;
  const abort = new AbortController();
  running.set(id, abort);
  try {
    const call: Call = { report: (report) => post({ id, report }), signal: abort.signal };
    const result: unknown = await TASKS[task](given, call);
    post({ id, result }, buffersOf(result));
  } catch (error) {
    const isReleased = error instanceof HeadwiseError && error.code === "RELEASED";
    const own = isReleased ? replaced() : error instanceof Error ? error : new Error(String(error));
    const name = abort.signal.aborted ? "AbortError" : own.name;
    post({ id, error: { name, message: plainMessage(own) } });
  } finally {
    running.delete(id);
  }
});

/** The buffers of typed arrays in a result, which are handed over instead of copied. */
function buffersOf(value: unknown, found = new Set<ArrayBuffer>()): ArrayBuffer[] {
  if (ArrayBuffer.isView(value)) {
    if (value.buffer instanceof ArrayBuffer) found.add(value.buffer);
  } else if (value && typeof value === "object") for (const each of Object.values(value)) buffersOf(each, found);
  return [...found];
}
