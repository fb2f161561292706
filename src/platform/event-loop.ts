interface Hosts {
  readonly setImmediate?: (then: () => void) => void;
  readonly MessageChannel?: typeof MessageChannel;
}

/**
 * Resolves after waiting tasks of this thread, such as input, timers and requests, have run. A timer is the last
 * choice, because browsers delay timers by milliseconds. `scheduler.yield` is not used, because it resumes before
 * timers and messages.
 */
export function yieldToEventLoop(): Promise<void> {
  const { setImmediate, MessageChannel } = globalThis as Hosts;
  return new Promise((resolve) => {
    if (setImmediate) setImmediate(resolve);
    else if (MessageChannel) {
      const { port1, port2 } = new MessageChannel();
      port1.onmessage = () => {
        port1.close();
        resolve();
      };
      port2.postMessage(undefined);
    } else setTimeout(resolve);
  });
}

/** Resolves after so many milliseconds, or as soon as the signal is aborted. */
export function wait(ms: number, signal?: AbortSignal): Promise<void> {
  return new Promise((resolve) => {
    const end = () => {
      clearTimeout(timer);
      signal?.removeEventListener("abort", end);
      resolve();
    };
    const timer = setTimeout(end, ms);
    signal?.addEventListener("abort", end);
    if (signal?.aborted) end();
  });
}
