/**
 * The script of the workers of `headwise/shards`. That entry has it inlined; as a file it is for pages whose content security
 * policy forbids workers made from inlined source.
 */

import { findWorkerPort } from "../platform/worker-port.ts";
import { buffersIn } from "../shards/partition.ts";
import { createShard, type ShardReply, type ShardRequest } from "../shards/shard.ts";

const port = findWorkerPort<ShardRequest, ShardReply>();

const answer = createShard();
port.onmessage = async ({ data }) => {
  const reply = await answer(data);
  if (reply) port.postMessage(reply, buffersIn(reply));
};
