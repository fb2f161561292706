// A client of the sessions, for browsers and Node. It retries after temporary errors, and when a stream breaks off it reads
// the stored text and continues from there, so that all text is yielded exactly once and in order.

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

/** Opens a session; `length` is the number of characters that the client has of it. */
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
 * Adds `text` to a session and yields the answer of at most `tokens` tokens in pieces, { at, text } with their place in the whole
 * text. Waits up to `patience` milliseconds without a piece. `onDone` is called with the last event of each completed stream,
 * `onRetry` with the error before each retry; `fetch` replaces the global function.
 */
export async function* generate(
  session,
  text,
  tokens,
  { temperature, seed, digest, patience = 30_000, signal, onDone = () => {}, onRetry = () => {}, fetch } = {},
) {
  // An answer that this client has not read to its end may have been continued.
  if (session.isOpen) session.length = (await request(session.url, { signal, fetch })).length;
  session.isOpen = true;
  let next = session.length + text.length;
  let left = tokens;
  let [isAdded, isCertain, wasTried] = [false, true, false];
  let waited = 0;
  let pause = FIRST_PAUSE_MS;
  const take = (piece) => {
    if (piece.at !== next) throw new Error(`text from ${next} expected, got ${piece.at}`);
    isAdded = true;
    session.length = next += piece.text.length;
    waited = 0;
    pause = FIRST_PAUSE_MS;
    return piece;
  };
  while (left > 0) {
    try {
      if (!isCertain) {
        const stored = await request(`${session.url}?from=${next}`, { signal, fetch });
        isCertain = true;
        if (isAdded || stored.length > session.length) {
          yield take({ at: next, text: stored.text });
          left = stored.left;
          continue;
        }
      }
      const added = isAdded ? "" : text;
      const body = { text: added, tokens: left, at: session.length, temperature, seed, digest };
      const init = { method: "POST", body: JSON.stringify(body), signal, fetch, stream: true };
      const response = await request(`${session.url}/text`, init);
      [isCertain, wasTried] = [false, true];
      for await (const { event, data } of readEvents(response)) {
        if (event === "error") throw new Refusal(500, data);
        if (event === "text") yield take(data);
        if (event !== "done") continue;
        session.length = data.length;
        left = 0;
        onDone(data);
      }
    } catch (error) {
      // A failed or lost connection is a TypeError in every runtime. Its request may still arrive, even after the next one.
      const isLate = wasTried && error.code === "wrong_position";
      const isTemporary = isLate || TEMPORARY.has(error.code) || error.status >= 500 || error instanceof TypeError;
      if (!isTemporary || signal?.aborted || waited >= patience) throw error;
      isCertain &&= error.status < 500 && !isLate;
      wasTried = true;
      onRetry(error);
      const ms = Math.max(pause, 1000 * (error.retryAfter ?? 0)) * (0.5 + Math.random());
      pause = Math.min(2 * pause, LAST_PAUSE_MS);
      waited += ms;
      await new Promise((resolve) => setTimeout(resolve, ms));
    }
  }
  session.isOpen = false;
}
