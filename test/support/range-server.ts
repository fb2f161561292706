import { createServer, type Server } from "node:http";
import type { AddressInfo } from "node:net";

/** Serves bytes by range, from memory or a file. */
export function serve(size: number, read: (begin: number, end: number) => Promise<Uint8Array>): Promise<Server> {
  const server = createServer(async (request, response) => {
    const [, begin, last] = /^bytes=(\d+)-(\d+)$/.exec(request.headers.range ?? "") ?? [];
    if (begin === undefined) return void response.writeHead(200, { "Content-Length": size }).end();
    const end = Math.min(Number(last) + 1, size);
    const bytes = await read(Number(begin), end);
    response.writeHead(206, { "Content-Range": `bytes ${begin}-${end - 1}/${size}`, ETag: '"1"' }).end(bytes);
  });
  return new Promise((resolve) => server.listen(0, "127.0.0.1", () => resolve(server)));
}

export const urlOf = (server: Server): string => `http://127.0.0.1:${(server.address() as AddressInfo).port}/model`;

/** Serves files of a folder in memory by range; a name without a file is not found. */
export function serveFolder(find: (name: string, query: string) => Uint8Array | undefined): Promise<Server> {
  const server = createServer((request, response) => {
    const [path = "/", query = ""] = (request.url ?? "/").split("?");
    const bytes = find(decodeURIComponent(path.slice(path.lastIndexOf("/") + 1)), query);
    if (!bytes) return void response.writeHead(404).end("not found");
    const [, begin = "0", last = "0"] = /^bytes=(\d+)-(\d+)$/.exec(request.headers.range ?? "") ?? [];
    const end = Math.min(Number(last) + 1, bytes.length);
    const range = `bytes ${begin}-${end - 1}/${bytes.length}`;
    response.writeHead(206, { "Content-Range": range, ETag: '"1"' }).end(bytes.subarray(Number(begin), end));
  });
  return new Promise((resolve) => server.listen(0, "127.0.0.1", () => resolve(server)));
}
