import type { Slices } from "../forward/slices.ts";
import { yieldToEventLoop } from "../platform/event-loop.ts";

/**
 * Passes of small models are shorter than a slice and yield by themselves to nobody. Returns a function to call between passes,
 * which yields to the event loop if that has not happened for `sliceMs`.
 */
export function createPace({ sliceMs }: Slices): () => Promise<void> {
  let due = performance.now() + sliceMs;
  return async () => {
    if (performance.now() < due) return;
    await yieldToEventLoop();
    due = performance.now() + sliceMs;
  };
}
