// Tests over HTTP, against `wrangler dev`: `node test.mjs`. They cover every limit and every error, and conversations that
// lose their caches in every possible way, compared bit for bit with one undisturbed process.

import assert from "node:assert/strict";
import { after, before, describe, test } from "node:test";
import { setTimeout as wait } from "node:timers/promises";
import { converse, loadAlone, readLogits } from "./harness/alone.mjs";
import { startServer } from "./harness/server.mjs";
import { generate, openSession, readEvents, request } from "./public/client.js";
import { readLimits } from "./src/limits.ts";

const TIMEOUT = 60_000;
const SEGMENT = "r4 kq, vw8 zt. ";

/** Reads one stream: its tokens as text, and the data of its last event. */
async function answerOf(session, text, tokens) {
  const body = JSON.stringify({ text, tokens, digest: true });
  const response = await request(`${session.url}/tokens`, { method: "POST", body, stream: true });
  const events = [];
  for await (const each of readEvents(response)) events.push(each);
  const { event, data } = events.pop();
  assert.equal(event, "done");
  assert.deepEqual(
    events.map(({ event, data }) => [event, data.index]),
    Array.from({ length: tokens }, (_, i) => ["token", data.length - tokens + i]),
  );
  return { ...data, text: events.map(({ data }) => data.text).join("") };
}

const inspect = ({ url }) => request(`${url}/debug`);
const abort = ({ url }) => request(`${url}/debug`, { method: "DELETE" });

describe("one process", () => {
  test("the model's logits are within 2e-4 of those of float64", async () => {
    const model = await loadAlone();
    const { tokens, logits } = readLogits();
    const got = model.next({ tokens, caches: model.createCaches(tokens.length) });
    assert.equal(got.length, logits.length);
    assert.ok(Math.max(...logits.map((logit, token) => Math.abs(logit - got[token]))) < 2e-4);
  });

  test("a limit that is not a number is rejected", () => {
    assert.throws(() => readLimits({ MAX_PROMPT: "many" }), /MAX_PROMPT expected an integer >= 1, got many/);
  });
});

