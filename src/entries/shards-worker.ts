/**
 * The script of the workers of `headwise/shards`. That entry has it inlined; as a file it is for pages whose content security
 * policy forbids workers made from inlined source.
 */

import { buffersIn } from "../shards/partition.ts";
import { createShard, type ShardReply, type ShardRequest } from "../shards/shard.ts";

/** The message port: the global scope on the web, `parentPort` in Node. */
interface Port {
  onmessage: ((event: { readonly data: ShardRequest }) => void) | null;
  postMessage(reply: ShardReply, moved: ArrayBuffer[]): void;
}

interface Host {
  readonly process?: { getBuiltinModule?(name: string): { readonly parentPort: Port | null } | undefined };
}

const host = globalThis as Host;
const port = host.process?.getBuiltinModule?.("node:worker_threads")?.parentPort ?? (globalThis as unknown as Port);

const answer = createShard();
port.onmessage = async ({ data }) => {
  const reply = await answer(data);
  if (reply) port.postMessage(reply, buffersIn(reply));
};
