// Switches: number formats of the whole model, and what one head would do in a narrower view.

import { make } from "../dom.ts";

export interface Switched {
  readonly weights: "stored" | "f32" | "q8" | "q4";
  readonly cache: "f32" | "f16" | "q8" | "q4";
  /** Tokens that a query sees, its own among them; 0 for all. */
  readonly window: number;
  /** Whether the first token, where heads rest, may be seen. */
  readonly first: boolean;
}

const WEIGHTS = { stored: "as stored", f32: "32 bits", q8: "8 bits", q4: "4 bits" };
const CACHE = { f32: "32 bits", f16: "16 bits", q8: "8 bits", q4: "4 bits" };

export interface SwitchControls {
  readonly element: HTMLElement;
  show(values: Switched): void;
}

export function createSwitches(onChange: (change: Partial<Switched>) => void): SwitchControls {
  const select = (id: string, options: Record<string, string>) =>
    make("select", { id }, ...Object.entries(options).map(([value, label]) => new Option(label, value)));
  const [weights, cache] = [select("weights", WEIGHTS), select("cache", CACHE)];
  const window = make("input", { id: "window", type: "number", min: "0", max: "4096", step: "1" });
  const first = make("input", { id: "first", type: "checkbox" });
  const labelled = (text: string, control: HTMLElement) =>
    make("div", {}, make("label", { htmlFor: control.id, textContent: text }), control);
  weights.addEventListener("change", () => onChange({ weights: weights.value as Switched["weights"] }));
  cache.addEventListener("change", () => onChange({ cache: cache.value as Switched["cache"] }));
  window.addEventListener("change", () => window.checkValidity() && onChange({ window: window.valueAsNumber || 0 }));
  first.addEventListener("change", () => onChange({ first: first.checked }));
  const element = make(
    "div",
    {},
    make(
      "div",
      { className: "row" },
      labelled("Weights", weights),
      labelled("Cache", cache),
      labelled("Window", window),
    ),
    make("label", { className: "check" }, first, "sees the first token"),
    make("p", {
      className: "quiet small",
      textContent:
        "Formats run the whole model anew. The window (0: none) and the first token change what this head's softmax sees, and nothing before it.",
    }),
  );
  return {
    element,
    show(values) {
      weights.value = values.weights;
      cache.value = values.cache;
      if (document.activeElement !== window) window.valueAsNumber = values.window;
      first.checked = values.first;
    },
  };
}

/**
 * Weights [n, n] with keys taken out of the softmax: those that stay have the same ratios, and sum to 1. A query always sees itself;
 * where the others had all of its weight, it has 1.
 */
export function restrict(
  weights: Float32Array,
  n: number,
  { window, first }: Pick<Switched, "window" | "first">,
): Float32Array {
  if (window === 0 && first) return weights;
  const kept = new Float32Array(n * n);
  for (let i = 0; i < n; i++) {
    const from = Math.max(window > 0 ? i - window + 1 : 0, first ? 0 : 1);
    let sum = 0;
    for (let j = Math.min(i, from); j <= i; j++) sum += weights[i * n + j] as number;
    for (let j = Math.min(i, from); j <= i; j++)
      kept[i * n + j] = sum > 0 ? (weights[i * n + j] as number) / sum : Number(j === i);
  }
  return kept;
}
