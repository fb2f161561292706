// transformers.js: its pipeline for vectors, or its classes of models, tokenization included. `format` is that of the weights, behind which "native" may stand.

import { readFile } from "node:fs/promises";
import { join } from "node:path";
import { pathToFileURL } from "node:url";
import type * as Transformers from "@huggingface/transformers";
import { fileOf } from "../../packages.ts";
import { type LoadEmbedder, QUERY } from "../embedder.ts";

const PACKAGE = "@huggingface/transformers";
/** The name of the model, in the folder of all. */
const FOLDER = "f32";

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

export const load: LoadEmbedder = async ({ folder, format, task, pooling, external, givesVectors }) => {
  const [dtype, native] = format.split(" ") as ["fp32" | "q8", "native"?];
  const library = native ? ((await import(PACKAGE)) as typeof Transformers) : await loadWeb();
  const { AutoModel, AutoModelForSequenceClassification, AutoTokenizer, env, pipeline } = library;
  Object.assign(env, { allowRemoteModels: false, allowLocalModels: true, localModelPath: join(folder, "/") });
  const options: Parameters<typeof AutoModel.from_pretrained>[1] = {
    dtype,
    device: native ? "cpu" : "wasm",
    session_options: { intraOpNumThreads: 1, interOpNumThreads: 1 },
    ...(external && { use_external_data_format: true }),
  };
  const rowsOf = ({ data, dims }: Transformers.Tensor) => {
    const width = dims[1] as number;
    return Array.from({ length: dims[0] as number }, (_, i) =>
      (data as Float32Array).subarray(i * width, (i + 1) * width),
    );
  };
  const padded = { padding: true, truncation: true };
  if (task === "rank") {
    const tokenizer = await AutoTokenizer.from_pretrained(FOLDER);
    const model = await AutoModelForSequenceClassification.from_pretrained(FOLDER, options);
    return {
      async embed(batch) {
        const inputs = tokenizer(Array<string>(batch.length).fill(QUERY), { text_pair: [...batch], ...padded });
        return rowsOf((await model(inputs)).logits);
      },
    };
  }
  if (givesVectors) {
    const tokenizer = await AutoTokenizer.from_pretrained(FOLDER);
    const model = await AutoModel.from_pretrained(FOLDER, options);
    return { embed: async (batch) => rowsOf((await model(tokenizer([...batch], padded))).sentence_embedding) };
  }
  const extract = await pipeline("feature-extraction", FOLDER, options);
  const given = { pooling: pooling === "last" ? "last_token" : pooling, normalize: true } as const;
  return { embed: async (batch) => rowsOf(await extract([...batch], given)) };
};
