// A static server of build/site, with a strict policy, ranges of files, and on request the headers that threads need.

import { readFile } from "node:fs/promises";
import { createServer, type Server } from "node:http";
import type { AddressInfo } from "node:net";
import { extname } from "node:path";
import { text } from "node:stream/consumers";

const FOLDER = new URL("../build/site/", import.meta.url);

const TYPES: Readonly<Record<string, string>> = {
  ".html": "text/html; charset=utf-8",
  ".css": "text/css; charset=utf-8",
  ".js": "text/javascript; charset=utf-8",
  ".json": "application/json",
  ".svg": "image/svg+xml",
  ".webmanifest": "application/manifest+json",
};

/** Scripts, styles and workers of the site itself, and models from anywhere. `blob:` workers are those of threads. */
export const POLICY: string = [
  "default-src 'none'",
  "script-src 'self' 'wasm-unsafe-eval'",
  "style-src 'self'",
  "img-src 'self' data: blob:",
  "manifest-src 'self'",
  "connect-src *",
  "worker-src 'self' blob:",
  "base-uri 'none'",
  "form-action 'none'",
  "frame-ancestors 'none'",
].join("; ");

/** What threads need. */
export const ISOLATION: Readonly<Record<string, string>> = {
  "Cross-Origin-Opener-Policy": "same-origin",
  "Cross-Origin-Embedder-Policy": "require-corp",
};

export interface ServeOptions {
  /** Whether the headers are sent that threads need. */
  readonly isolated?: boolean;
  /** The folder in which the site lies: "/" or such as "/some/folder/". */
  readonly prefix?: string;
  /** For tests: a script that every page runs first, and what is called with each report of a violation of the policy. */
  readonly first?: string;
  readonly onViolation?: (report: string) => void;
}

const FIRST = "/test/first.js";
const VIOLATIONS = "/test/violations";

/** Serves the site on a port, 0 for any. */
export async function serveSite(
  port = 0,
  { isolated = false, prefix = "/", first, onViolation }: ServeOptions = {},
): Promise<{ readonly url: string; readonly server: Server }> {
  const policy = onViolation ? `${POLICY}; report-uri ${VIOLATIONS}` : POLICY;
  const server = createServer(async (request, response) => {
    try {
      const { pathname } = new URL(request.url as string, "http://localhost");
      if (pathname === VIOLATIONS) {
        onViolation?.(await text(request));
        return void response.writeHead(204).end();
      }
      if (pathname === FIRST) return void response.writeHead(200, { "Content-Type": TYPES[".js"] }).end(first);
      if (!pathname.startsWith(prefix)) throw new Error("outside of the site");
      const file = new URL(`./${pathname.slice(prefix.length) || "index.html"}`, FOLDER);
      if (!file.href.startsWith(FOLDER.href)) throw new Error("outside of the folder");
      let body = await readFile(file);
      if (first && extname(file.pathname) === ".html")
        body = Buffer.from(String(body).replace("<head>", `<head><script src="${FIRST}"></script>`));
      const headers: Record<string, string> = {
        "Content-Type": TYPES[extname(file.pathname)] ?? "application/octet-stream",
        "Content-Security-Policy": policy,
        "X-Content-Type-Options": "nosniff",
        ...(isolated && ISOLATION),
      };
      const range = /^bytes=(\d+)-(\d+)$/.exec(request.headers.range ?? "");
      if (!range) return void response.writeHead(200, headers).end(body);
      const [begin, end] = [Number(range[1]), Number(range[2])];
      const part = body.subarray(begin, end + 1);
      headers["Content-Range"] = `bytes ${begin}-${begin + part.length - 1}/${body.length}`;
      response.writeHead(206, headers).end(part);
    } catch {
      response.writeHead(404, { "Content-Type": "text/plain" }).end("not found\n");
    }
  });
  await new Promise<void>((resolve) => server.listen(port, "127.0.0.1", resolve));
  return { url: `http://127.0.0.1:${(server.address() as AddressInfo).port}${prefix}`, server };
}
