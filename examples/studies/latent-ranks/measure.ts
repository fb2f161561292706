import { planModel } from "headwise/models";
import { bitsOf } from "../evaluate.ts";
import { type Measured, runGroups } from "../groups.ts";
import { round } from "../study.ts";
import type { Group, RanksResult } from "./result.ts";

type Shape = Pick<Group, "name" | "rank">;

export const measure = (cache: URL, report: (line: string) => void): Promise<RanksResult> =>
  runGroups<Shape, never, Pick<Group, "layers" | "heads" | "floats" | "storedBytes">>(
    new URL("train.py", import.meta.url),
    cache,
    report,
    ({ task, sets, logits }: Measured) => ({ bits: round(bitsOf(logits, sets[task]), 6) }),
    describeCache,
  );

/** The fields of config.json that are read here: those of Llama, or of DeepSeek-V2. */
interface Config {
  readonly hidden_size: number;
  readonly num_hidden_layers: number;
  readonly num_attention_heads: number;
  readonly num_key_value_heads: number;
  readonly kv_lora_rank?: number;
  readonly qk_rope_head_dim: number;
}

/** What one layer of a model keeps of a token. */
function describeCache(json: object) {
  const config = json as Config;
  const [layers, heads] = [config.num_hidden_layers, config.num_attention_heads];
  // Pages hold 128 tokens: one more page is 128 tokens more.
  const sessionOf = (pages: number) => planModel(json, { maxSeqLen: 128 * pages }).sessions;
  const storedBytes = (sessionOf(2) - sessionOf(1)) / 128 / layers;
  const { kv_lora_rank: rank, qk_rope_head_dim: ropeDim } = config;
  const floats = rank ? rank + ropeDim : (2 * config.num_key_value_heads * config.hidden_size) / heads;
  return { layers, heads, floats, storedBytes };
}
