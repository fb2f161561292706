// Switches: the rules of one layer's attention, and number formats of the whole model.

import type { Attended } from "../../worker/inspect.ts";
import type { Rules } from "../../worker/inspect-rules.ts";
import { make } from "../dom.ts";
import type { Values } from "./state.ts";

export type Switched = Pick<Values, "weights" | "cache" | "causal" | "window" | "first" | "kv">;

const WEIGHTS: Record<Switched["weights"], string> = {
  stored: "as stored",
  f32: "32 bits",
  q8: "8 bits",
  q4: "4 bits",
};
const CACHE: Record<Switched["cache"], string> = { f32: "32 bits", f16: "16 bits", q8: "8 bits", q4: "4 bits" };
const FIRST: Record<Rules["first"], string> = { seen: "as any other", kept: "always: a sink", hidden: "never seen" };

export interface SwitchControls {
  readonly element: HTMLElement;
  show(values: Switched): void;
  /** The layer that the rules are of. */
  showLayer(view: Attended): void;
}

export function createSwitches(onChange: (change: Partial<Switched>) => void): SwitchControls {
  const select = (id: string, options: Record<string, string>) =>
    make("select", { id }, ...Object.entries(options).map(([value, label]) => new Option(label, value)));
  const [weights, cache, first, kv] = [
    select("weights", WEIGHTS),
    select("cache", CACHE),
    select("first", FIRST),
    select("kv", {}),
  ] as const;
  const window = make("input", { id: "window", type: "number", min: "0", max: "4096", step: "1", placeholder: "none" });
  const causal = make("input", { id: "causal", type: "checkbox" });
  const labelled = (text: string, control: HTMLElement) =>
    make("div", {}, make("label", { htmlFor: control.id, textContent: text }), control);
  weights.addEventListener("change", () => onChange({ weights: weights.value as Switched["weights"] }));
  cache.addEventListener("change", () => onChange({ cache: cache.value as Switched["cache"] }));
  causal.addEventListener("change", () => onChange({ causal: causal.checked }));
  window.addEventListener("change", () => window.checkValidity() && onChange({ window: window.valueAsNumber || 0 }));
  first.addEventListener("change", () => onChange({ first: first.value as Switched["first"] }));
  kv.addEventListener("change", () => onChange({ kv: Number(kv.value) }));

  const title = make("h3");
  const says = make("p", { className: "quiet small" });
  const element = make(
    "div",
    { className: "switches" },
    title,
    make("label", { className: "check" }, causal, "causal order: later tokens are hidden"),
    make(
      "div",
      { className: "row" },
      labelled("Window", window),
      labelled("First token", first),
      labelled("Key-value heads", kv),
    ),
    says,
    make("h3", { textContent: "Precision of the whole model" }),
    make("div", { className: "row" }, labelled("Weights", weights), labelled("Cache", cache)),
  );
  let values: Switched | undefined;
  let view: Attended | undefined;

  const show = (): void => {
    if (!values) return;
    weights.value = values.weights;
    cache.value = values.cache;
    causal.checked = values.causal;
    if (document.activeElement !== window) window.value = values.window === 0 ? "" : String(values.window);
    first.value = values.first;
    if (!view) return;
    const { layer, heads, kvHeads } = view;
    const own = kvHeads[layer] as number;
    const divisors = Array.from({ length: own }, (_, i) => own - i).filter((count) => own % count === 0);
    if (kv.dataset.own !== String(own)) {
      kv.dataset.own = String(own);
      kv.replaceChildren(
        ...divisors.map((count) => new Option(count === own ? `${own}, as trained` : `${count}`, `${count % own}`)),
      );
    }
    kv.value = String(divisors.includes(values.kv) ? values.kv % own : 0);
    kv.disabled = own < 2;
    title.textContent = `Attention of layer ${layer}`;
    says.textContent = sayRules(values, { layer, heads: heads[layer] as number, kvHeads: own });
  };
  return {
    element,
    show(given) {
      values = given;
      show();
    },
    showLayer(given) {
      view = given;
      show();
    },
  };
}

/** What the switches change, in a sentence each. */
function sayRules(
  { causal, window, first, kv }: Switched,
  { layer, heads, kvHeads }: { readonly layer: number; readonly heads: number; readonly kvHeads: number },
): string {
  const near = window === 1 ? "itself alone" : `itself and the ${window - 1} before it${causal ? "" : " and after it"}`;
  const active = [
    causal ? "" : "Each token also sees those that come later, for which no head was trained.",
    window === 0 ? "" : `Each token sees ${near}.`,
    first === "hidden" ? "No other token sees the first one, which heads attend to when no other token matches." : "",
    first === "kept" && window > 0 ? "The first token is seen from beyond the window, too." : "",
    kv > 0 && kvHeads % kv === 0 && kv < kvHeads
      ? `${kv === 1 ? "One head" : `${kv} heads`} of keys and values for ${heads} of queries: each is the mean of ${kvHeads / kv}, as in a grouped model before any retraining.`
      : "",
  ].filter(Boolean);
  if (active.length === 0)
    return `These switches change layer ${layer} alone: its queries, keys and values stay, and the layers after it read what its heads then give.`;
  return `${active.join(" ")} Only layer ${layer} is changed; the layers after it read what its heads then give.`;
}
