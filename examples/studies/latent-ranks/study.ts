import { readFileSync } from "node:fs";
import { fileURLToPath } from "node:url";
import { planModel } from "headwise/models";
import {
  bitsOf,
  differenceOf,
  loadStudyKernels,
  logitsOf,
  type Results,
  type Rows,
  readJson,
  type Trained,
  withModel,
} from "../evaluate.ts";
import { runPython } from "../python.ts";
import { round, type Study } from "../study.ts";
import { drawCurves, drawRanks } from "./figures.ts";
import { writePage } from "./page.ts";

/** Models of one variant of attention, in the order of the seeds. */
export interface Group {
  /** "MHA", "GQA 4", "GQA 2" (the number of key heads), "MQA", "MLA 8" (the rank). */
  readonly name: string;
  /** Floats of a latent; null without latents. */
  readonly rank: number | null;
  /** What a layer has to keep of a token: keys and values, or a latent and a rotated key. */
  readonly floats: number;
  /** Bytes that headwise takes for them in float32, in whole groups of 8 floats. */
  readonly storedBytes: number;
  /** Validation loss in bits, by headwise. */
  readonly bits: readonly number[];
  /** Largest difference of a logit between headwise and PyTorch. */
  readonly difference: number;
  /** Validation loss while training, by PyTorch: [seed][evaluation]. */
  readonly curves: readonly (readonly number[])[];
}

export type RanksResult = Results<Group>;

export const study = {
  async run(cache: URL, report: (line: string) => void): Promise<RanksResult> {
    await runPython(new URL("train.py", import.meta.url), [fileURLToPath(cache)], report);
    return measure(cache, report);
  },
  write(result: RanksResult) {
    return { "ranks.svg": drawRanks(result), "curves.svg": drawCurves(result), "README.md": writePage(result) };
  },
} satisfies Study;

/** Measures the models that train.py left in a folder. */
async function measure(cache: URL, report: (line: string) => void): Promise<RanksResult> {
  const kernels = await loadStudyKernels();
  const { varied: rows } = readJson<{ varied: Rows }>(new URL("validation.json", cache));
  const trained: Trained<Pick<Group, "name" | "rank">> = readJson(new URL("trained.json", cache));
  const groups: Group[] = [];
  for (const { folders, curves, ...variant } of trained.groups) {
    const models = [];
    for (const name of folders) {
      const folder = new URL(`${name}/`, cache);
      models.push(
        await withModel(kernels, folder, async (session) => {
          const logits = logitsOf(session, rows);
          return { bits: round(bitsOf(logits, rows), 6), difference: await differenceOf(logits, folder) };
        }),
      );
    }
    const difference = Math.max(...models.map((model) => model.difference));
    groups.push({
      ...variant,
      ...cacheOf(readFileSync(new URL(`${folders[0]}/config.json`, cache), "utf8")),
      bits: models.map(({ bits }) => bits),
      difference: Number(difference.toPrecision(2)),
      curves: curves.map((curve) => curve.map((bits) => round(bits))),
    });
    report(`measured: ${variant.name}, logits within ${difference.toExponential(1)} of PyTorch's`);
  }
  kernels.release();
  const { torch, steps, every, seeds } = trained;
  return { torch, steps, every, seeds, groups };
}

/** What one layer of a model keeps of a token. */
function cacheOf(json: string): Pick<Group, "floats" | "storedBytes"> {
  const config = JSON.parse(json);
  // Pages hold 128 tokens: one more page is 128 tokens more.
  const sessionOf = (pages: number) => planModel(config, { maxSeqLen: 128 * pages }).sessions;
  const storedBytes = (sessionOf(2) - sessionOf(1)) / 128 / config.num_hidden_layers;
  const headDim = config.hidden_size / config.num_attention_heads;
  const latents = config.kv_lora_rank && config.kv_lora_rank + config.qk_rope_head_dim;
  return { floats: latents ?? 2 * config.num_key_value_heads * headDim, storedBytes };
}
