// Continues a text as it is typed, and draws the attention map of each head: rows are queries, columns keys.

import { loadKernels } from "headwise";
import { createSession, forward, loadModel, models } from "headwise/models";
import { attentionMaps } from "./maps.ts";

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
  const deterministic = new URLSearchParams(location.search).has("deterministic");
  const kernels = await loadKernels({ deterministic, models });
  const bytes = new Uint8Array(await (await read("model/model.safetensors")).arrayBuffer());
  const json = await (await read("model/config.json")).text();
  const { vocabulary } = JSON.parse(json) as { vocabulary: string }; // a token of this model is a character
  const files: Record<string, Uint8Array> = {
    "config.json": new TextEncoder().encode(json),
    "model.safetensors": bytes,
  };
  const model = await loadModel(kernels, (name) => files[name]);
  const encode = (text: string) => Array.from(text, (character) => vocabulary.indexOf(character));

  /** The likeliest next tokens and their logits. */
  const continueText = (prompt: readonly number[]) => {
    const session = createSession(model, { maxSeqLen: prompt.length + CHARACTERS });
    const made: { id: number; logit: number }[] = [];
    while (made.length < CHARACTERS) {
      const { logits, ids } = forward(session, made.length === 0 ? prompt : [made.at(-1)!.id], { top: 1 });
      made.push({ id: ids![0]!, logit: logits[0]! });
    }
    session.release();
    return made;
  };

  const show = () => {
    maps.replaceChildren();
    facts.replaceChildren();
    const tokens = encode(prompt.value);
    if (tokens.length === 0 || tokens.includes(-1)) return text.replaceChildren("Type printable ASCII characters.");
    const started = performance.now();
    const made = continueText(tokens);
    const ms = (performance.now() - started) / CHARACTERS;
    const whole = prompt.value + made.map(({ id }) => vocabulary[id]).join("");
    text.replaceChildren(whole);
    text.title = made.map(({ logit }) => logit).join(" ");
    facts.replaceChildren(`build ${kernels.build}, ${ms.toFixed(2)} ms a character`);
    const n = whole.length;
    for (const [l, { data, shape }] of attentionMaps(kernels, bytes, json, encode(whole)).entries())
      for (let head = 0; head < shape[0]!; head++)
        maps.append(draw(data.subarray(head * n * n, (head + 1) * n * n), n, `layer ${l} head ${head}`));
  };
  prompt.addEventListener("input", show);
  show();
}

start().catch((error: Error) => text.replaceChildren(error.message));
