// The rooms of src/, and what each holds for whoever reads it.

import { readdirSync, readFileSync } from "node:fs";
import { dirname, join } from "node:path";
import { fileURLToPath } from "node:url";

const root = join(dirname(fileURLToPath(import.meta.url)), "..");

/**
 * Bottom to top: a file imports its own room or one that stands before it (test/unit/house.test.ts). `reference`, the readable twin
 * of every kernel, stands beside them.
 */
export const ROOMS = [
  ...["base/util", "base/tensor", "base/platform", "wasm"],
  ...["linear", "state", "mixer", "attention", "latent", "recurrent", "pass", "api"].map((room) => `layers/${room}`),
  "files",
  ...["families", "weights", "mixers", "spec", "blocks", "load", "decoder", "generate", "encoder"].map(
    (room) => `models/${room}`,
  ),
  ...["text", "tools/diagnostics", "tools/configure", "tools/inspect", "hosts/threads", "hosts/shards"],
  ...["retrieval", "open", "entries", "cli"],
];

const DECLARED = /^export (?:declare |abstract |async )*(?:function\*?|const|let|class|interface|type|enum) \w/gm;
const PASSED_ON = /^export (?:type )?\{([^}]*)\}/gm;

/** Names that a file exports; `entries` passes on names of others, which count where they are declared. */
function exportsOf(room, text) {
  const passedOn = room === "entries" ? [] : Array.from(text.matchAll(PASSED_ON), ([, names]) => names.split(","));
  return [...text.matchAll(DECLARED), ...passedOn.flat().filter((name) => name.trim() !== "")].length;
}

/** Files, lines and exports of each room. */
export function roomsOf() {
  return [...ROOMS, "reference"].map((room) => {
    const files = readdirSync(join(root, "src", room), { recursive: true }).filter(
      (file) => file.endsWith(".ts") && !file.endsWith(".d.ts"),
    );
    const texts = files.map((file) => readFileSync(join(root, "src", room, file), "utf8"));
    const sum = (of) => texts.reduce((all, text) => all + of(text), 0);
    return {
      room,
      files: files.length,
      lines: sum((text) => text.split("\n").length - 1),
      exports: sum((text) => exportsOf(room, text)),
    };
  });
}
