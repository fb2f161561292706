// Breaks of tasks that take long.

import { yieldToEventLoop } from "../../src/base/platform/host.ts";

/** Lets the worker take messages of the page, a stop among them, which this throws. */
export async function pause(signal: AbortSignal): Promise<void> {
  await yieldToEventLoop();
  signal.throwIfAborted();
}
