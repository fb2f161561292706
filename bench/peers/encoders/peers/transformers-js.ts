// transformers.js: its pipeline for vectors, tokenization included. `format` is that of the weights, behind which "native" may stand.

import { readFile } from "node:fs/promises";
import { basename, dirname, join } from "node:path";
import { pathToFileURL } from "node:url";
import type * as Transformers from "@huggingface/transformers";
import { fileOf } from "../../packages.ts";
import type { LoadEmbedder } from "../embedder.ts";

const PACKAGE = "@huggingface/transformers";

/**
 * The build for browsers, whose backend is wasm, in Node: it takes what calls itself Node for a host of the other build, and it reads
 * files by fetch, and the wasm of its onnxruntime-web from a server.
 */
async function loadWeb(): Promise<typeof Transformers> {
  Object.defineProperty(process.release, "name", { value: "" });
  const module: typeof Transformers = await import(pathToFileURL(fileOf(PACKAGE, "dist/transformers.web.js")).href);
  const { env } = module;
  env.fetch = (async (file: string) => {
    const bytes = await readFile(file).catch(() => undefined);
    return new Response(bytes, { status: bytes ? 200 : 404 });
  }) as typeof fetch;
  const { wasm } = env.backends.onnx as { wasm: { numThreads: number; wasmPaths: unknown } };
  const own = (end: string) =>
    pathToFileURL(fileOf(PACKAGE, `node_modules/onnxruntime-web/dist/ort-wasm-simd-threaded.asyncify.${end}`)).href;
  wasm.numThreads = 1;
  wasm.wasmPaths = { mjs: own("mjs"), wasm: own("wasm") };
  Object.assign(env, { useWasmCache: false, useBrowserCache: false });
  return module;
}

export const load: LoadEmbedder = async (folder, format) => {
  const [dtype, native] = format.split(" ") as ["fp32" | "q8", "native"?];
  const { env, pipeline } = native ? ((await import(PACKAGE)) as typeof Transformers) : await loadWeb();
  Object.assign(env, { allowRemoteModels: false, allowLocalModels: true, localModelPath: join(dirname(folder), "/") });
  const extract = await pipeline("feature-extraction", basename(folder), {
    dtype,
    device: native ? "cpu" : "wasm",
    session_options: { intraOpNumThreads: 1, interOpNumThreads: 1 },
  });
  return {
    async embed(batch) {
      const { data, dims } = await extract(
        batch.map(({ text }) => text),
        { pooling: "mean", normalize: true },
      );
      const width = dims[1] as number;
      return batch.map((_, i) => (data as Float32Array).subarray(i * width, (i + 1) * width));
    },
  };
};
