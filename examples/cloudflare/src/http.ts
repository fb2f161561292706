/** An error that `respond` returns to the client as JSON. */
export class HttpError extends Error {
  readonly status: number;
  /** For programs; the message is for people. */
  readonly code: string;
  readonly headers: Readonly<Record<string, string>>;
  constructor(status: number, code: string, message: string, headers: Readonly<Record<string, string>> = {}) {
    super(message);
    this.status = status;
    this.code = code;
    this.headers = headers;
  }
}

export function json(body: unknown, status = 200, headers: Readonly<Record<string, string>> = {}): Response {
  return Response.json(body, { status, headers: { "cache-control": "no-store", ...headers } });
}

/** The response of `run`, or one with its error. */
export async function respond(run: () => Response | Promise<Response>): Promise<Response> {
  try {
    return await run();
  } catch (error) {
    if (error instanceof HttpError) {
      const { status, code, message, headers } = error;
      return json({ error: { code, message } }, status, headers);
    }
    console.error(error);
    return json({ error: { code: "internal", message: "internal error, see the log" } }, 500);
  }
}

/** A body of at most `most` bytes, as JSON. */
export async function readJson(request: Request, most: number): Promise<unknown> {
  const tooLarge = () => new HttpError(413, "body_too_large", `the body may have ${most} bytes`);
  if (Number(request.headers.get("content-length")) > most) throw tooLarge();
  const chunks: Uint8Array[] = [];
  let size = 0;
  for await (const chunk of request.body ?? []) {
    size += chunk.length;
    if (size > most) throw tooLarge();
    chunks.push(chunk);
  }
  try {
    return JSON.parse(await new Blob(chunks).text());
  } catch {
    throw new HttpError(400, "bad_json", "the body is not JSON");
  }
}

/** One server-sent event. */
export function event(name: string, data: unknown, id?: number): string {
  return `event: ${name}\n${id === undefined ? "" : `id: ${id}\n`}data: ${JSON.stringify(data)}\n\n`;
}

/**
 * A response that streams `chunks` as fast as the client reads. `finish` is called once, at the end or when the client
 * disconnects, but not when the object is reset.
 */
export function eventStream(chunks: AsyncGenerator<string, void>, finish: () => Promise<void>): Response {
  const encoder = new TextEncoder();
  const body = new ReadableStream<Uint8Array>({
    async pull(controller) {
      const { value, done } = await chunks.next();
      if (!done) return controller.enqueue(encoder.encode(value));
      await finish();
      controller.close();
    },
    async cancel() {
      await chunks.return();
      await finish();
    },
  });
  return new Response(body, { headers: { "content-type": "text/event-stream", "cache-control": "no-store" } });
}
