// llama.cpp as node-llama-cpp ships it, through its addon: the JavaScript around it adds a copy of llama.cpp's sources and
// packages for every graphics card.

import { createRequire } from "node:module";
import { fileOf } from "../../packages.ts";
import type { LoadDecoder } from "../decoder.ts";

/** The part of the addon that is used here. */
interface Addon {
  loadBackends(folder?: string): void;
  setLogger(logger: (level: number, message: string) => void): void;
  init(): Promise<void>;
  readonly AddonModel: new (path: string, params: object) => { init(): Promise<boolean> };
  readonly AddonContext: new (model: object, params: object) => Context;
  readonly AddonSampler: new (model: object) => { applyConfig(config: object): void };
}

interface Context {
  init(): Promise<boolean>;
  initBatch(size: number): void;
  addToBatch(sequence: number, position: number, tokens: Uint32Array, logitIndexes: Uint32Array): Uint32Array;
  decodeBatch(): Promise<void>;
  sampleToken(index: number, sampler: object): Promise<number>;
  sampleToken(
    index: number,
    sampler: object,
    probabilities: false,
    confidence: false,
    logits: true,
  ): Promise<unknown[]>;
  removeTokenCellsFromSequence(sequence: number, begin: number, end: number): boolean;
}

/** The largest number of tokens that a pass reads; llama.cpp's default. */
const MOST_TOKENS = 512;
/** ggml's number of float32 is 0. Flash attention rounds keys and values to float16, as caches do by default. */
const EXACT = { flashAttention: false, kvCacheKeyType: 0, kvCacheValueType: 0 };
const FASTEST = { flashAttention: "auto" };
const FOLDER = "bins/linux-x64";

export const load: LoadDecoder = async ({ source, format, maxSeqLen }) => {
  const folder = fileOf("@node-llama-cpp/linux-x64", FOLDER);
  const addon = createRequire(import.meta.url)(`${folder}/llama-addon.node`) as Addon;
  addon.setLogger(() => {});
  addon.loadBackends(folder);
  await addon.init();
  const model = new addon.AddonModel(source, { gpuLayers: 0, useMmap: true, addonExports: addon });
  if (!(await model.init())) throw new Error(`llama.cpp could not read ${source}`);
  const params = { contextSize: maxSeqLen, batchSize: MOST_TOKENS, sequences: 1, threads: 1 };
  const context = new addon.AddonContext(model, { ...params, ...(format === "f32" ? EXACT : FASTEST) });
  if (!(await context.init())) throw new Error("llama.cpp could not make a context");
  const sampler = new addon.AddonSampler(model);
  sampler.applyConfig({ temperature: 0 });
  let past = 0;
  const reset = () => {
    context.removeTokenCellsFromSequence(0, 0, -1);
    past = 0;
  };
  /** Reads tokens in passes; returns where the last one's logits are. */
  const pass = async (ids: readonly number[]) => {
    let index = 0;
    for (let begin = 0; begin < ids.length; begin += MOST_TOKENS) {
      const tokens = Uint32Array.from(ids.slice(begin, begin + MOST_TOKENS));
      const last = begin + tokens.length === ids.length;
      context.initBatch(tokens.length);
      const indexes = context.addToBatch(0, past, tokens, Uint32Array.from(last ? [tokens.length - 1] : []));
      await context.decodeBatch();
      past += tokens.length;
      index = indexes[0] ?? index;
    }
    return index;
  };
  return {
    reset,
    read: async (ids) => context.sampleToken(await pass(ids), sampler),
    async logits(ids) {
      reset();
      const answer = await context.sampleToken(await pass(ids), sampler, false, false, true);
      const pairs = answer[3] as readonly number[];
      const logits = new Float32Array(pairs.length / 2);
      for (let i = 0; i < pairs.length; i += 2) logits[pairs[i]!] = pairs[i + 1]!;
      return logits;
    },
  };
};
