// wllama: llama.cpp in wasm, in a page. Version 2 reads token by token; version 3 only whole completions.

import * as library from "@wllama/wllama/esm/index.js";
import type { LoadDecoder } from "../decoder.ts";
import { WASM } from "../wllama-paths.ts";

/** The part of the library that is used here; its own types import files without extensions, which are not found. */
interface Library {
  readonly Wllama: new (
    paths: { "single-thread/wllama.wasm": string },
    config: { suppressNativeLog: boolean },
  ) => Wllama;
}

interface Wllama {
  loadModel(files: readonly Blob[], config: { n_ctx: number; n_batch: number; n_threads: number }): Promise<void>;
  decode(ids: readonly number[], options: object): Promise<unknown>;
  /** The most probable tokens, or with -1 all. */
  getLogits(count: number): Promise<readonly { readonly token: number; readonly p: number }[]>;
  kvClear(): Promise<void>;
}

export const load: LoadDecoder = async ({ source, maxSeqLen }) => {
  const { Wllama } = library as unknown as Library;
  const wllama = new Wllama({ "single-thread/wllama.wasm": WASM }, { suppressNativeLog: true });
  const file = await (await fetch(source)).blob();
  await wllama.loadModel([file], { n_ctx: maxSeqLen, n_batch: 512, n_threads: 1 });
  const reset = () => wllama.kvClear();
  return {
    reset,
    async read(ids) {
      await wllama.decode(ids, {});
      return (await wllama.getLogits(1))[0]!.token;
    },
    async logits(ids) {
      await reset();
      await wllama.decode(ids, {});
      const all = await wllama.getLogits(-1);
      const logits = new Float32Array(all.length);
      for (const { token, p } of all) logits[token] = Math.log(p);
      return logits;
    },
  };
};
