// A server for this folder: node serve.mjs [port] [--isolated] [--folder PATH], where --isolated sends the headers that threads need,
// and --folder names another folder of pages.

import { createHash } from "node:crypto";
import { readFile, stat } from "node:fs/promises";
import { createServer } from "node:http";
import { extname, resolve } from "node:path";
import { pathToFileURL } from "node:url";
import { parseArgs } from "node:util";

const options = { isolated: { type: "boolean" }, folder: { type: "string", default: import.meta.dirname } };
const { values, positionals } = parseArgs({ options, allowPositionals: true });

const PACKAGES = ["headwise", "@huggingface/tokenizers", "@huggingface/jinja"];

function findPackage(name) {
  try {
    return new URL("..", import.meta.resolve(name)); // of a file in its folder dist
  } catch {
    console.error(`${name} is not installed here: run npm install ${PACKAGES.join(" ")}`);
    process.exit(1);
  }
}

/** Folders of the server, by prefix of the path. The packages may be installed in a folder above this one. */
const FOLDERS = {
  ...Object.fromEntries(PACKAGES.map((name) => [`/node_modules/${name}/`, findPackage(name)])),
  "/model/": new URL("../../model/", import.meta.url),
  "/": pathToFileURL(`${resolve(values.folder)}/`),
};
const TYPES = {
  ".html": "text/html; charset=utf-8",
  ".css": "text/css; charset=utf-8",
  ".js": "text/javascript; charset=utf-8",
  ".mjs": "text/javascript; charset=utf-8",
  ".json": "application/json",
};
const ISOLATION = { "Cross-Origin-Opener-Policy": "same-origin", "Cross-Origin-Embedder-Policy": "require-corp" };

/** Scripts, styles and workers of this server, and models from anywhere. An import map needs its hash. */
function policyOf(html) {
  const maps = html.matchAll(/<script type="importmap">([^<]*)<\/script>/g);
  const hashes = Array.from(maps, ([, map]) => `'sha256-${createHash("sha256").update(map).digest("base64")}'`);
  const scripts = ["script-src 'self' 'wasm-unsafe-eval'", ...hashes].join(" ");
  const workers = "worker-src 'self' blob:"; // blob: for threads
  return `default-src 'none'; ${scripts}; style-src 'self'; img-src data:; connect-src *; ${workers}; base-uri 'none'; form-action 'none'; frame-ancestors 'none'`;
}

const server = createServer(async (request, response) => {
  const { pathname } = new URL(request.url, "http://localhost");
  const [prefix, folder] = Object.entries(FOLDERS).find(([prefix]) => pathname.startsWith(prefix));
  const file = new URL(`./${pathname.slice(prefix.length) || "index.html"}`, folder);
  try {
    if (!file.href.startsWith(folder.href)) throw new Error("outside of the folder");
    const body = await readFile(file);
    const type = TYPES[extname(file.pathname)] ?? "application/octet-stream";
    const headers = {
      "Content-Type": type,
      "Last-Modified": (await stat(file)).mtime.toUTCString(),
      "Content-Security-Policy": policyOf(type === TYPES[".html"] ? String(body) : ""),
      ...(values.isolated && ISOLATION),
    };
    const range = /^bytes=(\d+)-(\d+)$/.exec(request.headers.range ?? "");
    if (!range) return void response.writeHead(200, headers).end(body);
    const part = body.subarray(Number(range[1]), Number(range[2]) + 1);
    headers["Content-Range"] = `bytes ${range[1]}-${Number(range[1]) + part.length - 1}/${body.length}`;
    response.writeHead(206, headers).end(part);
  } catch {
    response.writeHead(404, { "Content-Type": "text/plain" }).end("not found\n");
  }
});
server.listen(Number(positionals[0] ?? 8000), "127.0.0.1", () => {
  console.log(`Listening on http://127.0.0.1:${server.address().port}/`);
});
