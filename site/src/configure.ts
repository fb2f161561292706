// The configurator: sizes of a model for a budget, predicted beside measured here, and what an existing model costs.

import type { Configuration, LayerMeasurement, ModelCost, Target } from "headwise/configure";
import { copyText } from "../../src/entries/copy.ts";
import { choice, createState, integer, number, text } from "./address.ts";
import { byId, fact, make, showMessage } from "./dom.ts";
import { startEngine } from "./engine.ts";
import { markReady, startPage } from "./page.ts";
import { createTable } from "./table.ts";
import { bytesText, msText } from "./variant-text.ts";

/** Budget and context are powers, of 10 and of 2: what the sliders hold. */
const state = createState({
  budget: number(8.1, 6, 10),
  length: integer(11, 8, 17),
  target: choice<Target>("browser", "phone", "worker", "server"),
  url: text(""),
});

const engine = startEngine();
const status = byId("status", HTMLElement);
const costStatus = byId("cost-status", HTMLElement);
const measure = byId("measure", HTMLButtonElement);
const url = byId("url", HTMLInputElement);
/** What is shown, once the engine has chosen. */
let found: Configuration | undefined;

startPage();

const countText = (count: number): string =>
  count.toLocaleString("en", { notation: "compact", maximumSignificantDigits: 3 });

const PROJECTIONS: Readonly<Record<Configuration["projection"]["kind"], string>> = {
  mha: "keys and values for each head",
  gqa: "keys and values for groups of heads",
  mqa: "one key and value for all heads",
  mla: "a latent for all heads",
};

const HINT = status.textContent ?? "";
let isChoosing = false;
let isStale = false;

/** What is chosen for the sliders. While the engine chooses, the last change waits. */
async function showConfiguration(): Promise<void> {
  isStale = true;
  if (isChoosing) return;
  isChoosing = true;
  while (isStale) {
    isStale = false;
    const { budget, length, target } = state.values;
    const given = { parameterBudget: Math.round(10 ** budget), seqLen: 2 ** length, target };
    try {
      found = await engine.run("configure", given);
      showFound(found, given.seqLen);
    } catch (error) {
      found = undefined;
      for (const id of ["shape", "facts", "warnings", "measured", "choices"]) byId(id, HTMLElement).replaceChildren();
      showMessage(status, (error as Error).message, true);
    }
  }
  markReady();
  isChoosing = false;
}

function showFound(found: Configuration, seqLen: number): void {
  const { projection, memory, weights, cache } = found;
  const kv =
    projection.kind === "mla" ? `a latent of ${projection.kvLoraRank}` : `${projection.numKvHeads} key-value heads`;
  byId("shape", HTMLElement).textContent =
    `${found.layers} layers, ${found.dModel} wide, with ${found.numHeads} heads of ${found.headDim} and ${kv}`;
  byId("facts", HTMLElement).replaceChildren(
    fact(
      "parameters",
      `${countText(found.parameters)} (${found.parameters.toLocaleString("en")}); ${sayBudget(found)}`,
    ),
    fact("attention", `${projection.kind.toUpperCase()}: ${PROJECTIONS[projection.kind]}`),
    fact("MLP", `${found.mlpDim.toLocaleString("en")} wide`),
    fact("vocabulary", `${found.vocabSize.toLocaleString("en")} tokens`),
    fact("weights", `${bytesText(memory.weights)} as ${weights}`),
    fact("caches", `${bytesText(found.cacheBytes)} as ${cache}, for ${seqLen.toLocaleString("en")} tokens`),
    fact("memory", `${bytesText(memory.total)} in all`),
  );
  byId("warnings", HTMLElement).replaceChildren(...found.warnings.map((each) => make("li", { textContent: each })));
  byId("choices", HTMLElement).replaceChildren(
    createTable(
      "Choices",
      ["what", "value", "reason", "rule"],
      found.choices.map(({ what, value, reason, rule }) => [what, String(value), reason, rule]),
    ),
  );
  byId("measured", HTMLElement).replaceChildren();
  byId("copied", HTMLElement).hidden = true;
  if (!measure.disabled) showMessage(status, HINT);
}

