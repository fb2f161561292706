// Conversations that are longer than a model's room: which of their oldest turns are left out.

import { HeadwiseError } from "../base/util/errors.ts";
import type { ChatMessage } from "../text/chat.ts";

/** The ids of a conversation, and how many of its messages were left out. */
interface Fitted {
  readonly ids: readonly number[];
  readonly forgotten: number;
}

/** Where the turns behind the messages of the system begin: at its first message, and at each question. */
function turnsOf(messages: readonly ChatMessage[]): { readonly head: number; readonly starts: readonly number[] } {
  const isHead = ({ role }: ChatMessage) => role === "system" || role === "developer";
  const first = messages.findIndex((message) => !isHead(message));
  const head = first < 0 ? messages.length : first;
  const starts = messages.flatMap(({ role }, i) => (i === head || (i > head && role === "user") ? [i] : []));
  return { head, starts };
}

/**
 * Leaves out the oldest turns, whole ones, behind those of the system, until at most `most` tokens remain, of which `room` stay free
 * for the answer. Turns go in blocks of a quarter of that: so the next answers begin with the same messages, and do not read them
 * again.
 */
export async function forgetTurns(
  where: string,
  messages: readonly ChatMessage[],
  most: number,
  room: number,
  encode: (messages: readonly ChatMessage[]) => Promise<readonly number[]>,
): Promise<Fitted> {
  const limit = most - room;
  const whole = await encode(messages);
  if (whole.length <= limit) return { ids: whole, forgotten: 0 };
  const { head, starts } = turnsOf(messages);
  const block = Math.max(1, limit >> 2);
  const excess = Math.ceil((whole.length - limit) / block) * block;
  const from = (start: number) => encode([...messages.slice(0, head), ...messages.slice(start)]);
  // The first turn that is kept, by halves: each count of tokens is a rendering of the whole.
  let [low, high] = [1, starts.length - 1];
  let last: Fitted | undefined;
  while (low <= high) {
    const middle = (low + high) >> 1;
    const start = starts[middle] as number;
    const ids = await from(start);
    const isEnough = ids.length <= limit && whole.length - ids.length >= excess;
    // The last turn stays, even if no whole block can be left out.
    if (isEnough || (middle === starts.length - 1 && ids.length <= limit)) last = { ids, forgotten: start - head };
    if (isEnough) high = middle - 1;
    else low = middle + 1;
  }
  if (last) return last;
  const rule = `a last turn of at most ${limit} tokens beside the messages of the system`;
  throw new HeadwiseError("CACHE_FULL", `${where}: messages expected ${rule}, got more`);
}
