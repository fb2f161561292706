// Continues texts: POST / { "prompt": "the cat sat", "tokens": 20 } streams what follows; requests at the same time share passes.

import { createServer, type ServerResponse } from "node:http";
import type { AddressInfo } from "node:net";
import { openModel } from "headwise";

const model = await openModel(new URL("../../model/stories/", import.meta.url));
const running = new Set<ServerResponse>();
const server = createServer(async (request, response) => {
  const abort = new AbortController();
  response.on("close", () => {
    abort.abort(); // a client that goes away ends its answer
    running.delete(response);
    endConnections();
  });
  try {
    if (running.add(response).size > 32) return void response.writeHead(503).end("too many answers at once\n");
    let body = "";
    for await (const piece of request.setEncoding("utf8")) if (body.length <= 4096) body += piece;
    if (body.length > 4096) throw new RangeError("the request expected at most 4096 characters");
    const { prompt, tokens: maxTokens, temperature, seed } = JSON.parse(body);
    for await (const piece of model.text(prompt, { maxTokens, temperature, seed, signal: abort.signal }))
      response.write(piece);
    response.end();
  } catch (error) {
    if (response.headersSent) return void response.destroy(); // so that the client sees that the answer is incomplete
    response.writeHead(400).end(`${(error as Error).message}\n`);
  }
});
server.listen(Number(process.argv[2] ?? 8000), "127.0.0.1", () =>
  console.log(`Listening on http://127.0.0.1:${(server.address() as AddressInfo).port}/`),
);

// The first signal waits for the answers, and then for no connection; a second one ends the process at once.
const endConnections = () => server.listening || running.size > 0 || server.closeAllConnections();
for (const signal of ["SIGINT", "SIGTERM"] as const)
  process.once(signal, () => server.close(() => model.release()) && endConnections());
