// Continues a text as it is typed, and draws the attention map of each head: rows are queries, columns keys.

import { loadKernels } from "headwise";
import { createDecoder } from "./decoder.ts";

const CHARACTERS = 24; // the longest prompt and these are the 96 characters that the model was trained on

const find = <T extends HTMLElement>(id: string) => document.getElementById(id) as T;
const prompt = find<HTMLInputElement>("prompt");
const [text, facts, maps] = [find("text"), find("facts"), find("maps")];

/** A file of public/. */
async function read(path: string): Promise<Response> {
  const response = await fetch(path);
  if (!response.ok) throw new Error(`${path} could not be read: ${response.status} ${response.statusText}`);
  return response;
}

/** One head's map [n, n] in shades of grey. */
function draw(weights: Float32Array, n: number, label: string): HTMLCanvasElement {
  const canvas = document.createElement("canvas");
  canvas.width = canvas.height = n;
  canvas.role = "img";
  canvas.ariaLabel = label;
  const image = new ImageData(n, n);
  for (const [i, weight] of weights.entries())
    image.data.fill(255 * weight, 4 * i, 4 * i + 3).fill(255, 4 * i + 3, 4 * i + 4);
  canvas.getContext("2d")?.putImageData(image, 0, 0);
  return canvas;
}

async function start(): Promise<void> {
  // ?deterministic: the build that gives the same bits on every engine.
  const kernels = await loadKernels({ deterministic: new URLSearchParams(location.search).has("deterministic") });
  const bytes = new Uint8Array(await (await read("model/model.safetensors")).arrayBuffer());
  const decoder = createDecoder(kernels, bytes, await (await read("model/config.json")).text());

  const show = () => {
    maps.replaceChildren();
    facts.replaceChildren();
    if (!decoder.knows(prompt.value)) return text.replaceChildren("Type printable ASCII characters.");
    const started = performance.now();
    const made = [...decoder.continue(prompt.value, CHARACTERS)];
    const ms = (performance.now() - started) / CHARACTERS;
    const whole = prompt.value + made.map(({ character }) => character).join("");
    text.replaceChildren(whole);
    text.title = made.map(({ logit }) => logit).join(" ");
    facts.replaceChildren(`build ${kernels.build}, ${ms.toFixed(2)} ms a character`);
    const n = whole.length;
    for (const [l, { data, shape }] of decoder.maps(decoder.encode(whole)).entries())
      for (let head = 0; head < shape[0]!; head++)
        maps.append(draw(data.subarray(head * n * n, (head + 1) * n * n), n, `layer ${l} head ${head}`));
  };
  prompt.addEventListener("input", show);
  show();
}

start().catch((error: Error) => text.replaceChildren(error.message));
