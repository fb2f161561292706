// GET /search?q=TEXT&top=5: the passages of the documents that are nearest to a text. The model and all vectors are in the bundle.

import { openModel } from "headwise";
import { createIndex, type PackedVectors } from "headwise/retrieval";
import weights from "../../../search/built/model/model.safetensors";
import files from "../../../search/built/model.json";
import { passages, shape } from "../../../search/built/passages.json";
import vectors from "../../../search/built/vectors.bin";
import { HttpError, json, respond } from "../../src/http.ts";

const MOST_CHARACTERS = 500;
const MOST_RESULTS = 20;
/** Longer than any text takes: passes that yield compute four at a time, and each takes memory of its own. */
const SLICE_MS = 60_000;

// Opened with the isolate. The `simd` build gives the same bits on every machine.
const textOf = new Map(Object.entries(files));
const encode = (text?: string) => (text === undefined ? undefined : new TextEncoder().encode(text));
const open = (name: string) => (name === "model.safetensors" ? weights : encode(textOf.get(name)));
const model = await openModel(open, { for: "embed", deterministic: true });
const { kernels } = model.parts;
const index = createIndex(kernels, { ...shape, bytes: new Uint8Array(vectors) } as PackedVectors);

export default {
  fetch(request) {
    return respond(async () => {
      const { pathname, searchParams } = new URL(request.url);
      if (pathname !== "/search") throw new HttpError(404, "not_found", `there is nothing at ${pathname}`);
      if (request.method !== "GET")
        throw new HttpError(405, "method_not_allowed", "/search takes GET", { allow: "GET" });
      const { text, topK } = readQuery(searchParams);
      const vector = await model.embed(text, { task: "query", sliceMs: SLICE_MS });
      const found = index.search(vector, { topK });
      const results = found.map(({ index: id, score }) => ({ id, score, ...passages[id] }));
      return json({ results, memoryBytes: kernels.memoryBytes });
    });
  },
} satisfies ExportedHandler;

/** The text and the number of results; throws for a wrong one. */
function readQuery(query: URLSearchParams): { text: string; topK: number } {
  const text = query.get("q")?.trim() ?? "";
  if (text === "") throw new HttpError(400, "no_query", "q expected a text, got none");
  if (text.length > MOST_CHARACTERS)
    throw new HttpError(400, "query_too_long", `q expected at most ${MOST_CHARACTERS} characters, got ${text.length}`);
  const top = query.get("top") ?? "5";
  const topK = Number(top);
  if (/^\d+$/.test(top) && topK >= 1 && topK <= MOST_RESULTS) return { text, topK };
  throw new HttpError(400, "bad_top", `top expected an integer from 1 to ${MOST_RESULTS}, got ${JSON.stringify(top)}`);
}
