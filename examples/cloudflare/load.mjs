// A load test on this machine: `node load.mjs [--sessions 200] [--seconds 120] [--seed 1]`. Clients converse at the same time
// while objects are reset, connections are dropped, caches are evicted for lack of memory, and the server is killed once and
// restarted. Afterwards every conversation is computed again in this process: each text must be the same, each piece of it must
// have arrived once and in order, and the logits must have the same bits.

import { setTimeout as wait } from "node:timers/promises";
import { parseArgs } from "node:util";
import { converse, loadAlone } from "./harness/alone.mjs";
import { startServer } from "./harness/server.mjs";
import { generate, openSession, request } from "./public/client.js";

const options = { sessions: { type: "string" }, seconds: { type: "string" }, seed: { type: "string" } };
const { values } = parseArgs({ options });
const [sessions, seconds, seed] = [values.sessions ?? 200, values.seconds ?? 120, values.seed ?? 1].map(Number);
/** For some seventy conversations. */
const MEMORY_MIB = 20;
const ABORT_EVERY_MS = 200;
/** The most resets that are requested at the same time. */
const MOST_RESETS = 8;
const DROPPED_SHARE = 0.05;
const SENTENCES = [
  "the cat sat on the mat because it was",
  "anna put the apple in the box.",
  "tom was hungry, so he",
  "one day, bill",
  "where was the ball?",
  "the dog",
];

/** Numbers in [0, 1) from a seed, so that two runs have the same conversations. */
function createRandom(state) {
  return () => {
    state = (state + 0x6d2b79f5) | 0;
    let t = Math.imul(state ^ (state >>> 15), 1 | state);
    t = (t + Math.imul(t ^ (t >>> 7), 61 | t)) ^ t;
    return ((t ^ (t >>> 14)) >>> 0) / 2 ** 32;
  };
}

const conversations = [];
const counts = { answers: 0, tokens: 0, retries: new Map(), aborts: 0, dropped: 0, restarts: 0 };
const times = { first: [], gap: [] };
let peakBytes = 0;
let peakLive = 0;

const server = await startServer({ MEMORY_MIB });
const started = performance.now();
const ends = started + 1000 * seconds;
let cpu = 0;
try {
  const disturbance = disturb();
  await Promise.all(Array.from({ length: sessions }, (_, user) => converseUntilEnd(createRandom(1000 * seed + user))));
  await disturbance;
  cpu += server.cpuSeconds() ?? Number.NaN;
  await compareStored();
} catch (error) {
  console.error(server.output());
  throw error;
} finally {
  server.stop();
}
const took = (performance.now() - started) / 1000;
report(await compareWithOneProcess());

/** One user: conversations one after the other, each of several answers, until time is up. */
async function converseUntilEnd(random) {
  const integer = (least, most) => least + Math.floor(random() * (most - least + 1));
  await wait(integer(0, 2000));
  while (performance.now() < ends) {
    const session = await openWithPatience();
    const conversation = { session, turns: [], text: "", parts: [], busy: false };
    conversations.push(conversation);
    const sampling = { temperature: integer(0, 2) / 2, seed: integer(0, 1000) };
    for (let turn = 0; performance.now() < ends; turn++) {
      // Now and then no text, which continues the last answer.
      const sentence = SENTENCES[integer(turn === 0 ? 1 : 0, SENTENCES.length) - 1];
      const text = sentence ? `${turn === 0 ? "" : " "}${sentence}` : "";
      if (!(await converseOnce(conversation, { text, tokens: integer(8, 64), ...sampling }, random))) break;
      await wait(integer(0, 500));
    }
  }
}

async function openWithPatience() {
  for (let attempt = 0; ; attempt++)
    try {
      return await openSession(server.base);
    } catch (error) {
      if (attempt === 100) throw error;
      note(error);
      await wait(500 + 2000 * Math.random());
    }
}

/** One answer. Returns false where a conversation ends: it had no room for the text, or the model nothing to add. */
async function converseOnce(conversation, turn, random) {
  const { session } = conversation;
  const begin = performance.now();
  const options = {
    ...{ temperature: turn.temperature, seed: turn.seed, digest: true, patience: 60_000, onRetry: note },
    onDone: ({ answer, tokens, digest }) => conversation.parts.push({ from: tokens - answer, to: tokens, digest }),
    fetch: (...args) => fetchOrDrop(random, ...args),
  };
  let at = conversation.text.length + turn.text.length;
  let text = "";
  let last = begin;
  conversation.busy = true;
  try {
    for await (const piece of generate(session, turn.text, turn.tokens, options)) {
      if (piece.at !== at) throw new Error(`text from ${at} expected, got ${piece.at}`);
      at += piece.text.length;
      const now = performance.now();
      (text === "" ? times.first : times.gap).push(now - last);
      last = now;
      text += piece.text;
    }
  } catch (error) {
    if (error.code === "context_full") return false;
    throw error;
  } finally {
    conversation.busy = false;
  }
  conversation.turns.push(turn);
  conversation.text += turn.text + text;
  counts.answers++;
  return text !== "";
}

