// The page: loads the kernels and the model, and shows a text, its continuation and the attention maps.

import { clearMaps, showMaps } from "./maps.js";

const CHARACTERS = 24; // the longest prompt and these are the 96 characters that the model was trained on
const [prompt, text, threads, build, times, reason] = ["prompt", "text", "threads", "build", "times", "reason"].map((id) =>
  document.getElementById(id),
);

let kernels;
let decoder;

/** Shows a message in place of a result; the figures of an earlier one go away. */
function showMessage(message, isError = false) {
  text.classList.toggle("error", isError);
  text.replaceChildren(message);
  times.textContent = "";
  clearMaps();
}

function show() {
  try {
    showText();
  } catch (error) {
    showMessage(error.message, true);
  }
}

function showText() {
  if (prompt.value === "") return showMessage("Type a text.");
  const unknown = decoder.unknownIn(prompt.value);
  if (unknown) return showMessage(`The model does not know the character ${JSON.stringify(unknown)}.`, true);
  const made = [...decoder.continue(prompt.value, CHARACTERS)];
  text.classList.remove("error");
  text.replaceChildren(
    prompt.value,
    ...made.map(({ character, logit }) =>
      Object.assign(document.createElement("span"), { textContent: character, title: `logit ${logit}` }),
    ),
  );
  const rest = made.slice(1).reduce((sum, { ms }) => sum + ms, 0) / (made.length - 1);
  times.textContent = `first character ${made[0].ms.toFixed(2)} ms, then ${rest.toFixed(2)} ms a character`;
  const whole = prompt.value + made.map(({ character }) => character).join("");
  showMaps(decoder.maps(whole), whole);
}

/** Reads a file next to the page. */
async function read(path) {
  const response = await fetch(path);
  if (!response.ok) throw new Error(`${path} could not be read: ${response.status} ${response.statusText}`);
  return response;
}

async function load() {
  // Imported here, so that a package that is not installed is reported on the page.
  const headwise = await import(threads.checked ? "headwise/threads" : "headwise");
  const { models } = await import("headwise/models");
  const { createDecoder } = await import("./decoder.js");
  const bytes = new Uint8Array(await (await read("model/model.safetensors")).arrayBuffer());
  const json = await (await read("model/config.json")).text();
  // Add ?deterministic to the address for the build that gives the same bits on every engine.
  const deterministic = new URLSearchParams(location.search).has("deterministic");
  const loaded = await headwise.loadKernels({ deterministic, models });
  kernels?.release(); // ends the workers
  kernels = loaded;
  decoder = await createDecoder(headwise, kernels, bytes, json);
  build.textContent = `build ${kernels.build}`;
  const { used, reason: why } = kernels.threads;
  reason.textContent = threads.checked ? `${used === 1 ? "One thread" : `${used} threads`}: ${why}` : "";
}

async function start() {
  threads.disabled = true;
  decoder = undefined;
  build.textContent = reason.textContent = "";
  showMessage("Loading the model …");
  try {
    await load();
    show();
  } catch (error) {
    decoder = undefined;
    showMessage(error.message, true);
  }
  threads.disabled = false;
}

prompt.addEventListener("input", () => decoder && show());
threads.addEventListener("change", start);
start();
