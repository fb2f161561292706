// Tells a story on while its beginning is typed.

import { loadKernels } from "headwise";
import { gguf, loadModel, models } from "headwise/models";
import { quantized } from "headwise/quantized";
import { generateText, loadTokenizer } from "headwise/text";

const find = <T extends HTMLElement>(id: string) => document.getElementById(id) as T;
const prompt = find<HTMLInputElement>("prompt");
const [text, facts] = [find("text"), find("facts")];

async function start(): Promise<void> {
  // ?deterministic: the build that gives the same bits on every engine.
  const deterministic = new URLSearchParams(location.search).has("deterministic");
  const kernels = await loadKernels({ deterministic, models, quantized });
  const url = new URL("stories.gguf", document.baseURI); // a file of public/
  const [model, tokenizer] = await Promise.all([loadModel(kernels, url, { gguf }), loadTokenizer(url)]);
  let latest = 0;

  const show = async () => {
    const own = ++latest;
    text.replaceChildren(prompt.value);
    facts.replaceChildren();
    const started = performance.now();
    let words = 0; // and marks: a token of this model is one of them
    for await (const piece of generateText(model, tokenizer, prompt.value)) {
      if (own !== latest) return; // something else was typed
      text.append(piece);
      words++;
    }
    const perSecond = (1000 * words) / (performance.now() - started);
    facts.replaceChildren(`build ${kernels.build}, ${perSecond.toFixed(0)} words/s`);
  };
  const report = (error: Error) => text.replaceChildren(error.message);
  prompt.addEventListener("input", () => show().catch(report));
  await show();
}

start().catch((error: Error) => text.replaceChildren(error.message));
