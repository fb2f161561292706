// Opens the model in a worker and the vectors in this page, and shows the passages that are nearest to a question as it is typed.
// ?deterministic asks for the build with the same bits on every engine.

import { loadKernels, openModel } from "headwise";
import { models } from "headwise/models";
import { createIndex } from "headwise/retrieval";

const [input, status, list] = ["query", "status", "results"].map((id) => document.getElementById(id));
const deterministic = location.search === "?deterministic";
const load = (name) => fetch(`built/${name}`);

async function start() {
  const model = await openModel("built/model/", { for: "embed", worker: true, deterministic });
  const { shape, passages } = await (await load("passages.json")).json();
  const bytes = new Uint8Array(await (await load("vectors.bin")).arrayBuffer());
  const index = createIndex(await loadKernels({ models, deterministic }), { ...shape, bytes });
  input.oninput = async () => {
    const question = input.value;
    const vector = await model.embed(question, { task: "query" });
    if (question !== input.value) return; // a later one is being answered
    list.replaceChildren(...index.search(vector).map(({ index }) => itemOf(passages[index])));
  };
  input.disabled = false;
  status.textContent = `${passages.length} passages.`;
}

function itemOf({ title, url, text }) {
  const link = Object.assign(document.createElement("a"), { href: url, textContent: title });
  const item = document.createElement("li");
  item.append(link, `: ${text.slice(0, 200)}…`);
  return item;
}

start().catch((error) => status.replaceChildren(error.message));
