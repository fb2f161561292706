// The model with Deno.serve: GET /?prompt=…&tokens=… streams the continuation, one line of JSON for each character.

import { loadKernels } from "headwise";
import { createSession, generate, loadModel, models } from "headwise/models";

const MOST_CHARACTERS = 96; // of prompt and continuation: the length of the texts that the model was trained on

// Deterministic: the same bits on every engine, so that servers on different runtimes give the same answers.
const kernels = await loadKernels({ deterministic: true, models });
const folder = new URL("../../model/", import.meta.url);
const model = await loadModel(kernels, folder);
const { vocabulary } = JSON.parse(await Deno.readTextFile(new URL("config.json", folder))) as { vocabulary: string };

async function* lines(ids: readonly number[], maxTokens: number) {
  using session = createSession(model, { maxSeqLen: ids.length + maxTokens });
  for await (const { id, logprob } of generate(session, ids, { maxTokens })) {
    yield `${JSON.stringify({ character: vocabulary[id], logprob })}\n`;
    await new Promise((resolve) => setTimeout(resolve)); // sends the line and lets other requests in
  }
}

Deno.serve({ hostname: "127.0.0.1", port: Number(Deno.args[0] ?? 8000) }, ({ url }) => {
  const query = new URL(url).searchParams;
  const ids = Array.from(query.get("prompt") ?? "", (character) => vocabulary.indexOf(character)); // a token is a character
  const tokens = Number(query.get("tokens") ?? 16);
  const refuse = (rule: string) => new Response(`${rule}\n`, { status: 400 });
  if (ids.length === 0 || ids.includes(-1)) return refuse("prompt expected printable ASCII characters");
  if (!(Number.isInteger(tokens) && tokens > 0 && ids.length + tokens <= MOST_CHARACTERS))
    return refuse(`tokens expected 1 to ${MOST_CHARACTERS - ids.length} after this prompt`);
  const body = ReadableStream.from(lines(ids, tokens)).pipeThrough(new TextEncoderStream());
  return new Response(body, { headers: { "content-type": "application/x-ndjson" } });
});
