/**
 * The script of the workers of `headwise/shards`. That entry has it inlined; as a file it is for pages whose content security
 * policy forbids workers made from inlined source.
 */

import { findWorkerPort, otherScript } from "../base/platform/workers.ts";
import {
  buffersIn,
  createShard,
  failureOf,
  SCRIPT,
  type ShardMessage,
  type ShardReply,
  type ShardRequest,
} from "../hosts/shards/shard.ts";

const port = findWorkerPort<ShardMessage<ShardRequest>, ShardMessage<ShardReply>>();

const answer = createShard();

const post = (id: number, body: ShardReply) => port.postMessage({ script: SCRIPT, id, body }, buffersIn(body));

port.onmessage = ({ data }) => {
  const other = otherScript(data, SCRIPT);
  // Thrown at once, this reaches a thread of any version as an error of its worker.
  if (other) throw new Error(`${SCRIPT} was started by ${other}`);
  answer(data.body)
    .then((reply) => reply && post(data.id, reply))
    .catch((error) => post(data.id, { error: failureOf(error) }));
};
