// Tiny models of all tasks on texts, beside what sentence-transformers and transformers answer: test/vectors/retrieval.

import { join } from "node:path";
import { afterAll, beforeAll, expect, test } from "vitest";
import type { Kernels } from "../../../src/entries/core.ts";
import { readIndex } from "../../conformance/case.ts";
import { runFolder } from "../../conformance/suite.ts";
import { kernelsOf } from "../../support/layers.ts";

const folder = join(import.meta.dirname, "../../vectors/retrieval");

let kernels: Kernels;
beforeAll(async () => {
  kernels = await kernelsOf("simd");
});
afterAll(() => kernels.release());

test.each(readIndex(folder))("$op: $name", async (entry) => {
  expect(await runFolder(folder, kernels, [entry])).toMatchObject([{ state: "passed", problems: [] }]);
});
