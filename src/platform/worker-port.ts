import { builtinModule } from "./builtin.ts";

/** The end of a worker's message channel that is inside the worker. */
interface WorkerPort<Request, Reply> {
  onmessage: ((event: { readonly data: Request }) => void) | null;
  postMessage(reply: Reply, transfer?: readonly ArrayBuffer[]): void;
}

/** The port of the worker that runs this: the global scope on the web, `parentPort` in Node. */
export function findWorkerPort<Request, Reply>(): WorkerPort<Request, Reply> {
  type Port = WorkerPort<Request, Reply>;
  const threads = builtinModule<{ readonly parentPort: Port | null }>("node:worker_threads");
  return threads?.parentPort ?? (globalThis as unknown as Port);
}
