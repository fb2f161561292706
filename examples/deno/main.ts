// The model with Deno.serve: GET /?prompt=…&tokens=… streams the continuation, one line of JSON for each character.

import { loadKernels } from "headwise";
import { createDecoder } from "../decoder/decoder.ts";

const MOST_CHARACTERS = 96; // of prompt and continuation: the length of the texts that the model was trained on

// Deterministic: the same bits on every engine, so that servers on different runtimes give the same answers.
const kernels = await loadKernels({ deterministic: true });
const model = new URL("../../model/", import.meta.url);
const decoder = createDecoder(
  kernels,
  await Deno.readFile(new URL("model.safetensors", model)),
  await Deno.readTextFile(new URL("config.json", model)),
);

async function* lines(prompt: string, tokens: number) {
  for (const choice of decoder.continue(prompt, tokens)) {
    yield `${JSON.stringify(choice)}\n`;
    await new Promise((resolve) => setTimeout(resolve)); // sends the line and lets other requests in
  }
}

Deno.serve({ hostname: "127.0.0.1", port: Number(Deno.args[0] ?? 8000) }, ({ url }) => {
  const query = new URL(url).searchParams;
  const prompt = query.get("prompt") ?? "";
  const tokens = Number(query.get("tokens") ?? 16);
  const refuse = (rule: string) => new Response(`${rule}\n`, { status: 400 });
  if (!decoder.knows(prompt)) return refuse("prompt expected printable ASCII characters");
  if (!(Number.isInteger(tokens) && tokens > 0 && prompt.length + tokens <= MOST_CHARACTERS))
    return refuse(`tokens expected 1 to ${MOST_CHARACTERS - prompt.length} after this prompt`);
  const body = ReadableStream.from(lines(prompt, tokens)).pipeThrough(new TextEncoderStream());
  return new Response(body, { headers: { "content-type": "application/x-ndjson" } });
});
