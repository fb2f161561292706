import { createHash } from "node:crypto";
import { readFileSync, statSync } from "node:fs";
import { createServer, type ServerResponse } from "node:http";
import { extname, join, normalize } from "node:path";
import { entriesModule, importMapOf, type Project } from "./project.ts";

/** What is answered under a path of its own. */
export interface Site {
  readonly name: string;
  /** Sent with every response. `{importmap}` in a value stands for the hash of the page's import map. */
  readonly headers: Readonly<Record<string, string>>;
  /** The page's script, of pages/. */
  readonly script: string;
  /** Whether the page has an import map, and whether that leads to this server or to one of another origin. */
  readonly mapped?: "here" | "elsewhere";
}

interface Content {
  readonly type: string;
  readonly body: string | Uint8Array;
}

const TYPES: Readonly<Record<string, string>> = {
  ".html": "text/html",
  ".css": "text/css",
  ".js": "text/javascript",
  ".mjs": "text/javascript",
  ".json": "application/json",
  ".wasm": "application/wasm",
};

const html = (body: string): Content => ({
  type: "text/html; charset=utf-8",
  body: `<!doctype html><meta charset="utf-8">${body}`,
});
const script = (body: string): Content => ({ type: "text/javascript", body });

const PAGES = join(import.meta.dirname, "pages");
const MODEL = join(import.meta.dirname, "..", "..", "model");

/**
 * Serves each site under /<its name>/: its page, the pages' scripts, the suite and the installed package. A server of
 * another origin has the package too, for any page.
 */
export async function serve(sites: readonly Site[], project: Project, suite: string) {
  const fileAt = (path: string, type = TYPES[extname(path)] ?? "application/octet-stream"): Content | undefined =>
    statSync(path, { throwIfNoEntry: false })?.isFile() ? { type, body: readFileSync(path) } : undefined;

  const mapOf = ({ mapped }: Site) => importMapOf(project, mapped === "elsewhere" ? `${elsewhere.origin}/` : "./");

  const contentOf = (site: Site, path: string): Content | undefined => {
    const importMap = site.mapped ? `<script type="importmap">${mapOf(site)}</script>` : "";
    if (path === "") return html(`${importMap}<script type="module" src="${site.script}"></script>`);
    if (path === "package.mjs") return script(entriesModule(project, "name"));
    if (path === "package-files.mjs") return script(entriesModule(project, "file"));
    if (path === "suite.mjs") return script(suite);
    // What many hosts do: any address that is not a file is the application's page, and wasm is a type they do not know.
    if (path.startsWith("app/")) return html("<title>an application</title>");
    if (path === "plain/simd.wasm")
      return fileAt(join(project.folder, project.files.get("./simd.wasm") as string), "text/plain");
    if (path.startsWith("model/")) return fileAt(join(MODEL, path.slice("model/".length)));
    return fileAt(path.startsWith("node_modules/") ? join(project.folder, path) : join(PAGES, path));
  };

  const elsewhere = await listen((path, response) => {
    response.setHeader("Access-Control-Allow-Origin", "*");
    return path.startsWith("node_modules/") ? fileAt(join(project.folder, path)) : undefined;
  });
  const here = await listen((path, response) => {
    const [name, ...rest] = path.split("/");
    const site = sites.find((each) => each.name === name);
    if (!site) return undefined;
    const hash = createHash("sha256").update(mapOf(site)).digest("base64");
    for (const [key, value] of Object.entries(site.headers))
      response.setHeader(key, value.replace("{importmap}", `'sha256-${hash}'`));
    return contentOf(site, rest.join("/"));
  });
  return {
    addressOf: (site: Site) => `${here.origin}/${site.name}/`,
    close() {
      here.close();
      elsewhere.close();
    },
  };
}

/** A server on a free port that answers with what `contentAt` gives for a path, which may set headers. */
async function listen(contentAt: (path: string, response: ServerResponse) => Content | undefined) {
  const server = createServer((request, response) => {
    const { pathname } = new URL(request.url ?? "/", "http://localhost");
    response.setHeader("Cache-Control", "no-store");
    const content = contentAt(normalize(decodeURIComponent(pathname)).slice(1), response);
    if (!content) {
      response.writeHead(404, { "Content-Type": "text/html" }).end("<h1>404 Not Found</h1>");
      return;
    }
    response.setHeader("Content-Type", content.type);
    sendRange(request.headers.range, Buffer.from(content.body), response);
  });
  await new Promise<void>((resolve, reject) => {
    server.on("error", reject);
    server.listen(0, "127.0.0.1", resolve);
  });
  const { port } = server.address() as { port: number };
  return {
    origin: `http://127.0.0.1:${port}`,
    close() {
      server.closeAllConnections();
      server.close();
    },
  };
}

/** All of the bytes, or those that were asked for. */
function sendRange(range: string | undefined, bytes: Buffer, response: ServerResponse): void {
  const [, first, last] = /^bytes=(\d+)-(\d+)$/.exec(range ?? "") ?? [];
  if (first === undefined) {
    response.end(bytes);
    return;
  }
  const part = bytes.subarray(Number(first), Number(last) + 1);
  response.writeHead(206, { "Content-Range": `bytes ${first}-${Number(first) + part.length - 1}/${bytes.length}` });
  response.end(part);
}
