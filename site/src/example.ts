// Code that runs where it is shown, in a worker that build.ts has made of it.

import { make } from "./dom.ts";

/** Where the site lies, from a script in assets/. */
export const root = new URL("../", import.meta.url);

/** Lets the first button of an example's actions run it in a worker, which ends when the example does or runs anew. */
export function prepareExample(element: HTMLElement): void {
  const button = element.querySelector(".actions button") as HTMLButtonElement;
  const output = element.querySelector("output") as HTMLOutputElement;
  let worker: Worker | undefined;
  const end = () => {
    worker?.terminate();
    worker = undefined;
    button.textContent = "Run again";
  };
  button.addEventListener("click", () => {
    if (worker) return end();
    output.hidden = false;
    output.replaceChildren();
    button.textContent = "Stop";
    const own = new Worker(new URL(element.dataset.example as string, root), { type: "module" });
    worker = own;
    const print = (text: string, className = "") => output.append(make("div", { textContent: text, className }));
    own.addEventListener("message", ({ data }: MessageEvent<{ line?: string; error?: string; done?: boolean }>) => {
      if (own !== worker) return; // it was stopped
      if (data.line !== undefined) print(data.line);
      if (data.error !== undefined) print(data.error, "error");
      if (data.done || data.error !== undefined) end();
    });
    own.addEventListener("error", ({ message }) => {
      if (own !== worker) return;
      print(message || "The example could not be loaded.", "error");
      end();
    });
  });
}