/** `fetch`, but some of the streams break off like a lost connection, for both client and server. */
async function fetchOrDrop(random, url, init) {
  const response = await fetch(url, init);
  if (init.method !== "POST" || !response.ok || random() > DROPPED_SHARE) return response;
  const reader = response.body.getReader();
  let left = Math.floor(4 * random());
  const body = new ReadableStream({
    async pull(controller) {
      const { value, done } = await reader.read();
      if (done) return controller.close();
      if (left-- > 0) return controller.enqueue(value);
      counts.dropped++;
      await reader.cancel();
      controller.error(Object.assign(new TypeError("dropped"), { code: "dropped" }));
    },
  });
  return new Response(body, response);
}

function note(error) {
  const name = error.code ?? error.cause?.code ?? error.name;
  counts.retries.set(name, (counts.retries.get(name) ?? 0) + 1);
}

/** Resets objects during their answers, and kills the server half way. */
async function disturb() {
  const random = createRandom(seed);
  const half = started + 500 * seconds;
  const resets = new Set();
  while (performance.now() < ends) {
    await wait(ABORT_EVERY_MS);
    if (counts.restarts === 0 && performance.now() > half) {
      counts.restarts++;
      cpu += server.cpuSeconds() ?? Number.NaN;
      await server.restart();
    }
    const busy = conversations.filter((conversation) => conversation.busy);
    const target = busy[Math.floor(random() * busy.length)];
    if (!target || resets.size === MOST_RESETS) continue;
    const one = reset(target.session)
      .catch(note)
      .finally(() => resets.delete(one));
    resets.add(one);
  }
  await Promise.all(resets);
}

async function reset({ url }) {
  const { memoryBytes, live } = await request(`${url}/debug`);
  peakBytes = Math.max(peakBytes, memoryBytes);
  peakLive = Math.max(peakLive, live);
  await request(`${url}/debug`, { method: "DELETE" });
  counts.aborts++;
}

/** Compares the stored texts with those that the clients received. */
async function compareStored() {
  for (const conversation of conversations) {
    const { text } = await request(conversation.session.url);
    if (text !== conversation.text) fail(conversation, `stored ${JSON.stringify(text)}`);
  }
}

/** Recomputes every conversation. Returns the number of digests that were compared, and of their tokens. */
async function compareWithOneProcess() {
  const model = await loadAlone();
  let [digests, hashed] = [0, 0];
  for (const conversation of conversations) {
    const expected = await converse(model, conversation.turns);
    counts.tokens += expected.answers.reduce((sum, { ids }) => sum + ids.length, 0);
    if (conversation.text !== expected.text)
      fail(conversation, `one process computed ${JSON.stringify(expected.text)}`);
    for (const { from, to, digest } of conversation.parts) {
      if ((await expected.digest(from, to)) !== digest) fail(conversation, `other logits of tokens ${from} to ${to}`);
      digests++;
      hashed += to - from;
    }
  }
  return { digests, hashed };
}

function fail({ session, text }, why) {
  console.error(`FAILED ${session.url}: ${JSON.stringify(text)}, ${why}`);
  process.exitCode = 1;
}

function report({ digests, hashed }) {
  const quantile = (list, q) => [...list].sort((a, b) => a - b)[Math.min(list.length - 1, Math.floor(q * list.length))];
  const ms = (list) => [0.5, 0.99].map((q) => `p${100 * q} ${(quantile(list, q) ?? 0).toFixed(1)} ms`).join(", ");
  const { answers, tokens, aborts, dropped, restarts, retries } = counts;
  const why = Array.from(retries, ([name, count]) => `${name} ${count}`).join(", ");
  console.log(`load          ${sessions} clients, ${conversations.length} conversations, ${took.toFixed(0)} s`);
  console.log(`answers       ${answers} of ${tokens} tokens, ${(tokens / took).toFixed(0)} tokens/s`);
  console.log(`first text    ${ms(times.first)}, retries and resets included; between two pieces ${ms(times.gap)}`);
  if (cpu)
    console.log(`CPU           ${((1000 * cpu) / tokens).toFixed(2)} ms of workerd per token, everything included`);
  console.log(
    `disturbed     ${aborts} objects reset, ${dropped} connections dropped, ${restarts} restart after a kill`,
  );
  console.log(`retries       ${why || "none"}`);
  console.log(
    `memory        ${(peakBytes / 2 ** 20).toFixed(1)} MiB of linear memory, at most ${peakLive} conversations in it`,
  );
  console.log(`compared      ${conversations.length} texts; logits of ${hashed} tokens in ${digests} digests`);
  const checks = [
    [answers >= sessions, "every client got an answer"],
    [aborts > 0 && restarts === 1, "objects were reset and the server was killed"],
    [peakBytes > 0 && peakBytes <= MEMORY_MIB * 2 ** 20, `linear memory stayed within ${MEMORY_MIB} MiB`],
    [hashed > tokens / 10, "logits of a tenth of the tokens or more were compared"],
    [!process.exitCode, "every text and every bit is that of one process, nothing lost or repeated"],
  ];
  for (const [ok, what] of checks) {
    console.log(`${ok ? "ok    " : "FAILED"}        ${what}`);
    if (!ok) process.exitCode = 1;
  }
}
