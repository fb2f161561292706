// Models of the hub that pages offer by their names: nothing is read from there before the visitor says so.

import type { Offered } from "./model-picker.ts";

/** The hub; `?hub=` in the address of a page names another one, such as a mirror. The button that loads says which. */
const HUB = new URLSearchParams(location.search).get("hub") ?? "https://huggingface.co";

const hubModel = (name: string, label: string, megabytes: number, path: string): Offered => ({
  ...{ name, label: `${label}, ${megabytes} MB`, megabytes },
  url: `${HUB}/${path}`,
});

export const HUB_DECODERS: readonly Offered[] = [
  hubModel(
    "smollm2-135m",
    "SmolLM2 135M Instruct",
    145,
    "bartowski/SmolLM2-135M-Instruct-GGUF/resolve/main/SmolLM2-135M-Instruct-Q8_0.gguf",
  ),
  hubModel(
    "qwen2.5-0.5b",
    "Qwen2.5 0.5B Instruct",
    491,
    "Qwen/Qwen2.5-0.5B-Instruct-GGUF/resolve/main/qwen2.5-0.5b-instruct-q4_k_m.gguf",
  ),
];

export const HUB_ENCODERS: readonly Offered[] = [
  hubModel("minilm", "all-MiniLM-L6-v2", 91, "sentence-transformers/all-MiniLM-L6-v2/resolve/main/"),
];
