// Stories with Deno.serve: GET /?prompt=…&tokens=…&temperature=…&seed=… streams the text that follows the prompt.

import { loadKernels } from "headwise";
import { loadModel, models } from "headwise/models";
import { generateText, loadTokenizer } from "headwise/text";

// Deterministic: the same bits on every engine, so that servers on different runtimes tell the same stories.
const kernels = await loadKernels({ deterministic: true, models });
const folder = new URL("../../model/stories/", import.meta.url);
const [model, tokenizer] = await Promise.all([loadModel(kernels, folder), loadTokenizer(folder)]);

Deno.serve({ hostname: "127.0.0.1", port: Number(Deno.args[0] ?? 8000) }, async ({ url }) => {
  const query = new URL(url).searchParams;
  const number = (name: string) => (query.has(name) ? Number(query.get(name)) : undefined);
  const options = { maxTokens: number("tokens"), temperature: number("temperature"), seed: number("seed") };
  // Slices shorter than a token: each piece is sent at once, and other requests come in between.
  const pieces = generateText(model, tokenizer, query.get("prompt") ?? "", { ...options, sliceMs: 0.1 });
  try {
    const first = await pieces.next(); // throws if the request is wrong
    const text = async function* () {
      try {
        for (let next = first; !next.done; next = await pieces.next()) yield next.value;
      } finally {
        await pieces.return(undefined as never); // also where the client is gone: it releases the session
      }
    };
    return new Response(ReadableStream.from(text()).pipeThrough(new TextEncoderStream()));
  } catch (error) {
    return new Response(`${(error as Error).message}\n`, { status: 400 });
  }
});
