// Losses of decoders whose key-value heads were pooled, before and after some more training.

import { rmSync } from "node:fs";
import { fileURLToPath } from "node:url";
import { forward, type Session } from "headwise/models";
import { loadStudyKernels, readJson, withModel } from "../evaluate.ts";
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

/** The fields of config.json that are read here. */
interface Config {
  readonly num_attention_heads: number;
  readonly num_hidden_layers: number;
  readonly head_dim: number;
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
  const training: Training = readJson(new URL("training.json", cache));
  const converted = training.seeds.flatMap((seed) => {
    const base = new URL(`${seed}/mha/`, cache);
    const { num_attention_heads: heads } = readJson<Config>(new URL("config.json", base));
    const pooled = KV_HEADS.flatMap((kvHeads) =>
      METHODS.map((method) => {
        const folder = `${seed}/${method}-${kvHeads}`;
        const error = convertCheckpoint(base, new URL(`${folder}/`, cache), method, kvHeads);
        return { seed, method, kvHeads, folder, error };
      }),
    );
    return [{ seed, method: "none" as const, kvHeads: heads, folder: `${seed}/mha` }, ...pooled];
  });
  report(`${converted.length} models`);
  await train("uptrain");
  const losses: Record<string, number> = readJson(new URL("losses.json", cache));
  const kernels = await loadStudyKernels();
  let difference = 0;
  const lossOf = async (name: string) => {
    const { all, copy } = await withModel(kernels, new URL(`${name}/`, cache), (session) => measure(session, training));
    difference = Math.max(difference, Math.abs(all - losses[name]!));
    return round(copy);
  };
  const measured: Converted[] = [];
  for (const { folder, ...made } of converted) {
    const { num_hidden_layers: layers, head_dim: headDim } = readJson<Config>(new URL(`${folder}/config.json`, cache));
    const cacheBytes = 4 * 2 * layers * made.kvHeads * headDim;
    measured.push({ ...made, cacheBytes, loss: await lossOf(folder), uptrained: await lossOf(`${folder}-up`) });
  }
  kernels.release();
  const { steps, upSteps, segment, sequences, entropy } = training;
  return {
    ...{ steps, upSteps, segment, sequences: sequences.length, entropy: round(entropy) },
    difference: Number(difference.toPrecision(2)),
    models: measured,
  };
}

/** Nats a token, and those of the second copy, whose first token cannot be foreseen either. */
function measure(session: Session, { sequences, segment }: Training) {
  const losses = sequences.map((ids) => {
    session.truncate(0);
    return lossesOf(forward(session, ids, { rows: "all" }).logits, ids);
  });
  return { all: mean(losses.flat()), copy: mean(losses.flatMap((each) => each.slice(segment))) };
}
