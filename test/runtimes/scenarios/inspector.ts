// What an isolate of workerd holds, as its inspector tells.

import { createServer } from "node:net";

const SECONDS = 30;

/** A port that nobody listens on now. */
export async function freePort(): Promise<number> {
  const server = createServer();
  await new Promise<void>((resolve) => server.listen(0, "127.0.0.1", resolve));
  const address = server.address();
  await new Promise((resolve) => server.close(resolve));
  if (address === null || typeof address === "string") throw new Error("expected a port, got none");
  return address.port;
}

/** Bytes of the JavaScript heap, and of buffers and wasm memories, behind the inspector at `port`. */
export async function heapBytes(port: number): Promise<number> {
  const signal = AbortSignal.timeout(SECONDS * 1000);
  const list = await (await fetch(`http://127.0.0.1:${port}/json`, { signal })).json();
  const [{ webSocketDebuggerUrl }] = list as [{ webSocketDebuggerUrl: string }];
  // The inspector turns away whoever does not say where they come from.
  const headers = { Origin: "http://127.0.0.1" };
  const socket = new WebSocket(webSocketDebuggerUrl, { headers } as unknown as string[]);
  try {
    const result = await new Promise<Record<string, number>>((resolve, reject) => {
      signal.onabort = () => reject(signal.reason);
      socket.onerror = () => reject(new Error(`the inspector at ${webSocketDebuggerUrl} did not answer`));
      socket.onopen = () => socket.send(JSON.stringify({ id: 1, method: "Runtime.getHeapUsage" }));
      // Events of the isolate come through here too; an answer has the number of its question.
      socket.onmessage = ({ data }) => {
        const { id, result } = JSON.parse(String(data));
        if (id === 1) resolve(result);
      };
    });
    const { totalSize = Number.NaN, embedderHeapUsedSize = 0, backingStorageSize = Number.NaN } = result;
    return totalSize + embedderHeapUsedSize + backingStorageSize;
  } finally {
    socket.close();
  }
}
