// The servers: Node with threads, Deno, Bun.

import { once } from "node:events";
import { connect } from "node:net";
import { expect } from "./given.mjs";
import { end, ended, run, serve } from "./processes.mjs";
import { BEGINNING } from "./stories.mjs";

/**
 * Sends a request over a plain connection and returns the chunks of the answer as the server sent them: `fetch` on a busy
 * machine joins chunks.
 */
async function partsOf(url, { method = "GET", body = "" } = {}) {
  const { hostname, port, pathname, search } = new URL(url);
  const socket = connect(Number(port), hostname);
  socket.setTimeout(10_000, () => socket.destroy(new Error(`${url} sent nothing for 10 s`)));
  socket.write(
    `${method} ${pathname}${search} HTTP/1.1\r\nHost: ${hostname}\r\nConnection: close\r\nContent-Length: ${body.length}\r\n\r\n${body}`,
  );
  let received = "";
  for await (const bytes of socket) received += bytes;
  let rest = received.slice(received.indexOf("\r\n\r\n") + 4);
  const parts = [];
  for (;;) {
    const [size] = rest.split("\r\n", 1);
    const length = Number.parseInt(size, 16);
    if (!(length > 0)) return parts;
    parts.push(rest.slice(size.length + 2, size.length + 2 + length));
    rest = rest.slice(size.length + 2 + length + 2);
  }
}

/** Throws unless an answer comes in several pieces; returns it. */
async function stream(url, request) {
  const parts = await partsOf(url, request);
  expect("several pieces", parts.length > 1, true);
  return parts.join("");
}

/** The Node server: its client, the text of one thread, rejected requests, and a shutdown that completes its answers. */
export async function nodeServer({ folder, fast: { stories } }) {
  const cwd = folder("node-server");
  const { child, url } = await serve(process.execPath, ["server.ts", "0"], { cwd });
  const post = (body) => fetch(url, { method: "POST", body });
  const ask = (prompt, tokens) => post(JSON.stringify({ prompt, tokens }));
  const output = await run(process.execPath, ["client.ts", url], { cwd, seconds: 60 });
  expect("the client", output, /^20 of 20 answers are those of the request alone/m);

  const words = BEGINNING.split(" ");
  const prompts = Array.from({ length: 12 }, (_, i) => words.slice(i % 5, 3 + (i % 7)).join(" "));
  const texts = await Promise.all(prompts.map(async (prompt, i) => (await ask(prompt, 10 + i)).text()));
  for (const [i, prompt] of prompts.entries())
    expect(prompt, texts[i], await stories.tell(prompt, { maxTokens: 10 + i }));

  const whole = await stories.tell(BEGINNING, { maxTokens: 40 });
  const request = { method: "POST", body: JSON.stringify({ prompt: BEGINNING, tokens: 40 }) };
  expect("an answer in pieces", await stream(url, request), whole);

  for (const [body, rule] of [
    ["{", /JSON/],
    ["{}", /^text: prompt expected text or ids, got undefined\n$/],
    [`{"prompt":"${"a ".repeat(300)}"}`, /^text: prompt expected at most 192 tokens, got 301\n$/],
    ['{"prompt":"a b","tokens":-1}', /^text: maxTokens expected an integer >= 0, got -1\n$/],
    ["x".repeat(1_000_000), /^the request expected at most 4096 characters\n$/],
  ]) {
    const response = await post(body);
    expect(`status of ${body.slice(0, 30)}`, response.status, 400);
    expect(`answer to ${body.slice(0, 30)}`, await response.text(), rule);
  }

  const client = new AbortController();
  await fetch(url, { method: "POST", body: JSON.stringify({ prompt: "the dog" }), signal: client.signal });
  client.abort(); // a client that disconnects
  const unused = connect(Number(new URL(url).port), "127.0.0.1"); // a connection without a request
  await once(unused, "connect");
  const last = await ask(BEGINNING, 80);
  child.kill("SIGTERM");
  expect("the last answer", await last.text(), await stories.tell(BEGINNING, { maxTokens: 80 }));
  expect("the code at the end", await ended(child, 10), 0);
  return output.split("\n").slice(1, 2).join("; ");
}

/** The same requests to the servers of Deno and Bun, whose texts must be those of Node, also of seeds. */
async function streaming(command, args, options, { stories }) {
  const { child, url } = await serve(command, args, options);
  const urlOf = (query) => new URL(`?${new URLSearchParams(query)}`, url);
  const story = await stories.tell(BEGINNING);
  expect("the story", await stream(urlOf({ prompt: BEGINNING })), story);
  const seeds = [1, 2, 3, 4, 5, 6];
  const ask = async (seed) => (await fetch(urlOf({ prompt: BEGINNING, tokens: 60, temperature: 1, seed }))).text();
  const texts = await Promise.all(seeds.map(ask));
  for (const [i, seed] of seeds.entries())
    expect(`seed ${seed}`, texts[i], await stories.tell(BEGINNING, { maxTokens: 60, temperature: 1, seed }));
  expect("different stories", new Set(texts).size > 3, true);
  for (const [query, rule] of [
    [{ prompt: "the ".repeat(300) }, "text: prompt expected at most 192 tokens, got 301\n"],
    [{ prompt: "the", tokens: "x" }, "text: maxTokens expected an integer >= 0, got NaN\n"],
    [{ prompt: "the", temperature: -1 }, "text: temperature expected a number >= 0, got -1\n"],
  ]) {
    const response = await fetch(urlOf(query));
    expect(`status of ${rule}`, response.status, 400);
    expect("answer to what is wrong", await response.text(), rule);
  }
  expect("the status of no tokens", (await fetch(urlOf({ prompt: "the", tokens: 0 }))).status, 200);
  end(child);
}

export async function deno({ folder, tool, freePort, temporary, exact }) {
  const [cwd, command] = [folder("deno"), tool("deno")];
  const env = { DENO_DIR: temporary("deno-cache"), DENO_NO_UPDATE_CHECK: "1" };
  await run(command, ["check", "main.ts"], { cwd, env });
  const refused = await run(command, ["run", "--no-prompt", "main.ts"], { cwd, env, code: 1 });
  expect("the error without permissions", refused, /Requires read access to .*config\.json/);
  const port = await freePort();
  const permissions = ["--no-prompt", "--allow-read=../../model", `--allow-net=127.0.0.1:${port}`];
  await streaming(command, ["run", ...permissions, "main.ts", String(port)], { cwd, env }, exact);
  const version = await run(command, ["--version"], { cwd, env });
  return `${version.split(" (")[0]}, type-checked, only the permissions to read the model and to listen; the text of Node`;
}

export async function bun({ folder, tool, types, exact }) {
  const [cwd, command] = [folder("bun"), tool("bun")];
  await run(tool("tsc"), ["-p", ".", "--typeRoots", types], { cwd });
  await streaming(command, ["main.ts", "0"], { cwd }, exact);
  return `bun ${(await run(command, ["--version"], { cwd })).trim()}, type-checked; the text of Node`;
}
