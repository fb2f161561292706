// The page: has a worker load the model and generate text, and shows what it reports.

const at = (id) => document.getElementById(id);
const [chat, file, generate, prompt, status, stop, text, url] = [
  ...["chat", "file", "generate", "prompt", "status", "stop", "text", "url"],
].map(at);

let worker;
let state = "empty"; // or loading, ready, generating

function setState(next, message, isError = false) {
  state = next;
  status.classList.toggle("error", isError);
  status.textContent = message;
  const focused = document.activeElement;
  stop.disabled = state !== "loading" && state !== "generating";
  generate.disabled = state !== "ready";
  // A button that is disabled would lose the focus to the page.
  if (focused === generate && generate.disabled) stop.focus();
  if (focused === stop && stop.disabled) generate.focus();
}

/** Forgets the model: the end of the worker gives all of its memory back. */
function unload() {
  worker?.terminate();
  worker = undefined;
  chat.checked = false;
  chat.disabled = true;
  for (const id of ["speed", "model", "room", "kernels"]) at(id).textContent = "–";
  at("progress").value = 0;
  at("loaded").textContent = "";
  text.replaceChildren();
}

/** Says why there is no model. The same file may be chosen again. */
function giveUp(why, isError) {
  unload();
  file.value = "";
  setState("empty", why, isError);
}

/** Loads the model of a File or a URL. */
function load(source, name) {
  unload();
  if (source !== file.files[0]) file.value = "";
  const own = new Worker(new URL("./worker.js", import.meta.url), { type: "module" });
  // What a worker posted before its end may come behind it.
  own.addEventListener("message", ({ data: { report, ...rest } }) => own === worker && REPORTS[report](rest));
  own.addEventListener("error", ({ message }) => own === worker && giveUp(`The worker ended: ${message || "a file that it imports is missing"}`, true));
  worker = own;
  // Add ?deterministic to the address for the build that gives the same bits on every engine.
  const deterministic = new URLSearchParams(location.search).has("deterministic");
  worker.postMessage({ task: "load", source, deterministic });
  setState("loading", `Loading ${name} …`);
}

/** What is done with each report of the worker. */
const REPORTS = {
  progress({ done, all }) {
    at("progress").value = done / all;
    at("loaded").textContent = `${(done / 1e6).toFixed(1)} of ${(all / 1e6).toFixed(1)} MB`;
  },
  loaded({ model, room, kernels, canChat }) {
    at("model").textContent = model;
    at("room").textContent = room;
    at("kernels").textContent = kernels;
    chat.checked = canChat;
    chat.disabled = !canChat;
    setState("ready", "Ready.");
  },
  piece({ piece, tokens, ms }) {
    text.lastChild.append(piece);
    if (ms > 0) at("speed").textContent = `${((1000 * tokens) / ms).toFixed(1)} tokens/s`;
  },
  ended: ({ why }) => setState("ready", `Ended: ${why}.`),
  failed({ message }) {
    if (state === "generating") setState("ready", message, true);
    else giveUp(`The model could not be loaded: ${message}`, true);
  },
};

generate.addEventListener("click", () => {
  text.replaceChildren(chat.checked ? "" : prompt.value, document.createElement("span"));
  const options = { maxTokens: at("tokens").valueAsNumber, temperature: at("temperature").valueAsNumber };
  worker.postMessage({ task: "generate", prompt: prompt.value, asChat: chat.checked, options });
  setState("generating", "Generating …");
});
stop.addEventListener("click", () => {
  if (state === "loading") giveUp("Loading was stopped.");
  else worker.postMessage({ task: "stop" });
});
file.addEventListener("change", () => file.files.length > 0 && load(file.files[0], file.files[0].name));
url.value = new URL("model/stories/stories.gguf", location);
at("source").addEventListener("submit", (event) => {
  event.preventDefault();
  load(url.value, url.value);
});

document.addEventListener("dragover", (event) => {
  event.preventDefault();
  document.body.classList.add("target");
});
document.addEventListener("dragleave", ({ relatedTarget }) => {
  if (relatedTarget === null) document.body.classList.remove("target");
});
document.addEventListener("drop", (event) => {
  event.preventDefault();
  document.body.classList.remove("target");
  const [dropped] = event.dataTransfer.files;
  if (dropped) load(dropped, dropped.name);
});
