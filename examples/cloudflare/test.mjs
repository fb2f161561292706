// Tests over HTTP, against `wrangler dev`: `node test.mjs`. They cover every limit and every error, and conversations that
// lose their caches in every possible way, compared bit for bit with one undisturbed process.

import assert from "node:assert/strict";
import { after, before, describe, test } from "node:test";
import { setTimeout as wait } from "node:timers/promises";
import { createSession, forward } from "headwise/models";
import { converse, loadAlone, readExpected } from "./harness/alone.mjs";
import { startServer } from "./harness/server.mjs";
import { generate, openSession, readEvents, request } from "./public/client.js";
import { readLimits } from "./src/limits.ts";

const TIMEOUT = 60_000;
/** Eight tokens. */
const SENTENCE = "tom put the ball in the box. ";
/** A sentence that the model does not end here, of six tokens. */
const BEGINNING = " anna put the cake in the";

/** Reads one stream: its text, and the data of its last event. */
async function answerOf(session, turn) {
  const body = JSON.stringify({ digest: true, ...turn });
  const response = await request(`${session.url}/text`, { method: "POST", body, stream: true });
  const events = [];
  for await (const each of readEvents(response)) events.push(each);
  const { event, data } = events.pop();
  assert.equal(event, "done");
  const text = events.map(({ data }) => data.text).join("");
  let at = data.length - text.length;
  for (const { event, data } of events) {
    assert.deepEqual([event, data.at], ["text", at]);
    at += data.text.length;
  }
  return { ...data, text };
}

/** Checks the answer of a session against the last one of a conversation in one process. */
async function expectAnswer(got, expected, turn = expected.answers.length - 1) {
  const { text, begin, end } = expected.answers[turn];
  assert.deepEqual([got.text, got.answer, got.tokens], [text, end - begin, end]);
  assert.equal(got.digest, await expected.digest(begin, end));
}

const inspect = ({ url }) => request(`${url}/debug`);
const abort = ({ url }) => request(`${url}/debug`, { method: "DELETE" });

/** A drawn answer of 100 to 139 tokens, which the model ends. */
async function findLong(alone) {
  for (let seed = 1; seed < 1000; seed++) {
    const turn = { text: "tom", tokens: 192, temperature: 1, seed };
    const { answers } = await converse(alone, [turn]);
    const { length } = answers[0].ids;
    if (length >= 100 && length < 140 && answers[0].reason === "stop") return turn;
  }
  throw new Error("no story has 100 to 139 tokens");
}

