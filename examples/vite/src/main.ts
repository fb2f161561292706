// Tells a story on while its beginning is typed.

import { openModel } from "headwise";

const find = <T extends HTMLElement>(id: string) => document.getElementById(id) as T;
const prompt = find<HTMLInputElement>("prompt");
const [text, facts] = [find("text"), find("facts")];

async function start(): Promise<void> {
  // ?deterministic: the build that gives the same bits on every engine.
  const deterministic = new URLSearchParams(location.search).has("deterministic");
  const url = new URL("stories.gguf", document.baseURI); // a file of public/
  const model = await openModel(url, { deterministic, worker: true });
  let abort = new AbortController();

  const show = async () => {
    abort.abort(); // the story of what was typed before
    abort = new AbortController();
    const { signal } = abort;
    text.replaceChildren(prompt.value);
    facts.replaceChildren();
    const answer = model.text(prompt.value, { signal });
    for await (const piece of answer) if (!signal.aborted) text.append(piece);
    const { written, seconds } = await answer.end;
    if (!signal.aborted)
      facts.replaceChildren(`build ${model.choices.build.value}, ${(written / seconds).toFixed(0)} words/s`);
  };
  const report = (error: Error) => text.replaceChildren(error.message);
  prompt.addEventListener("input", () => show().catch(report));
  await show();
}

start().catch((error: Error) => text.replaceChildren(error.message));
