// Keeps the files of the site, so that it works without a network. `SITE` is written in front of this by build.ts: the version of
// the files, and their names, with those of the models apart: a model is kept when it is first read.

interface Files {
  readonly version: string;
  readonly files: readonly string[];
}

declare const SITE: Files & { readonly models: Files };
declare const self: ServiceWorkerGlobalScope;

const NAME = `headwise ${SITE.version}`;
const MODELS = `headwise models ${SITE.models.version}`;

self.addEventListener("install", (event) => {
  event.waitUntil(
    (async () => {
      const cache = await caches.open(NAME);
      await Promise.all(SITE.files.map((file) => keepFile(cache, file)));
      await self.skipWaiting();
    })(),
  );
});

/**
 * Keeps a file as the host has it now, whatever the browser has of it. Some hosts redirect NAME.html to NAME, and browsers take no
 * redirected answer for a page: its contents and headers are kept without that.
 */
async function keepFile(cache: Cache, file: string): Promise<void> {
  const answer = await fetch(file, { cache: "no-cache" });
  if (!answer.ok || (!isFile(answer) && !file.endsWith(".html"))) throw new Error(`${file}: ${answer.status}`);
  const { headers } = answer;
  await cache.put(file, answer.redirected ? new Response(await answer.blob(), { headers }) : answer);
}

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
  const path = url.pathname.slice(new URL(folder).pathname.length);
  const file = [path, `${path}.html`, `${path}index.html`].find((each) => SITE.files.includes(each));
  if (SITE.models.files.includes(path)) event.respondWith(readModel(request, url.pathname));
  else if (file !== undefined) event.respondWith(readFile(file, request));
});

/** A file of the site, whatever its query. */
async function readFile(path: string, request: Request): Promise<Response> {
  const cache = await caches.open(NAME);
  return (await cache.match(path)) ?? fetch(request);
}

/** Models that come from the host, by path, until they are kept. */
const fetched = new Map<string, Promise<Response>>();

/** A whole model: as it is kept, or from the host, which is asked once however many ranges of it are read. */
async function wholeModel(path: string): Promise<Response> {
  const cache = await caches.open(MODELS);
  const kept = await cache.match(path);
  if (kept) return kept;
  const answer = fetched.get(path) ?? fetchModel(cache, path);
  fetched.set(path, answer);
  return (await answer).clone();
}

/** Whether a host has a file: some send a page, with status 200, for one that they lack. */
const isFile = ({ ok, headers }: Response): boolean => ok && !headers.get("Content-Type")?.startsWith("text/html");

/** Reads a model from the host and keeps it. */
async function fetchModel(cache: Cache, path: string): Promise<Response> {
  let isFull = false;
  try {
    const answer = await fetch(path, { cache: "no-cache" });
    if (isFile(answer))
      await cache.put(path, answer.clone()).catch(({ name }: Error) => {
        isFull = name === "QuotaExceededError";
      });
    return answer;
  } finally {
    // What the browser has no room for stays in memory, for as long as the service worker runs.
    if (!isFull) fetched.delete(path);
  }
}

/** A model, or a range of it. */
async function readModel(request: Request, path: string): Promise<Response> {
  const kept = await wholeModel(path);
  if (!isFile(kept)) return kept;
  const [, begin, last] = /^bytes=(\d+)-(\d+)$/.exec(request.headers.get("range") ?? "") ?? [];
  if (begin === undefined || last === undefined) return kept;
  const whole = await kept.blob();
  const part = whole.slice(Number(begin), Number(last) + 1);
  const headers = { "Content-Range": `bytes ${begin}-${Number(begin) + part.size - 1}/${whole.size}` };
  return new Response(part, { status: 206, headers });
}

export {};
