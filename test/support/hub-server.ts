// A hub on this machine: lists of files, redirects to another host for their bytes, and what can go wrong on the way.

import { createHash } from "node:crypto";
import { createServer, type IncomingMessage, type Server, type ServerResponse } from "node:http";
import type { AddressInfo } from "node:net";

/** A request as it came. */
export interface HubRequest {
  readonly host: "hub" | "files";
  readonly path: string;
  readonly range: string | undefined;
  readonly authorization: string | undefined;
}

/** How the hub behaves. */
interface HubOptions {
  /** Models by owner/name: their files by path. */
  readonly models: Readonly<Record<string, Readonly<Record<string, Uint8Array>>>>;
  /** The token without which it answers 401. */
  readonly token?: string;
  /** The first answer with more than so many bytes of a file breaks off behind them. */
  readonly dropAfter?: number;
}

export interface LocalHub extends AsyncDisposable {
  readonly url: string;
  readonly requests: readonly HubRequest[];
}

const etagOf = (bytes: Uint8Array) => `"${createHash("sha256").update(bytes).digest("hex")}"`;

const listen = (server: Server) =>
  new Promise<string>((resolve) =>
    server.listen(0, "127.0.0.1", () => resolve(`http://127.0.0.1:${(server.address() as AddressInfo).port}`)),
  );

const close = (server: Server) =>
  new Promise<void>((resolve) => {
    server.closeAllConnections();
    server.close(() => resolve());
  });

/** Starts a hub. */
export async function startHub({ models, token, dropAfter }: HubOptions): Promise<LocalHub> {
  const requests: HubRequest[] = [];
  let isDropped = dropAfter === undefined;
  const note = (host: HubRequest["host"], { url = "/", headers }: IncomingMessage) => {
    requests.push({ host, path: url, range: headers.range, authorization: headers.authorization });
    return decodeURIComponent(url.split("?")[0] as string);
  };
  const answerRange = (request: IncomingMessage, response: ServerResponse, bytes: Uint8Array | undefined) => {
    if (!bytes) return void response.writeHead(404).end("not found");
    const [, begin = "0", last = `${bytes.length - 1}`] = /^bytes=(\d+)-(\d+)$/.exec(request.headers.range ?? "") ?? [];
    const end = Math.min(Number(last) + 1, bytes.length);
    const part = bytes.subarray(Number(begin), end);
    const range = `bytes ${begin}-${end - 1}/${bytes.length}`;
    response.writeHead(206, { "Content-Range": range, "Content-Length": part.length, ETag: etagOf(bytes) });
    if (isDropped || part.length <= (dropAfter as number)) return void response.end(part);
    isDropped = true;
    response.write(part.subarray(0, dropAfter), () => response.destroy());
  };
  const files = createServer((request, response) => {
    const [, owner, name, ...path] = note("files", request).split("/");
    answerRange(request, response, models[`${owner}/${name}`]?.[path.join("/")]);
  });
  const filesUrl = await listen(files);
  const hub = createServer((request, response) => {
    const path = note("hub", request);
    if (token !== undefined && request.headers.authorization !== `Bearer ${token}`)
      return void response.writeHead(401).end("no");
    const [, listed] = /^\/api\/models\/([^/]+\/[^/]+)\/tree\/main$/.exec(path) ?? [];
    if (listed !== undefined) {
      const all = models[listed];
      if (!all) return void response.writeHead(404).end("{}");
      const list = Object.entries(all).map(([path, { length }]) => ({ type: "file", path, size: length }));
      const body = JSON.stringify(list);
      return void response.writeHead(200, { "Content-Type": "application/json", ETag: '"list"' }).end(body);
    }
    const [, model, file = ""] = /^\/([^/]+\/[^/]+)\/resolve\/main\/(.*)$/.exec(path) ?? [];
    const bytes = model === undefined ? undefined : models[model]?.[file];
    if (!bytes) return void response.writeHead(404).end("not found");
    // Hubs keep large files with another host.
    if (bytes.length > 2 ** 16) return void response.writeHead(302, { Location: `${filesUrl}/${model}/${file}` }).end();
    answerRange(request, response, bytes);
  });
  const url = await listen(hub);
  return {
    url,
    requests,
    async [Symbol.asyncDispose]() {
      await Promise.all([close(hub), close(files)]);
    },
  };
}