/** Sizes are whole heads and layers, so that a budget is met nearly. */
function sayBudget({ parameters }: Configuration): string {
  const percent = 100 * (parameters / 10 ** state.values.budget - 1);
  return Math.abs(percent) < 0.05
    ? "as asked for"
    : `${Math.abs(percent).toFixed(1)} % ${percent > 0 ? "more" : "less"} than asked for, as heads and layers are whole`;
}

/** Predicted beside measured. */
function showMeasured({ predicted, measured, tokens }: LayerMeasurement): void {
  const difference = (of: "prefillMs" | "decodeMs") => {
    const percent = (100 * (predicted[of] - measured[of])) / measured[of];
    return `${percent < 0 ? "−" : "+"}${Math.abs(percent).toFixed(0)} %`;
  };
  const row = (name: string, of: "prefillMs" | "decodeMs") => [
    name,
    msText(predicted[of]),
    msText(measured[of]),
    difference(of),
  ];
  const bytes = (name: string, of: "weightBytes" | "sessionBytes") => [
    name,
    bytesText(predicted[of]),
    bytesText(measured[of]),
    predicted[of] === measured[of] ? "equal" : "differs",
  ];
  byId("measured", HTMLElement).replaceChildren(
    createTable(
      "One layer on this device, one thread; other programs make its times longer",
      ["", "predicted", "measured", "difference"],
      [
        row(`a prompt of ${tokens} tokens`, "prefillMs"),
        row("a token after it", "decodeMs"),
        bytes("weights", "weightBytes"),
        bytes("cache", "sessionBytes"),
      ],
    ),
  );
}

const stop = byId("stop", HTMLButtonElement);
const bar = byId("bar", HTMLElement);
/** Measures in an engine of its own, which ends when it is stopped: a layer that is built does not stop by itself. */
measure.addEventListener("click", async () => {
  const configuration = found;
  if (!configuration) return;
  const own = startEngine();
  const end = () => own.end();
  stop.addEventListener("click", end, { once: true });
  measure.disabled = true;
  stop.disabled = bar.hidden = false;
  showMessage(status, "Measuring …");
  if (document.activeElement === document.body) stop.focus();
  try {
    const measurement = await own.run("measureLayer", { configuration: { ...configuration } });
    const isShown = configuration === found;
    if (isShown) showMeasured(measurement);
    showMessage(status, isShown ? "Measured." : "Another model was chosen meanwhile: measure again.");
  } catch (error) {
    const { name, message } = error as Error;
    if (name === "AbortError") showMessage(status, "Measuring was stopped.");
    else showMessage(status, message, true);
  }
  own.end();
  stop.removeEventListener("click", end);
  measure.disabled = false;
  // A button that is disabled loses the focus to the page.
  const isLost = document.activeElement === document.body || document.activeElement === stop;
  stop.disabled = bar.hidden = true;
  if (isLost) measure.focus();
});

/** The code or file that was copied last, or is to be copied by hand. */
const copied = byId("copied", HTMLTextAreaElement);
async function copy(content: string): Promise<void> {
  status.className = "quiet";
  await copyText(content, status, copied);
  copied.value = content;
  copied.hidden = false;
}

byId("code", HTMLButtonElement).addEventListener("click", () => {
  const { budget, length, target } = state.values;
  const options = `{ parameterBudget: ${Math.round(10 ** budget)}, seqLen: ${2 ** length}, target: "${target}" }`;
  copy(`import { configure } from "headwise/configure";\n\nconst found = configure(${options});\n`);
});
byId("json", HTMLButtonElement).addEventListener("click", () => {
  if (found) copy(`${JSON.stringify(found.config, null, 2)}\n`);
});

let reading: AbortController | undefined;
/** What was read last: it is read again for another length. */
let described: string | File | undefined;

/** What a model costs. Of two that are asked for, the later is shown. */
async function describe(source: string | File): Promise<void> {
  const list = byId("cost", HTMLElement);
  reading?.abort();
  const own = new AbortController();
  reading = own;
  described = source;
  list.replaceChildren();
  showMessage(costStatus, "Reading …");
  try {
    const given = { source, seqLen: 2 ** state.values.length };
    const cost = await engine.run("describe", given, { signal: own.signal });
    if (own !== reading) return;
    showCost(list, cost);
    showMessage(costStatus, "Only config.json and headers of files were read, no weights.");
  } catch (error) {
    if (own === reading) showMessage(costStatus, (error as Error).message, true);
  }
}