// Slices of one token, so that answers last long enough to be interrupted, and memory for few conversations.
describe("a server", { timeout: 6 * TIMEOUT }, () => {
  const MEMORY_MIB = 3;
  let server;
  let model;
  const open = () => openSession(server.base);
  /** The conversation of these turns [prompt, count] in one undisturbed process. */
  const alone = (turns) => converse(model, turns);

  before(async () => {
    model = await loadAlone();
    server = await startServer({ MEMORY_MIB, MAX_ACTIVE: 2, SLICE_TOKENS: 1, CHECKPOINT_TOKENS: 64, IDLE_SECONDS: 4 });
  });
  after(() => server?.stop());

  test("serves the page, with a content security policy that allows nothing else", async () => {
    const response = await fetch(server.base);
    assert.match(await response.text(), /<title>/);
    assert.match(response.headers.get("content-security-policy"), /default-src 'none'; script-src 'self'/);
    for (const script of ["chat.js", "client.js"]) assert.ok((await fetch(`${server.base}/${script}`)).ok);
  });

  test("rejects wrong requests, and changes nothing", async () => {
    const session = await open();
    await answerOf(session, "abc abc ", 4);
    const path = new URL(session.url).pathname;
    const gone = await open();
    await request(gone.url, { method: "DELETE" });
    const ask = (fields) => JSON.stringify({ text: "a", tokens: 1, ...fields });
    const long = "a".repeat(257);
    const rows = [
      ["GET", "/v1", undefined, 404, "not_found"],
      ["GET", "/v1/sessions/", undefined, 404, "no_session"],
      ["GET", `${path}/pages`, undefined, 404, "not_found"],
      ["GET", `${path}/tokens/1`, undefined, 404, "not_found"],
      ["GET", "/v1/sessions", undefined, 405, "method_not_allowed", ["allow", "POST"]],
      ["PUT", path, undefined, 405, "method_not_allowed", ["allow", "GET, DELETE"]],
      ["GET", `${path}/tokens`, undefined, 405, "method_not_allowed", ["allow", "POST"]],
      ["GET", "/v1/sessions/1234", undefined, 404, "no_session"],
      ["GET", new URL(gone.url).pathname, undefined, 404, "no_session"],
      ["DELETE", new URL(gone.url).pathname, undefined, 404, "no_session"],
      ["POST", `${new URL(gone.url).pathname}/tokens`, ask(), 404, "no_session"],
      ["GET", `${path}?from=-1`, undefined, 400, "bad_request"],
      ["GET", `${path}?from=one`, undefined, 400, "bad_request"],
      ["POST", `${path}/tokens`, undefined, 400, "bad_json"],
      ["POST", `${path}/tokens`, '{"text":', 400, "bad_json"],
      ["POST", `${path}/tokens`, "[]", 400, "bad_request"],
      ["POST", `${path}/tokens`, "null", 400, "bad_request"],
      ["POST", `${path}/tokens`, ask({ text: 1 }), 400, "bad_request"],
      ["POST", `${path}/tokens`, ask({ tokens: "1" }), 400, "bad_request"],
      ["POST", `${path}/tokens`, ask({ tokens: 1.5 }), 400, "bad_request"],
      ["POST", `${path}/tokens`, ask({ at: -1 }), 400, "bad_request"],
      ["POST", `${path}/tokens`, ask({ digest: 1 }), 400, "bad_request"],
      ["POST", `${path}/tokens`, ask({ temperature: 1 }), 400, "bad_request"],
      ["POST", `${path}/tokens`, ask({ text: long }), 413, "prompt_too_long"],
      ["POST", `${path}/tokens`, ask({ text: long.repeat(20) }), 413, "body_too_large"],
      ["POST", `${path}/tokens`, ask({ tokens: 0 }), 422, "bad_tokens"],
      ["POST", `${path}/tokens`, ask({ tokens: 257 }), 422, "bad_tokens"],
      ["POST", `${path}/tokens`, ask({ text: "ä" }), 422, "unknown_character"],
      ["POST", `${path}/tokens`, ask({ at: 11 }), 409, "wrong_position"],
    ];
    for (const [method, at, body, status, code, header] of rows) {
      const response = await fetch(server.base + at, { method, body });
      const { error } = await response.json();
      assert.deepEqual([response.status, error.code], [status, code], `${method} ${at} ${body}`);
      assert.ok(error.message.length > 10);
      if (header) assert.equal(response.headers.get(header[0]), header[1]);
    }
    // A body without a content-length.
    const body = new Blob([" ".repeat(10_000)]).stream();
    const init = { method: "POST", body, duplex: "half" };
    await assert.rejects(request(`${session.url}/tokens`, init), { status: 413, code: "body_too_large" });
    const { text, length, busy, trainedLength } = await request(session.url);
    assert.deepEqual([text.slice(0, 8), length, busy, trainedLength], ["abc abc ", 12, false, 96]);
    assert.equal((await request(`${session.url}?from=8`)).text, text.slice(8));
  });

  test("rejects an empty first text, and a text that exceeds the length of a conversation", async () => {
    const session = await open();
    await assert.rejects(answerOf(session, "", 1), { status: 422, code: "empty_prompt" });
    await answerOf(session, "ab".repeat(120), 100);
    await assert.rejects(answerOf(session, "a", 172), { status: 422, code: "context_full" });
    const { length } = await answerOf(session, "", 172);
    assert.equal(length, 512);
    await assert.rejects(answerOf(session, "", 1), { status: 422, code: "context_full" });
  });

  test("runs one answer of a conversation, and MAX_ACTIVE of an isolate, at a time", async () => {
    const [first, second, third] = [await open(), await open(), await open()];
    const answers = [answerOf(first, SEGMENT, 256), answerOf(second, SEGMENT, 256)];
    await waitUntil(async () => (await inspect(first)).active === 2);
    await assert.rejects(answerOf(first, SEGMENT, 1), { status: 409, code: "session_busy", retryAfter: 1 });
    await assert.rejects(request(first.url, { method: "DELETE" }), { status: 409, code: "session_busy" });
    await assert.rejects(answerOf(third, SEGMENT, 1), { status: 429, code: "too_busy", retryAfter: 1 });
    assert.equal((await request(first.url)).busy, true);
    await Promise.all(answers);
    await answerOf(third, SEGMENT, 1);
  });

  test("an object that was reset restores its pages instead of computing them again, with the same bits", async () => {
    const session = await open();
    const turns = [
      [SEGMENT.repeat(9), 30],
      ["", 20],
      ["r4", 100],
      ["", 1],
    ];
    const expected = alone(turns);
    let at = 0;
    let before = { fed: (await inspect(session)).fed - 1 };
    for (const [prompt, count] of turns) {
      at += prompt.length;
      const { text, digest } = await answerOf(session, prompt, count);
      assert.equal(text, expected.text.slice(at, at + count));
      assert.equal(digest, await expected.digest(at, at + count));
      at += count;
      const now = await inspect(session);
      assert.deepEqual([now.held, now.fed - before.fed], [at - 1, prompt.length + count]);
      before = now;
      await abort(session);
    }
  });

  test("answers that are interrupted by resets are continued, with every token once and the same bits", async () => {
    const session = await open();
    const turns = [[SEGMENT.repeat(2), 200]];
    const expected = alone(turns);
    const parts = [];
    let text = SEGMENT.repeat(2);
    let resets = 0;
    const onDone = ({ tokens, length, digest }) => parts.push({ from: length - tokens, to: length, digest });
    for await (const token of generate(session, text, 200, { digest: true, onDone })) {
      assert.equal(token.index, text.length);
      text += token.text;
      if ([50, 51, 130].includes(text.length)) {
        await abort(session);
        resets++;
      }
    }
    assert.equal(resets, 3);
    assert.equal(text, expected.text);
    assert.equal(parts.length, 1); // that of the last part: the others were not completed
    for (const { from, to, digest } of parts) assert.equal(digest, await expected.digest(from, to));
  });

  test("a client that disconnects stops its answer, and the tokens computed before are kept", async () => {
    const session = await open();
    const leave = new AbortController();
    await assert.rejects(async () => {
      for await (const { index } of generate(session, SEGMENT, 256, { signal: leave.signal }))
        if (index === SEGMENT.length + 20) leave.abort();
    });
    await waitUntil(async () => !(await request(session.url)).busy);
    const { length, text } = await request(session.url);
    assert.ok(length > SEGMENT.length + 20 && length < SEGMENT.length + 256, `${length}`);
    const count = length - SEGMENT.length;
    const expected = alone([
      [SEGMENT, count],
      ["", 10],
    ]);
    assert.equal(text, expected.text.slice(0, length));
    assert.equal((await answerOf(session, "", 10)).digest, await expected.digest(length, length + 10));
  });

  test("a prompt whose client disconnects while it is read is not added to the conversation", async () => {
    const session = await open();
    const { length } = await answerOf(session, SEGMENT, 5);
    session.length = length;
    const { fed } = await inspect(session);
    const leave = new AbortController();
    const left = generate(session, "x".repeat(250), 1, { signal: leave.signal }).next();
    await Promise.all([
      assert.rejects(left),
      waitUntil(async () => (await inspect(session)).fed > fed + 10).then(() => leave.abort()),
    ]);
    await waitUntil(async () => !(await request(session.url)).busy);
    assert.equal((await request(session.url)).length, length);
    const expected = alone([
      [SEGMENT, 5],
      ["r4", 20],
    ]);
    const { digest } = await answerOf(session, "r4", 20);
    assert.equal(digest, await expected.digest(length + 2, length + 22));
  });

  test("conversations that do not fit in memory evict each other, with the same bits", async () => {
    const sessions = await Promise.all(Array.from({ length: 9 }, open));
    const turns = sessions.map((_, i) => Array.from({ length: 3 }, () => [`${i}${SEGMENT}${i}`.repeat(4), 10]));
    const expected = turns.map(alone);
    const length = turns.map(() => 0);
    let most = 0;
    for (const turn of [0, 1, 2])
      for (const [i, session] of sessions.entries()) {
        const [prompt, count] = turns[i][turn];
        const from = length[i] + prompt.length;
        length[i] = from + count;
        const { text, digest } = await answerOf(session, prompt, count);
        assert.equal(text, expected[i].text.slice(from, length[i]));
        assert.equal(digest, await expected[i].digest(from, length[i]));
        const { live, memoryBytes } = await inspect(session);
        most = Math.max(most, live);
        assert.ok(memoryBytes <= MEMORY_MIB * 2 ** 20, `${memoryBytes} bytes`);
      }
    assert.ok(most >= 3 && most < sessions.length, `${most} live at most`);
  });

  test("the memory of idle conversations is released", async () => {
    const session = await open();
    await answerOf(session, SEGMENT, 1);
    assert.ok((await inspect(session)).live > 0);
    await waitUntil(async () => (await inspect(session)).live === 0);
  });

  test("conversations continue after the server is killed, with the same bits", async () => {
    const sessions = [await open(), await open()];
    const turns = sessions.map((_, i) => [
      [`${i}${SEGMENT}`.repeat(10), 20],
      ["", 40],
    ]);
    const expected = turns.map(alone);
    const pass = async (turn) => {
      for (const [i, session] of sessions.entries()) {
        const { length, text, digest } = await answerOf(session, ...turns[i][turn]);
        const from = length - turns[i][turn][1];
        assert.equal(text, expected[i].text.slice(from, length));
        assert.equal(digest, await expected[i].digest(from, length));
      }
    };
    await pass(0);
    await server.restart();
    await pass(1);
  });
});

describe("a server with KEEP_DAYS 0", { timeout: 3 * TIMEOUT }, () => {
  test("deletes conversations once they are idle", async () => {
    const server = await startServer({ KEEP_DAYS: 0, IDLE_SECONDS: 1 });
    try {
      const session = await openSession(server.base);
      await answerOf(session, SEGMENT, 1);
      await waitUntil(async () => (await fetch(session.url)).status === 404);
    } finally {
      server.stop();
    }
  });
});

async function waitUntil(holds) {
  for (const end = Date.now() + 15_000; !(await holds()); await wait(5)) assert.ok(Date.now() < end, `${holds}`);
}
