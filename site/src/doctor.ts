// The page that examines this browser: the elements and words of doctor.html, with the work in the engine.

import { showDoctor } from "../../src/entries/doctor-view.ts";
import { choice, createState, text } from "./address.ts";
import { byId } from "./dom.ts";
import { startEngine } from "./engine.ts";
import { markReady, startPage } from "./page.ts";

const state = createState({ threads: text("auto"), deterministic: choice("no", "yes") });
const engine = startEngine();
const again = byId("again", HTMLButtonElement);
const threads = byId("threads", HTMLInputElement);
const deterministic = byId("deterministic", HTMLInputElement);
const version = byId("doctor", HTMLElement).dataset.version as string;

startPage();
state.follow((values) => {
  threads.value = values.threads;
  deterministic.checked = values.deterministic === "yes";
});
// Enter in a field runs again, too; the page is not left.
threads.form?.addEventListener("submit", (event) => event.preventDefault());
threads.addEventListener("change", () => {
  if (!threads.reportValidity()) return;
  state.set({ threads: threads.value });
  again.click();
});
deterministic.addEventListener("change", () => {
  state.set({ deterministic: deterministic.checked ? "yes" : "no" });
  again.click();
});

await showDoctor(async () => {
  for (;;) {
    const { values } = state;
    const given = /^\d+$/.test(values.threads) ? Number(values.threads) : (values.threads as "auto");
    const deterministic = values.deterministic === "yes";
    const found = await engine.run("diagnose", { version, threads: given, deterministic });
    // The button does nothing during a run: what was changed meanwhile runs now.
    if (values === state.values) return found;
  }
});
markReady();
