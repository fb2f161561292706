// Models whose parameters and cache bytes are published: each row of known-models.json names its sources.

import { readFileSync } from "node:fs";
import { describeModel } from "headwise/configure";
import { describe, expect, test } from "vitest";
import { sampled } from "../../../support/sampled.ts";

interface Row {
  readonly name: string;
  readonly config: object;
  readonly parameters: number;
  readonly parametersFrom: string;
  /** Where the published number is rounded. */
  readonly tolerance?: number;
  readonly tokenBytes: number;
  readonly tokenBytesFrom: string;
}

const { models } = JSON.parse(readFileSync(new URL("known-models.json", import.meta.url), "utf8")) as {
  models: readonly Row[];
};

test("57 models are known: 56 by exact counts, 9 by published bytes of a token and the others by a formula", () => {
  const published = models.filter(({ tokenBytesFrom }) => tokenBytesFrom.startsWith("published"));
  const derived = models.filter(({ tokenBytesFrom }) => tokenBytesFrom.startsWith("derived"));
  const exact = models.filter(({ tolerance }) => tolerance === undefined);
  expect([models.length, exact.length, published.length, derived.length]).toEqual([57, 56, 9, 48]);
  expect(models.every(({ parametersFrom }) => parametersFrom.length > 8)).toBe(true);
});

describe("what is published of", () => {
  test.each(sampled(models, 15))("$name is what its config.json says: parameters, bytes of a token", (row) => {
    const { parameters, tokenBytes } = describeModel(row.config);
    if (row.tolerance === undefined) expect(parameters).toBe(row.parameters);
    else expect(Math.abs(parameters / row.parameters - 1)).toBeLessThanOrEqual(row.tolerance);
    expect(tokenBytes).toBe(row.tokenBytes);
  });

  test.each(sampled(models, 15))(
    "$name takes four bytes a parameter as f32 and little more, also if nothing says who has the head",
    (row) => {
      const { tie_word_embeddings: _, ...open } = row.config as Record<string, unknown>;
      for (const config of [row.config, open]) {
        const { parameters, weightBytes, memory } = describeModel(config);
        expect(weightBytes.f32).toBeGreaterThanOrEqual(4 * parameters);
        // The gates of RecurrentGemma, matrices of blocks, are packed as whole ones.
        const most = open.model_type === "recurrent_gemma" ? 1.09 : 1.01;
        expect(weightBytes.f32).toBeLessThan(most * 4 * parameters);
        // Tables of inputs of layers are no part of linear memory.
        const sides = ["vocab_size_per_layer_input", "hidden_size_per_layer_input", "num_hidden_layers"];
        const outside = sides.reduce((product, name) => product * Number(open[name] ?? 0), 4);
        if (memory) expect(memory.weights + outside).toBe(weightBytes.f32);
      }
    },
  );
});
