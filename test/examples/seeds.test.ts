import { readFileSync } from "node:fs";
import { describe, expect, test } from "vitest";
import { TUTORIALS } from "../../examples/seeds/tutorials.ts";
import { loadKernels } from "../../src/entries/index.ts";

// seeds/NNN.txt is what a tutorial prints: its own figures, and ours where it gives none.

const printedBy = (name: string) => readFileSync(new URL(`./seeds/${name}.txt`, import.meta.url), "utf8").trimEnd();

describe.each([
  ["simd", { deterministic: true }],
  ["the engine's build", {}],
])("%s", async (_, options) => {
  const kernels = await loadKernels(options);

  test.each(Object.entries(TUTORIALS))("tutorial %s prints what its text prints", (name, { run }) => {
    const lines: string[] = [];
    run(kernels, (line = "") => lines.push(line));
    expect(lines.join("\n")).toBe(printedBy(name));
  });
});
