// Opens a model in a worker, and shows what it writes. ?deterministic asks for the build with the same bits on every engine.

import { openModel } from "headwise";

const at = (id) => document.getElementById(id);
const deterministic = location.search === "?deterministic";
const say = (words) => at("status").replaceChildren(words);
let model;
let abort = new AbortController(); // of a model that is opened, or a text that is written

/** Ends what runs, and begins something else. */
async function run(work, ...given) {
  abort.abort();
  const { signal } = (abort = new AbortController());
  await work(signal, ...given).catch((error) => say(signal.aborted ? "Stopped." : error.message));
}

async function open(signal, source) {
  model?.release();
  model = undefined;
  const onProgress = ({ bytes, allBytes }) => Object.assign(at("progress"), { value: bytes / allBytes });
  model = await openModel(source, { worker: true, signal, deterministic, onProgress });
  say(`Ready: ${model.type}, threads ${model.choices.threads.value}: ${model.choices.threads.reason}.`);
}

async function write(signal) {
  const [prompt, tokens, temperature] = ["prompt", "tokens", "temperature"].map((id) => at(id).value);
  const options = { signal, maxTokens: Number(tokens), temperature: Number(temperature) };
  const messages = [{ role: "user", content: prompt }];
  const answer = model.can.includes("chat") ? model.chat(messages, options) : model.text(prompt, options);
  at("text").replaceChildren();
  for await (const piece of answer) at("text").append(piece);
  const { reason, written, seconds } = await answer.end;
  say(`Ended: ${reason}, ${(written / seconds).toFixed(1)} tokens/s.`);
}

at("file").onchange = ({ target }) => run(open, target.files[0]);
at("load").onclick = () => run(open, at("name").value);
at("generate").onclick = () => (model ? run(write) : say("No model yet."));
at("stop").onclick = () => abort.abort();
