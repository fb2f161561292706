// One engine with threads for all requests; those that run at the same time share each step.
//   GET  /health    -> the engine, and the number of running conversations
//   POST /generate  { "prompt": "the cat sat", "tokens": 20 } -> one line of JSON for each token, as soon as it is computed

import { createServer, type IncomingMessage, type ServerResponse } from "node:http";
import type { AddressInfo } from "node:net";
import { type GeneratedToken, loadModel, models } from "headwise/models";
import { createTextStream, loadTokenizer } from "headwise/text";
import { loadKernels } from "headwise/threads";
import { createBatcher } from "./batcher.ts";

const MOST_IN_BODY = 4096; // characters
const TOGETHER = 32; // conversations in one step

const kernels = await loadKernels({ threads: "auto", models });
const folder = new URL("../../model/stories/", import.meta.url);
const [model, tokenizer] = await Promise.all([loadModel(kernels, folder), loadTokenizer(folder)]);
const { maxSeqLen = 4096 } = model; // tokens of prompt and continuation
const batcher = createBatcher(model, TOGETHER);

class Refusal extends Error {
  readonly status: number;
  constructor(status: number, message: string) {
    super(message);
    this.status = status;
  }
}

let answering = 0;

const server = createServer(async (request, response) => {
  answering++;
  response.on("close", () => {
    answering--;
    endConnections();
  });
  try {
    await answer(request, response);
  } catch (error) {
    if (response.headersSent) return void response.destroy(); // so that the client sees that the answer is incomplete
    const status = error instanceof Refusal ? error.status : 500;
    if (status === 500) console.error(error);
    response.writeHead(status, { "content-type": "text/plain", ...(status === 503 && { "retry-after": "1" }) });
    response.end(`${error instanceof Refusal ? error.message : "internal error"}\n`);
  }
});

async function answer(request: IncomingMessage, response: ServerResponse): Promise<void> {
  const route = `${request.method} ${request.url}`;
  if (route === "GET /health") {
    const { build, threads } = kernels;
    response.setHeader("content-type", "application/json");
    response.end(JSON.stringify({ build, threads, ...batcher.counts() }));
  } else if (route === "POST /generate") {
    const { ids, maxTokens } = expectJob(await readBody(request));
    if (!server.listening) throw new Refusal(503, "the server is shutting down");
    if (batcher.full()) throw new Refusal(503, "too many conversations at once");
    response.setHeader("content-type", "application/x-ndjson");
    const text = createTextStream(tokenizer, ids);
    const send = ({ id, logprob }: GeneratedToken) => {
      if (!response.closed) response.write(`${JSON.stringify({ text: text.push(id), logprob })}\n`);
    };
    await batcher.generate({ ids, maxTokens, stopIds: tokenizer.endIds, gone: () => response.closed, send });
    const rest = text.end();
    response.end(rest === "" ? "" : `${JSON.stringify({ text: rest })}\n`);
  } else throw new Refusal(404, "the routes are GET /health and POST /generate");
}

async function readBody(request: IncomingMessage): Promise<string> {
  let body = "";
  for await (const chunk of request.setEncoding("utf8")) if (body.length <= MOST_IN_BODY) body += chunk;
  if (body.length > MOST_IN_BODY) throw new Refusal(413, `the request expected at most ${MOST_IN_BODY} characters`);
  return body;
}

function expectJob(body: string): { readonly ids: readonly number[]; readonly maxTokens: number } {
  let parsed: { prompt?: unknown; tokens?: unknown } | null;
  try {
    parsed = JSON.parse(body);
  } catch {
    throw new Refusal(400, "the request expected JSON");
  }
  const { prompt, tokens } = parsed ?? {};
  if (typeof prompt !== "string") throw new Refusal(400, "prompt expected text");
  const ids = tokenizer.encode(prompt);
  const room = maxSeqLen - ids.length;
  if (room < 1) throw new Refusal(400, `prompt expected fewer than ${maxSeqLen} tokens, got ${ids.length}`);
  if (typeof tokens !== "number" || !Number.isInteger(tokens) || tokens < 1 || tokens > room)
    throw new Refusal(400, `tokens expected 1 to ${room} after this prompt`);
  return { ids, maxTokens: tokens };
}

server.listen(Number(process.argv[2] ?? 8000), "127.0.0.1", () => {
  const { build, threads } = kernels;
  console.log(`Listening on http://127.0.0.1:${(server.address() as AddressInfo).port}/`);
  console.log(`build ${build}, ${threads.used} threads: ${threads.reason}`);
});

/** During shutdown: connections outlive their answers, and some browsers open them before any request. */
function endConnections(): void {
  if (!server.listening && answering === 0) server.closeAllConnections();
}

// The first signal waits for running answers, a second one ends the process at once.
for (const signal of ["SIGINT", "SIGTERM"] as const)
  process.once(signal, () => {
    console.log("ending: no new conversations");
    server.close(() => {
      kernels.release();
      console.log("ended");
    });
    endConnections();
  });
