// The code of a process of its own: FORMAT FOLDER SECONDS. It prints what it measured as JSON.

import { median } from "../../../src/tools/diagnostics/timing.ts";
import { type LoadEmbedder, texts } from "./embedder.ts";

export async function runChild(load: LoadEmbedder): Promise<void> {
  const [format = "", folder = "", seconds = ""] = process.argv.slice(2);
  const all = texts();
  const model = await load(folder, format);
  await model.embed(all.slice(0, 1));
  // From the start of the process to the first vector.
  const startMs = performance.now();

  const vectors: number[][] = [];
  for (let at = 0; at < all.length; at += 32)
    for (const vector of await model.embed(all.slice(at, at + 32))) vectors.push([...vector]);

  /** Texts a second, in batches of `size`. */
  const rate = async (size: number): Promise<number> => {
    const rates: number[] = [];
    for (const end = performance.now() + 1000 * Number(seconds); performance.now() < end || rates.length < 3; ) {
      const start = performance.now();
      for (let at = 0; at < all.length; at += size) await model.embed(all.slice(at, at + size));
      rates.push((1000 * all.length) / (performance.now() - start));
    }
    return median(rates);
  };
  const [single, batch] = [await rate(1), await rate(32)];
  process.stdout.write(JSON.stringify({ startMs, single, batch, vectors }), () => process.exit()); // some leave handles open
}
