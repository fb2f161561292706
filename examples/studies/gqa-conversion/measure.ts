// Losses of decoders whose key-value heads were pooled, before and after some more training.

import { readFileSync, rmSync } from "node:fs";
import { fileURLToPath } from "node:url";
import { type Kernels, loadKernels } from "headwise";
import { createSession, forward, loadModel, models } from "headwise/models";
import { lossesOf } from "../losses.ts";
import { runPython } from "../python.ts";
import { mean, round } from "../study.ts";
import { type ConversionError, convertCheckpoint, METHODS, type Method } from "./convert.ts";

/** A converted model of a seed, or with the method "none" the model itself. Losses are nats a token of the second copy. */
export interface Converted {
  readonly seed: number;
  readonly method: Method | "none";
  readonly kvHeads: number;
  /** Bytes of keys and values of a token in float32, of all layers. */
  readonly cacheBytes: number;
  readonly error?: ConversionError | undefined;
  readonly loss: number;
  readonly uptrained: number;
}

export interface GqaConversion {
  readonly steps: number;
  readonly upSteps: number;
  readonly segment: number;
  readonly sequences: number;
  /** Nats of a token that only its frequency tells. */
  readonly entropy: number;
  /** The largest difference between the losses of PyTorch and of headwise. */
  readonly difference: number;
  readonly models: readonly Converted[];
}

interface Training {
  readonly steps: number;
  readonly upSteps: number;
  readonly seeds: readonly number[];
  readonly segment: number;
  readonly entropy: number;
  readonly sequences: readonly (readonly number[])[];
}

const KV_HEADS = [2, 1];

export async function measureGqaConversion(cache: URL, report: (line: string) => void): Promise<GqaConversion> {
  const train = (part: string) =>
    runPython(new URL("train.py", import.meta.url), [part, "--out", fileURLToPath(cache)], report);
  rmSync(cache, { recursive: true, force: true });
  await train("base");
  const training = JSON.parse(readFileSync(new URL("training.json", cache), "utf8")) as Training;
  const converted = training.seeds.flatMap((seed) => {
    const base = new URL(`${seed}/mha/`, cache);
    const { num_attention_heads: heads } = JSON.parse(readFileSync(new URL("config.json", base), "utf8"));
    const pooled = KV_HEADS.flatMap((kvHeads) =>
      METHODS.map((method) => {
        const folder = `${seed}/${method}-${kvHeads}`;
        const error = convertCheckpoint(base, new URL(`${folder}/`, cache), method, kvHeads);
        return { seed, method, kvHeads, folder, error };
      }),
    );
    return [{ seed, method: "none" as const, kvHeads: heads as number, folder: `${seed}/mha` }, ...pooled];
  });
  report(`${converted.length} models`);
  await train("uptrain");
  const losses = JSON.parse(readFileSync(new URL("losses.json", cache), "utf8")) as Record<string, number>;
  const kernels = await loadKernels({ deterministic: true, models });
  let difference = 0;
  const measured: Converted[] = [];
  for (const { folder, ...made } of converted) {
    const [before, after] = [folder, `${folder}-up`].map((name) => new URL(`${name}/`, cache));
    const [loss, uptrained] = [
      await lossesOfModel(kernels, before!, training),
      await lossesOfModel(kernels, after!, training),
    ];
    for (const [name, { all }] of [
      [folder, loss],
      [`${folder}-up`, uptrained],
    ] as const)
      difference = Math.max(difference, Math.abs(all - losses[name]!));
    const json = JSON.parse(readFileSync(new URL("config.json", before), "utf8"));
    const cacheBytes = 4 * 2 * json.num_hidden_layers * made.kvHeads * json.head_dim;
    measured.push({ ...made, cacheBytes, loss: round(loss.copy), uptrained: round(uptrained.copy) });
  }
  kernels.release();
  const { steps, upSteps, segment, sequences, entropy } = training;
  return {
    ...{ steps, upSteps, segment, sequences: sequences.length, entropy: round(entropy) },
    difference: Number(difference.toPrecision(2)),
    models: measured,
  };
}

/** Nats a token of a checkpoint, and those of the second copy, whose first token cannot be foreseen either. */
async function lossesOfModel(kernels: Kernels, folder: URL, { sequences, segment }: Training) {
  using model = await loadModel(kernels, folder);
  using session = createSession(model);
  const losses = sequences.map((ids) => {
    session.truncate(0);
    return lossesOf(forward(session, ids, { rows: "all" }).logits, ids);
  });
  return { all: mean(losses.flat()), copy: mean(losses.flatMap((each) => each.slice(segment))) };
}
