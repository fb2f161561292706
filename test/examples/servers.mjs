// The servers: Node with threads, Deno, Bun.

import { once } from "node:events";
import { connect } from "node:net";
import { CONTINUATION, expect, expectGenerated, PROMPT } from "./given.mjs";
import { end, ended, run, serve } from "./processes.mjs";

const parse = (text) =>
  text
    .trimEnd()
    .split("\n")
    .map((line) => JSON.parse(line));

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

/** Throws unless an answer comes a few characters at a time; returns its choices. */
async function stream(url, request) {
  const parts = await partsOf(url, request);
  const choices = parse(parts.join(""));
  expect("an answer that comes a line or two at a time", parts.length >= choices.length / 2, true);
  return choices;
}

/** The Node server: its client, the bits of one thread, rejected requests, and a shutdown that completes its answers. */
export async function nodeServer({ folder, fast }) {
  const cwd = folder("node-server");
  const { child, url } = await serve(process.execPath, ["server.ts", "0"], { cwd });
  const post = (body) => fetch(new URL("generate", url), { method: "POST", body });
  const ask = (prompt, tokens) => post(JSON.stringify({ prompt, tokens }));
  const output = await run(process.execPath, ["client.ts", url], { cwd, seconds: 60 });
  expect("the client", output, /^20 of 20 answers have the bits of the answer alone/m);

  const prompts = Array.from({ length: 12 }, (_, i) => `${PROMPT.slice(i % 5)}${PROMPT.slice(0, 3 + (i % 9))}`);
  const texts = await Promise.all(prompts.map(async (prompt, i) => (await ask(prompt, 10 + i)).text()));
  for (const [i, prompt] of prompts.entries()) await expectGenerated(parse(texts[i]), fast, prompt, 10 + i);

  const request = { method: "POST", body: JSON.stringify({ prompt: PROMPT, tokens: 40 }) };
  await expectGenerated(await stream(new URL("generate", url), request), fast, PROMPT, 40);

  for (const [status, body, rule] of [
    [400, "{", "the request expected JSON\n"],
    [400, "null", "prompt expected printable ASCII characters\n"],
    [400, '{"prompt":"é","tokens":1}', "prompt expected printable ASCII characters\n"],
    [400, '{"prompt":"ab","tokens":95}', "tokens expected 1 to 94 after this prompt\n"],
    [413, "x".repeat(1_000_000), "the request expected at most 4096 characters\n"],
  ]) {
    const response = await post(body);
    expect(`status of ${body.slice(0, 30)}`, response.status, status);
    expect(`answer to ${body.slice(0, 30)}`, await response.text(), rule);
  }
  expect("status of an unknown route", (await fetch(new URL("nothing", url))).status, 404);

  const client = new AbortController();
  await fetch(new URL("generate", url), {
    method: "POST",
    body: JSON.stringify({ prompt: "abcab", tokens: 91 }),
    signal: client.signal,
  });
  client.abort(); // a client that disconnects
  const unused = connect(Number(new URL(url).port), "127.0.0.1"); // a connection without a request
  await once(unused, "connect");
  const last = await ask(PROMPT, 80);
  child.kill("SIGTERM");
  await expectGenerated(parse(await last.text()), fast, PROMPT, 80);
  expect("the code at the end", await ended(child, 10), 0);
  expect("the last lines of the server", child.printed, /ending: no new conversations\nended\n$/);
  return output.split("\n").slice(1, 3).join("; ");
}

/** The same requests to the servers of Deno and Bun, whose answers must have the bits of Node. */
async function streaming(command, args, options, exact) {
  const { child, url } = await serve(command, args, options);
  const urlOf = (prompt, tokens) => new URL(`?${new URLSearchParams({ prompt, tokens })}`, url);
  const ask = (prompt, tokens) => fetch(urlOf(prompt, tokens));
  const choices = await stream(urlOf(PROMPT, CONTINUATION.length));
  expect("the continuation", choices.map(({ character }) => character).join(""), CONTINUATION);
  await expectGenerated(choices, exact, PROMPT, CONTINUATION.length);
  const prompts = Array.from({ length: 6 }, (_, i) => PROMPT.repeat(2).slice(i, 12 + 2 * i));
  const texts = await Promise.all(prompts.map(async (prompt) => (await ask(prompt, 30)).text()));
  for (const [i, prompt] of prompts.entries()) await expectGenerated(parse(texts[i]), exact, prompt, 30);
  for (const [prompt, tokens, rule] of [
    ["", 1, "prompt expected printable ASCII characters\n"],
    ["é", 1, "prompt expected printable ASCII characters\n"],
    ["ab", 95, "tokens expected 1 to 94 after this prompt\n"],
    ["ab", "x", "tokens expected 1 to 94 after this prompt\n"],
  ]) {
    const response = await ask(prompt, tokens);
    expect(`status of ${prompt}, ${tokens}`, response.status, 400);
    expect(`answer to ${prompt}, ${tokens}`, await response.text(), rule);
  }
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
  return `${version.split(" (")[0]}, type-checked, only the permissions to read the model and to listen; the bits of Node`;
}

export async function bun({ folder, tool, types, exact }) {
  const [cwd, command] = [folder("bun"), tool("bun")];
  await run(tool("tsc"), ["-p", ".", "--typeRoots", types], { cwd });
  await streaming(command, ["main.ts", "0"], { cwd }, exact);
  return `bun ${(await run(command, ["--version"], { cwd })).trim()}, type-checked; the bits of Node`;
}
