// Losses of decoders whose key-value heads were pooled, before and after some more training.

import { rmSync } from "node:fs";
import { fileURLToPath } from "node:url";
import { forward, type Session } from "headwise/models";
import { loadStudyKernels, readJson, withModel } from "../evaluate.ts";
import { lossesOf, nextOf } from "../losses.ts";
import { runPython } from "../python.ts";
import { mean, round } from "../study.ts";
import { convertCheckpoint, METHODS } from "./convert.ts";
import type { Converted, GqaResult } from "./result.ts";

/** The fields of config.json that are read here. */
interface Config {
  readonly num_attention_heads: number;
  readonly num_hidden_layers: number;
  readonly head_dim: number;
}

interface Training extends Pick<GqaResult, "setup" | "entropy"> {
  readonly sequences: readonly (readonly number[])[];
}

const KV_HEADS = [2, 1];

export async function measure(cache: URL, report: (line: string) => void): Promise<GqaResult> {
  const train = (part: string) =>
    runPython(new URL("train.py", import.meta.url), [part, "--out", fileURLToPath(cache)], report);
  rmSync(cache, { recursive: true, force: true });
  await train("base");
  const training: Training = readJson(new URL("training.json", cache));
  const converted = training.setup.seeds.flatMap((seed) => {
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
    const { all, copy } = await withModel(kernels, new URL(`${name}/`, cache), (session) =>
      measureLoss(session, training),
    );
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
  const { setup, sequences, entropy } = training;
  return {
    ...{ setup, sequences: sequences.length, entropy: round(entropy) },
    difference: Number(difference.toPrecision(2)),
    models: measured,
  };
}

/** Nats a token, and those of the second copy, whose first token cannot be foreseen either. */
function measureLoss(session: Session, { sequences, setup }: Training) {
  const losses = sequences.map((ids) => {
    session.truncate(0);
    return lossesOf(forward(session, ids, { rows: "all" }).logits, nextOf(ids));
  });
  return { all: mean(losses.flat()), copy: mean(losses.flatMap((each) => each.slice(setup.segment))) };
}