describe("one process", () => {
  test("the model's logits are those of float64, up to the rounding of its weights to 8 bits", async () => {
    const { tokens, logits } = readExpected();
    const { model } = await loadAlone();
    const got = forward(createSession(model), tokens).logits;
    assert.equal(got.length, logits.length);
    const worst = Math.max(...logits.map((logit, token) => Math.abs(logit - got[token])));
    assert.ok(worst < 0.03 * Math.max(...logits.map(Math.abs)), `${worst}`);
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
  let long;
  const open = () => openSession(server.base);
  /** The conversation of these turns in one undisturbed process. */
  const alone = (turns) => converse(model, turns);

  before(async () => {
    model = await loadAlone();
    long = await findLong(model);
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
    const { length } = await answerOf(session, { text: SENTENCE + BEGINNING, tokens: 1 });
    const path = new URL(session.url).pathname;
    const gone = await open();
    await request(gone.url, { method: "DELETE" });
    const ask = (fields) => JSON.stringify({ text: "tom", tokens: 1, ...fields });
    const long = "a".repeat(1025);
    const rows = [
      ["GET", "/v1", undefined, 404, "not_found"],
      ["GET", "/v1/sessions/", undefined, 404, "no_session"],
      ["GET", `${path}/pages`, undefined, 404, "not_found"],
      ["GET", `${path}/text/1`, undefined, 404, "not_found"],
      ["GET", "/v1/sessions", undefined, 405, "method_not_allowed", ["allow", "POST"]],
      ["PUT", path, undefined, 405, "method_not_allowed", ["allow", "GET, DELETE"]],
      ["GET", `${path}/text`, undefined, 405, "method_not_allowed", ["allow", "POST"]],
      ["GET", "/v1/sessions/1234", undefined, 404, "no_session"],
      ["GET", new URL(gone.url).pathname, undefined, 404, "no_session"],
      ["DELETE", new URL(gone.url).pathname, undefined, 404, "no_session"],
      ["POST", `${new URL(gone.url).pathname}/text`, ask(), 404, "no_session"],
      ["GET", `${path}?from=-1`, undefined, 400, "bad_request"],
      ["GET", `${path}?from=one`, undefined, 400, "bad_request"],
      ["POST", `${path}/text`, undefined, 400, "bad_json"],
      ["POST", `${path}/text`, '{"text":', 400, "bad_json"],
      ["POST", `${path}/text`, "[]", 400, "bad_request"],
      ["POST", `${path}/text`, "null", 400, "bad_request"],
      ["POST", `${path}/text`, ask({ text: 1 }), 400, "bad_request"],
      ["POST", `${path}/text`, ask({ tokens: "1" }), 400, "bad_request"],
      ["POST", `${path}/text`, ask({ tokens: 1.5 }), 400, "bad_request"],
      ["POST", `${path}/text`, ask({ at: -1 }), 400, "bad_request"],
      ["POST", `${path}/text`, ask({ temperature: 2.5 }), 400, "bad_request"],
      ["POST", `${path}/text`, ask({ temperature: "1" }), 400, "bad_request"],
      ["POST", `${path}/text`, ask({ seed: -1 }), 400, "bad_request"],
      ["POST", `${path}/text`, ask({ digest: 1 }), 400, "bad_request"],
      ["POST", `${path}/text`, ask({ topK: 1 }), 400, "bad_request"],
      ["POST", `${path}/text`, ask({ text: long }), 413, "prompt_too_long"],
      ["POST", `${path}/text`, ask({ text: long.repeat(8) }), 413, "body_too_large"],
      ["POST", `${path}/text`, ask({ tokens: 0 }), 422, "bad_tokens"],
      ["POST", `${path}/text`, ask({ tokens: 193 }), 422, "bad_tokens"],
      ["POST", `${path}/text`, ask({ text: "the xylophone" }), 422, "unknown_word"],
      ["POST", `${path}/text`, ask({ text: "the cat</s>" }), 422, "unknown_word"],
      ["POST", `${path}/text`, ask({ at: length - 1 }), 409, "wrong_position"],
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
    await assert.rejects(request(`${session.url}/text`, init), { status: 413, code: "body_too_large" });
    const stored = await request(session.url);
    assert.deepEqual([stored.length, stored.tokens, stored.left, stored.busy], [length, 16, 0, false]);
    assert.ok(stored.text.startsWith(SENTENCE + BEGINNING));
    assert.equal((await request(`${session.url}?from=8`)).text, stored.text.slice(8));
  });

  test("a text is continued by text, and its words have the tokens of one text", async () => {
    const session = await open();
    await answerOf(session, { text: "The CAT sat on", tokens: 1 });
    const { text: first } = await request(session.url);
    await answerOf(session, { text: " mat because it was", tokens: 3 });
    const { text, tokens } = await request(session.url);
    const expected = await alone([{ text: `${first} mat because it was`, tokens: 3 }]);
    assert.deepEqual([text, tokens], [expected.text, expected.ids.length]);
  });

  test("an answer ends where the conversation is full, and a text for which there is no room is rejected", async () => {
    const session = await open();
    const text = SENTENCE.repeat(23) + BEGINNING;
    const { answer, tokens, reason } = await answerOf(session, { text, tokens: 10 });
    assert.deepEqual([answer, tokens, reason], [1, 192, "full"]);
    await assert.rejects(answerOf(session, { text: "", tokens: 1 }), { status: 422, code: "context_full" });
    const other = await open();
    await assert.rejects(answerOf(other, { text: SENTENCE.repeat(24), tokens: 1 }), { code: "context_full" });
    assert.equal((await request(other.url)).length, 0);
  });

  test("runs one answer of a conversation, and MAX_ACTIVE of an isolate, at a time", async () => {
    const [first, second, third] = [await open(), await open(), await open()];
    const one = { text: SENTENCE, tokens: 1 };
    const answers = [answerOf(first, long), answerOf(second, long)];
    await waitUntil(async () => (await inspect(first)).active === 2);
    await assert.rejects(answerOf(first, one), { status: 409, code: "session_busy", retryAfter: 1 });
    await assert.rejects(request(first.url, { method: "DELETE" }), { status: 409, code: "session_busy" });
    await assert.rejects(answerOf(third, one), { status: 429, code: "too_busy", retryAfter: 1 });
    assert.equal((await request(first.url)).busy, true);
    await Promise.all(answers);
    await answerOf(third, one);
  });

  test("an object that was reset restores its pages instead of computing them again, with the same bits", async () => {
    const session = await open();
    const turns = [
      { ...long, tokens: 50 },
      { ...long, text: "", tokens: 45 },
      { ...long, text: "", tokens: 192 },
      { ...long, text: "", tokens: 192 },
      { ...long, text: ` ${SENTENCE.repeat(3)}${BEGINNING}`, tokens: 10 },
      { text: BEGINNING, tokens: 1 },
    ];
    const expected = await alone(turns);
    assert.ok(expected.ids.length > 128, "more than a page");
    let before = 0;
    for (const [i, turn] of turns.entries()) {
      const got = await answerOf(session, turn);
      await expectAnswer(got, expected, i);
      const { held, read } = await inspect(session);
      // The last token is read with the next text; a text that the model has ended was read to its end, where it ends again.
      assert.deepEqual([held, read], [got.tokens - (got.reason === "stop" ? 0 : 1), Math.max(1, held - before)]);
      before = held;
      await abort(session);
    }
  });

  test("answers that are interrupted by resets are continued, with all text once and the same bits", async () => {
    const session = await open();
    const expected = await alone([long]);
    const parts = [];
    const cuts = [50, 55, 200];
    let { text } = long;
    const options = { ...long, digest: true, onDone: (data) => parts.push(data) };
    for await (const piece of generate(session, long.text, long.tokens, options)) {
      assert.equal(piece.at, text.length);
      text += piece.text;
      if (!(text.length >= cuts[0])) continue;
      cuts.shift();
      await abort(session);
    }
    assert.deepEqual(cuts, []);
    assert.equal(text, expected.text);
    assert.equal(parts.length, 1); // that of the last part: the others were not completed
    for (const { answer, tokens, digest } of parts) {
      assert.equal(tokens, expected.ids.length);
      assert.equal(digest, await expected.digest(tokens - answer, tokens));
    }
  });

  test("a client that disconnects stops its answer, and the text computed before is kept", async () => {
    const session = await open();
    const leave = new AbortController();
    await assert.rejects(async () => {
      for await (const { at } of generate(session, long.text, long.tokens, { ...long, signal: leave.signal }))
        if (at > 100) leave.abort();
    });
    await waitUntil(async () => !(await request(session.url)).busy);
    const { text, tokens, left } = await request(session.url);
    const whole = await alone([long]);
    const { begin, end } = whole.answers[0];
    assert.ok(tokens > begin + 10 && tokens < end, `${tokens}`);
    assert.ok(left > 0 && left === 192 - tokens, `${left}`);
    const turns = [
      { ...long, tokens: tokens - begin },
      { ...long, text: "", tokens: 10 },
    ];
    const expected = await alone(turns);
    assert.equal(text, expected.text.slice(0, text.length));
    await expectAnswer(await answerOf(session, turns[1]), expected);
  });

  test("a text whose client disconnects while it is read is not added to the conversation", async () => {
    const session = await open();
    const first = { text: SENTENCE, tokens: 5 };
    session.length = (await answerOf(session, first)).length;
    const { read } = await inspect(session);
    const leave = new AbortController();
    const left = generate(session, SENTENCE.repeat(20), 1, { signal: leave.signal }).next();
    await Promise.all([
      assert.rejects(left),
      waitUntil(async () => (await inspect(session)).read > read + 10).then(() => leave.abort()),
    ]);
    await waitUntil(async () => !(await request(session.url)).busy);
    assert.equal((await request(session.url)).length, session.length);
    const second = { text: BEGINNING, tokens: 20 };
    await expectAnswer(await answerOf(session, second), await alone([first, second]));
  });

  test("conversations that do not fit in memory evict each other, with the same bits", async () => {
    const sessions = await Promise.all(Array.from({ length: 9 }, open));
    const turns = sessions.map((_, seed) =>
      Array.from({ length: 3 }, () => ({ text: ` ${SENTENCE}${BEGINNING}`, tokens: 10, temperature: 1, seed })),
    );
    const expected = await Promise.all(turns.map(alone));
    let most = 0;
    for (const turn of [0, 1, 2])
      for (const [i, session] of sessions.entries()) {
        await expectAnswer(await answerOf(session, turns[i][turn]), expected[i], turn);
        const { live, memoryBytes } = await inspect(session);
        most = Math.max(most, live);
        assert.ok(memoryBytes <= MEMORY_MIB * 2 ** 20, `${memoryBytes} bytes`);
      }
    assert.ok(most >= 3 && most < sessions.length, `${most} live at most`);
  });

  test("the memory of idle conversations is released", async () => {
    const session = await open();
    await answerOf(session, { text: SENTENCE, tokens: 1 });
    assert.ok((await inspect(session)).live > 0);
    await waitUntil(async () => (await inspect(session)).live === 0);
  });

  test("conversations continue after the server is killed, with the same bits", async () => {
    const sessions = [await open(), await open()];
    const turns = sessions.map((_, i) => [
      { ...long, tokens: 30 + i },
      { ...long, text: "", tokens: 40 },
    ]);
    const expected = await Promise.all(turns.map(alone));
    const pass = async (turn) => {
      for (const [i, session] of sessions.entries())
        await expectAnswer(await answerOf(session, turns[i][turn]), expected[i], turn);
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
      await answerOf(session, { text: SENTENCE, tokens: 1 });
      await waitUntil(async () => (await fetch(session.url)).status === 404);
    } finally {
      server.stop();
    }
  });
});

async function waitUntil(holds) {
  for (const end = Date.now() + 15_000; !(await holds()); await wait(5)) assert.ok(Date.now() < end, `${holds}`);
}
