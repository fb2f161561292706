// The worker: loads a model and generates text, so that the page answers whatever the model does. Workers have no import
// maps, so the packages are imported from where they lie.

import * as tokenizers from "./node_modules/@huggingface/tokenizers/dist/tokenizers.min.mjs";
import { latent } from "./node_modules/headwise/dist/latent.js";
import { createBrowserStore, createSession, gguf, loadModel, models } from "./node_modules/headwise/dist/models.js";
import { quantized } from "./node_modules/headwise/dist/quantized.js";
import { chat, generateText, loadTokenizer } from "./node_modules/headwise/dist/text.js";
import { loadKernels } from "./node_modules/headwise/dist/threads.js";

let session;
let tokenizer;
let abort;

const TASKS = { load, generate, stop: () => abort.abort() };

addEventListener("message", async ({ data: { task, ...given } }) => {
  try {
    await TASKS[task](given);
  } catch (error) {
    postMessage(abort?.signal.aborted ? { report: "ended", why: "stopped" } : { report: "failed", message: error.message });
  }
});

/** Loads a model and its tokenizer from a File or a URL. */
async function load({ source: given, deterministic }) {
  const source = typeof given === "string" ? await open(given) : given;
  tokenizer = await loadTokenizer(source, { library: tokenizers });
  const kernels = await loadKernels({ deterministic, models, quantized, latent });
  const onProgress = (done, all) => postMessage({ report: "progress", done, all });
  const model = await loadModel(kernels, source, { gguf, onProgress });
  session = createSession(model, { format: "f16" }); // half of the memory of float32
  const { type, layers, vocabSize, bytes } = model;
  const { used, reason } = kernels.threads;
  postMessage({
    report: "loaded",
    model: `${type}, ${layers} layers, ${vocabSize} tokens in its vocabulary, ${megabytes(bytes)}`,
    room: `${session.maxSeqLen} tokens, ${megabytes(session.bytes)}`,
    kernels: `${kernels.build}, ${used === 1 ? "one thread" : `${used} threads`}: ${reason}`,
    canChat: tokenizer.chatTemplate !== undefined,
  });
}

/** What was read of a URL is kept for the next time, where pages may keep files: not over plain http. */
async function open(url) {
  let store;
  try {
    store = createBrowserStore("models");
  } catch {
    return url;
  }
  return store.open(url);
}

const megabytes = (bytes) => `${(bytes / 1e6).toFixed(1)} MB`;

/** Continues the prompt, or answers it by the model's template. */
async function generate({ prompt, asChat, options }) {
  abort = new AbortController();
  const given = { ...options, signal: abort.signal };
  const pieces = asChat
    ? chat(session, tokenizer, [{ role: "user", content: prompt }], { ...given, library: await import(JINJA) })
    : generateText(session, tokenizer, prompt, given);
  let first;
  for (;;) {
    const { value, done } = await pieces.next();
    if (done) return postMessage({ report: "ended", why: WHY[value.reason] });
    const now = performance.now();
    first ??= { length: session.length, now };
    // A piece may be several tokens.
    postMessage({ report: "piece", piece: value, tokens: session.length - first.length, ms: now - first.now });
  }
}

/** Only models with a template need it. */
const JINJA = "./node_modules/@huggingface/jinja/dist/index.js";
const WHY = { stop: "the model ended the text", full: "the session has room for no more", length: "as long as asked for" };
