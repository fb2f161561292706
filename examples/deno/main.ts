// Stories with Deno.serve: GET /?prompt=…&tokens=…&temperature=…&seed=… streams the text that follows the prompt.

import { openModel } from "headwise";

// Deterministic: the same bits on every engine, so that servers on different runtimes tell the same stories.
const model = await openModel(new URL("../../model/stories/", import.meta.url), { deterministic: true });

Deno.serve({ hostname: "127.0.0.1", port: Number(Deno.args[0] ?? 8000) }, async ({ url }) => {
  const query = new URL(url).searchParams;
  const number = (name: string) => (query.has(name) ? Number(query.get(name)) : undefined);
  const options = { maxTokens: number("tokens"), temperature: number("temperature"), seed: number("seed") };
  try {
    const answer = model.text(query.get("prompt") ?? "", options);
    await answer[Symbol.asyncIterator]().next(); // throws if the prompt is too long; each loop has all pieces
    return new Response(ReadableStream.from(answer).pipeThrough(new TextEncoderStream()));
  } catch (error) {
    return new Response(`${(error as Error).message}\n`, { status: 400 });
  }
});
