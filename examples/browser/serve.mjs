// A server for this folder: node serve.mjs [port] [--isolated], where --isolated sends the headers that threads need.

import { readFile } from "node:fs/promises";
import { createServer } from "node:http";
import { extname } from "node:path";
import { parseArgs } from "node:util";

const { values, positionals } = parseArgs({ options: { isolated: { type: "boolean" } }, allowPositionals: true });

function findPackage() {
  try {
    return new URL(".", import.meta.resolve("headwise/package.json"));
  } catch {
    console.error("headwise is not installed here: run npm install headwise");
    process.exit(1);
  }
}

/** Folders of the server, by prefix of the path. The package may be installed in a folder above this one. */
const FOLDERS = {
  "/node_modules/headwise/": findPackage(),
  "/": new URL(".", import.meta.url),
};
const TYPES = {
  ".html": "text/html; charset=utf-8",
  ".css": "text/css; charset=utf-8",
  ".js": "text/javascript; charset=utf-8",
  ".json": "application/json",
  ".wasm": "application/wasm",
};
const ISOLATION = { "Cross-Origin-Opener-Policy": "same-origin", "Cross-Origin-Embedder-Policy": "require-corp" };

const server = createServer(async (request, response) => {
  const { pathname } = new URL(request.url, "http://localhost");
  const [prefix, folder] = Object.entries(FOLDERS).find(([prefix]) => pathname.startsWith(prefix));
  const file = new URL(`./${pathname.slice(prefix.length) || "index.html"}`, folder);
  try {
    if (!file.href.startsWith(folder.href)) throw new Error("outside of the folder");
    const body = await readFile(file);
    const type = TYPES[extname(file.pathname)] ?? "application/octet-stream";
    response.writeHead(200, { "Content-Type": type, ...(values.isolated && ISOLATION) }).end(body);
  } catch {
    response.writeHead(404, { "Content-Type": "text/plain" }).end("not found\n");
  }
});
server.listen(Number(positionals[0] ?? 8000), "127.0.0.1", () => {
  console.log(`Listening on http://127.0.0.1:${server.address().port}/`);
});