/** What layers of a kind keep of a sequence. */
const KEPT: Readonly<Record<ModelCost["layers"][number]["kind"], string>> = {
  heads: "with keys and values",
  latent: "with a latent",
  shared: "that read the cache of another layer",
  recurrent: "with a recurrent state",
  both: "with keys, values and a recurrent state",
  none: "that keep nothing",
};

function showCost(list: HTMLElement, cost: ModelCost): void {
  const layers = cost.layers.map(({ layers: count, kind, perToken, window }) => {
    const size = perToken > 0 ? `, ${perToken.toLocaleString("en")} numbers per token` : "";
    return `${count} ${KEPT[kind]}${size}${window === undefined ? "" : `, in a window of ${window.toLocaleString("en")} tokens`}`;
  });
  const active = cost.activeParameters === cost.parameters ? "" : `; ${countText(cost.activeParameters)} for a token`;
  list.replaceChildren(
    fact("type", cost.type),
    fact("parameters", `${countText(cost.parameters)} (${cost.parameters.toLocaleString("en")})${active}`),
    fact(
      "weights",
      Object.entries(cost.weightBytes)
        .map(([format, bytes]) => `${bytesText(bytes)} as ${format}`)
        .join(", "),
    ),
    ...(cost.storedBytes === undefined ? [] : [fact("file", bytesText(cost.storedBytes))]),
    fact("layers", layers.join("; ")),
    fact("per token", `${bytesText(cost.tokenBytes)} of caches at 16 bits`),
    fact(
      "caches",
      `${bytesText(cost.cacheBytes)} for ${cost.seqLen.toLocaleString("en")} tokens${cost.stateBytes > 0 ? `, and ${bytesText(cost.stateBytes)} of states` : ""}`,
    ),
    fact("memory here", cost.memory ? bytesText(cost.memory.total) : (cost.refusal ?? "")),
  );
}

function describeUrl(): void {
  state.set({ url: url.value });
  void describe(url.value);
}

byId("source", HTMLFormElement).addEventListener("submit", (event) => {
  event.preventDefault();
  describeUrl();
});
byId("example", HTMLButtonElement).addEventListener("click", () => {
  url.value = new URL("models/stories/stories.gguf", location.href).href;
  describeUrl();
});
const chosen = byId("file", HTMLInputElement);
chosen.addEventListener("change", () => {
  const [file] = chosen.files ?? [];
  if (!file) return;
  state.set({ url: "" }); // an address cannot name a file
  void describe(file);
});
// So that the same file can be chosen again, when it has changed.
chosen.addEventListener("click", () => Object.assign(chosen, { value: "" }));

const sliders = { budget: byId("budget", HTMLInputElement), length: byId("length", HTMLInputElement) };
const target = byId("target", HTMLSelectElement);
for (const [name, input] of Object.entries(sliders))
  input.addEventListener("input", () => state.set({ [name]: input.valueAsNumber }));
sliders.length.addEventListener("change", () => described && void describe(described));
target.addEventListener("change", () => state.set({ target: target.value as Target }));
state.follow((values) => {
  for (const name of ["budget", "length"] as const) sliders[name].value = String(values[name]);
  target.value = values.target;
  const texts = {
    budget: countText(Math.round(10 ** values.budget)),
    length: `${(2 ** values.length).toLocaleString("en")} tokens`,
  };
  for (const name of ["budget", "length"] as const) {
    byId(`${name}-text`, HTMLElement).textContent = texts[name];
    sliders[name].setAttribute("aria-valuetext", texts[name]);
  }
  void showConfiguration();
});
if (state.values.url !== "") {
  url.value = state.values.url;
  if (url.checkValidity()) void describe(url.value);
  else showMessage(costStatus, `The address of this page expected a URL of a model, got ${url.value}`, true);
}
