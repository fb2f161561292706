import { join } from "node:path";
import { pathToFileURL } from "node:url";
import type * as Headwise from "../../../../src/entries/index.ts";
import { root } from "../../packages.ts";
import { type LoadEmbedder, QUERY } from "../embedder.ts";

/** `format` is that of the weights, in a folder of its own, behind which "fast" may stand. */
export const load: LoadEmbedder = async ({ folder, format, task }) => {
  const [weights = "", fast] = format.split(" ");
  const { openModel } = (await import(pathToFileURL(join(root, "dist/index.js")).href)) as typeof Headwise;
  const model = await openModel(join(folder, weights), { for: task, threads: 1, activations: fast ? "fast" : "exact" });
  if (task === "embed") return { embed: (batch) => model.embed(batch) };
  return {
    async embed(batch) {
      const scores: Float32Array[] = [];
      for (const { index, score } of await model.rank(QUERY, batch)) scores[index] = Float32Array.of(score);
      return scores;
    },
  };
};
