interface Hosts {
  readonly setImmediate?: (then: () => void) => void;
  readonly MessageChannel?: typeof MessageChannel;
}

/**
 * Resolves when what was waiting for this thread has had its turn: input, timers, requests. Browsers hold timers back by
 * milliseconds, so a timer is the last resort; `scheduler.yield` is none, since it comes back before timers and messages.
 */
export function othersTurn(): Promise<void> {
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
