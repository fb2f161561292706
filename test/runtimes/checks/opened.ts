import type { Tokenizer } from "../../../src/entries/text.ts";
import { TINY, tinyFolder } from "../../support/tiny-models.ts";
import type { Context } from "../suite.ts";
import { expectEqual, expectTrue } from "./expect.ts";

const PROMPT = "5 34 63 25 54 16 45 7";
const numbers: Tokenizer = {
  encode: (text) => text.trim().split(" ").map(Number),
  decode: (ids) => ids.map((id) => ` ${id}`).join(""),
};

/** The part of bytes that a request asks for, as a server gives it. */
function ranged(bytes: Uint8Array, headers: Headers): Response {
  const [, first = "0", last = `${bytes.length - 1}`] = /^bytes=(\d+)-(\d+)$/.exec(headers.get("range") ?? "") ?? [];
  const part = bytes.slice(Number(first), Number(last) + 1);
  const range = `bytes ${first}-${Number(first) + part.length - 1}/${bytes.length}`;
  return new Response(part, { status: 206, headers: { "content-range": range, etag: '"1"' } });
}

/** A model in one call, where the entry has it: its tokens are those of the parts, several answers at once, aborted, in a worker. */
export async function checkOpened({ headwise, models, exact, check }: Context): Promise<void> {
  const { openModel } = headwise;
  // Service workers have no import(); workerd, whose scope has the same name, does.
  const isServiceWorker = "ServiceWorkerGlobalScope" in globalThis && !("WebSocketPair" in globalThis);
  if (openModel === undefined || isServiceWorker) return;
  const find = tinyFolder(TINY.llama);
  const file = (name: string) => new File([find(name) as Uint8Array<ArrayBuffer>], name);
  const files = ["config.json", "model.safetensors"].map(file);
  const options = { tokenizer: numbers, deterministic: true, threads: 1, cache: "f32", store: false } as const;

  await check("openModel: tokens are those of generate, also of several answers at once", async () => {
    const model = await models.loadModel(exact, find);
    const session = models.createSession(model, { maxSeqLen: 64 });
    const ids: number[] = [];
    for await (const { id } of models.generate(session, numbers.encode(PROMPT), { maxTokens: 20 })) ids.push(id);
    const opened = await openModel(find, options);
    const answers = [0, 1, 2].map(() => opened.text(PROMPT, { maxTokens: 20 }));
    for (const answer of answers) expectEqual("ids", (await answer.ids).join(), ids.join());
    const abort = new AbortController();
    const aborted = opened.text(PROMPT, { signal: abort.signal });
    for await (const _ of aborted) abort.abort();
    expectEqual("the end", (await aborted.end).reason, "aborted");
    expectTrue("what there is", numbers.decode(ids).startsWith(await aborted.text));
    for (const each of [opened, session, model]) each.release();
  });

  await check("openModel: a name on a hub, whose files lie with another host, which is sent no token", async () => {
    const sizes = ["config.json", "model.safetensors"].map((path) => ({ path, bytes: find(path) as Uint8Array }));
    const list = JSON.stringify(sizes.map(({ path, bytes }) => ({ type: "file", path, size: bytes.length })));
    const own = globalThis.fetch;
    const withToken = new Set<string>();
    globalThis.fetch = async (input, init) => {
      const { hostname, pathname } = new URL(String(input));
      const headers = new Headers(init?.headers);
      if (headers.has("authorization")) withToken.add(hostname);
      if (pathname === "/api/models/owner/tiny/tree/main") return ranged(new TextEncoder().encode(list), headers);
      const name = pathname.split("/").at(-1);
      const bytes = sizes.find(({ path }) => path === name)?.bytes;
      if (bytes === undefined) return new Response("no", { status: 404 });
      if (hostname === "files.test") return ranged(bytes, headers);
      return new Response(null, { status: 302, headers: { location: `https://files.test/${name}` } });
    };
    try {
      const opened = await openModel("owner/tiny", { ...options, hub: "https://hub.test", token: "secret" });
      const here = await openModel(find, options);
      const [ids, wanted] = [opened, here].map((model) => model.text(PROMPT, { maxTokens: 5 }).ids);
      expectEqual("ids", (await ids)?.join(), (await wanted)?.join());
      expectEqual("hosts that are sent the token", [...withToken].join(), "hub.test");
      for (const model of [opened, here]) model.release();
    } finally {
      globalThis.fetch = own;
    }
  });

  await check("openModel: in a worker tokens are the same, and errors have their codes", async () => {
    const there = await openModel(files, { ...options, worker: true }).catch((error) => {
      // Hosts without workers, and pages whose policy forbids workers of inlined source, say so.
      expectEqual("code", error.code, "WORKER_LOST");
      return undefined;
    });
    const { process } = globalThis as { readonly process?: { readonly versions?: Readonly<Record<string, string>> } };
    const { deno, bun } = process?.versions ?? {};
    expectTrue("Deno and Bun have workers", there !== undefined || (deno === undefined && bun === undefined));
    if (there === undefined) return;
    const here = await openModel(files, options);
    const sampled = { maxTokens: 20, temperature: 0.9, seed: 5 };
    const [own, other] = [here, there].map((model) => model.text(PROMPT, sampled));
    expectEqual("ids", (await other?.ids)?.join(), (await own?.ids)?.join());
    there.release();
    expectEqual("code", await there.countTokens(PROMPT).catch(({ code }) => code), "RELEASED");
    here.release();
  });
}
