// A client of the sessions, for browsers and Node. It retries after temporary errors, and when a stream breaks off it reads
// the stored text and continues from there, so that every token is yielded exactly once and in order.

/**
 * Temporary errors: an answer whose client has disconnected will end, other answers will end, and an unreadable response
 * was interrupted.
 */
const TEMPORARY = new Set(["session_busy", "too_busy", "unreadable"]);

/** Milliseconds before a request is retried, doubled each time. */
const FIRST_PAUSE_MS = 100;
const LAST_PAUSE_MS = 3200;

/** An error response with its `status` and `code`. */
export class Refusal extends Error {
  constructor(status, { code, message }) {
    super(message);
    this.status = status;
    this.code = code;
  }
}

/** Returns the JSON of a response, or with `stream` the response. Throws Refusal. */
export async function request(url, { stream = false, fetch = globalThis.fetch, ...init } = {}) {
  const response = await fetch(url, init);
  if (response.ok) return stream ? response : response.status === 204 ? undefined : response.json();
  const body = await response.json().catch(() => undefined);
  const refusal = new Refusal(response.status, body?.error ?? { code: "unreadable", message: response.statusText });
  refusal.retryAfter = Number(response.headers.get("retry-after") ?? 0);
  throw refusal;
}

/** Opens a session; `length` is the number of tokens that the client has of it. */
export async function openSession(base) {
  const { id } = await request(`${base}/v1/sessions`, { method: "POST" });
  return { url: `${base}/v1/sessions/${id}`, length: 0 };
}

/** The events of a stream, as { event, data }. */
export async function* readEvents(response) {
  const reader = response.body.pipeThrough(new TextDecoderStream()).getReader();
  let rest = "";
  for (;;) {
    const { value, done } = await reader.read();
    if (done) return;
    const blocks = (rest + value).split("\n\n");
    rest = blocks.pop();
    for (const block of blocks) {
      const fields = new Map(block.split("\n").map((line) => line.split(/: (.*)/s).slice(0, 2)));
      if (fields.has("data")) yield { event: fields.get("event"), data: JSON.parse(fields.get("data")) };
    }
  }
}

/**
 * Adds `text` to a session and yields { index, text } for each of the `count` tokens after it. Waits up to `patience`
 * milliseconds without a token. `onDone` is called with the last event of each completed stream, `onRetry` with the error
 * before each retry; `fetch` replaces the global function.
 */
export async function* generate(
  session,
  text,
  count,
  { digest = false, patience = 30_000, signal, onDone = () => {}, onRetry = () => {}, fetch } = {},
) {
  // An answer that this client has not read to its end may have been continued.
  if (session.left) session.length = (await request(session.url, { signal, fetch })).length;
  session.left = true;
  const begin = session.length + text.length;
  const end = begin + count;
  let next = begin;
  let certain = true;
  let tried = false;
  let waited = 0;
  let pause = FIRST_PAUSE_MS;
  while (next < end) {
    try {
      if (!certain) {
        const stored = await request(`${session.url}?from=${next}`, { signal, fetch });
        certain = true;
        if (stored.length >= begin) {
          for (const character of stored.text.slice(0, end - next)) {
            waited = 0;
            yield { index: next++, text: character };
          }
          session.length = next;
          continue;
        }
      }
      const accepted = session.length >= begin;
      const body = { text: accepted ? "" : text, tokens: end - next, at: session.length, digest };
      const init = { method: "POST", body: JSON.stringify(body), signal, fetch, stream: true };
      const response = await request(`${session.url}/tokens`, init);
      certain = false;
      for await (const { event, data } of readEvents(response)) {
        if (event === "error") throw new Refusal(500, data);
        if (event === "done") onDone(data);
        if (event !== "token") continue;
        if (data.index !== next) throw new Error(`token ${next} expected, got ${data.index}`);
        session.length = ++next;
        waited = 0;
        pause = FIRST_PAUSE_MS;
        yield data;
      }
    } catch (error) {
      // A failed or lost connection is a TypeError in every runtime. Its request may still arrive, even after the next one.
      const late = tried && error.code === "wrong_position";
      const temporary = late || TEMPORARY.has(error.code) || error.status >= 500 || error instanceof TypeError;
      if (!temporary || signal?.aborted || waited >= patience) throw error;
      certain &&= error.status < 500 && !late;
      tried = true;
      onRetry(error);
      const ms = Math.max(pause, 1000 * (error.retryAfter ?? 0)) * (0.5 + Math.random());
      pause = Math.min(2 * pause, LAST_PAUSE_MS);
      waited += ms;
      await new Promise((resolve) => setTimeout(resolve, ms));
    }
  }
  session.left = false;
}
