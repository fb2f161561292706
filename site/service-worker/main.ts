// Keeps the files of the site, so that it works without a network. `SITE` is written in front of this by build.ts: the version of
// the files, and their names. Models are kept when they are first read.

declare const SITE: { readonly version: string; readonly files: readonly string[] };
declare const self: ServiceWorkerGlobalScope;

const NAME = `headwise ${SITE.version}`;
const MODELS = "headwise models";

self.addEventListener("install", (event) => {
  event.waitUntil(
    (async () => {
      const cache = await caches.open(NAME);
      await cache.addAll(SITE.files);
      await self.skipWaiting();
    })(),
  );
});

self.addEventListener("activate", (event) => {
  event.waitUntil(
    (async () => {
      for (const name of await caches.keys())
        if (name.startsWith("headwise ") && name !== NAME && name !== MODELS) await caches.delete(name);
      await self.clients.claim();
    })(),
  );
});

self.addEventListener("fetch", (event) => {
  const { request } = event;
  const folder = new URL("./", self.location.href).href;
  const url = new URL(request.url);
  if (request.method !== "GET" || !url.href.startsWith(folder)) return;
  const path = url.pathname.slice(new URL(folder).pathname.length) || "index.html";
  if (path.startsWith("models/")) event.respondWith(readModel(request, url.pathname));
  else if (SITE.files.includes(path)) event.respondWith(readFile(path, request));
});

/** A file of the site, whatever its query. */
async function readFile(path: string, request: Request): Promise<Response> {
  const cache = await caches.open(NAME);
  return (await cache.match(path)) ?? fetch(request);
}

/** A model, or a range of it: the whole file is kept. */
async function readModel(request: Request, path: string): Promise<Response> {
  const cache = await caches.open(MODELS);
  let kept = await cache.match(path);
  if (!kept) {
    const answer = await fetch(path);
    if (!answer.ok) return answer;
    await cache.put(path, answer.clone());
    kept = answer;
  }
  const [, begin, last] = /^bytes=(\d+)-(\d+)$/.exec(request.headers.get("range") ?? "") ?? [];
  if (begin === undefined || last === undefined) return kept;
  const whole = await kept.blob();
  const part = whole.slice(Number(begin), Number(last) + 1);
  const headers = { "Content-Range": `bytes ${begin}-${Number(begin) + part.size - 1}/${whole.size}` };
  return new Response(part, { status: 206, headers });
}

export {};
