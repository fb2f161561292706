// What is searched for beside the words of a question, and the place of what was found.

import type { Query } from "minisearch";
import { make } from "./dom.ts";

/** Words that visitors use, and those that the documents use. */
const SYNONYMS: Readonly<Record<string, readonly string[]>> = {
  quickstart: ["start", "install"],
  started: ["start", "install"],
  tutorial: ["start", "tutorials"],
  setup: ["install", "start"],
  llm: ["model", "decoder"],
  gpt: ["decoder", "model"],
  bert: ["encoder"],
  rag: ["retrieval", "search"],
  embedding: ["vector", "embed"],
  embeddings: ["vectors", "embed"],
  rerank: ["reranker", "rank"],
  quantization: ["quantisation"],
  quantize: ["quantised", "quantisation"],
  int8: ["q8"],
  int4: ["q4"],
  fp16: ["f16"],
  ram: ["memory", "bytes"],
  oom: ["memory"],
  speed: ["benchmarks", "fast", "faster"],
  performance: ["benchmarks", "fast"],
  benchmark: ["benchmarks"],
  parallel: ["threads", "shards"],
  multithreading: ["threads"],
  worker: ["threads", "shards"],
  sharedarraybuffer: ["headers", "threads"],
  cors: ["headers", "hosting"],
  coop: ["headers", "hosting"],
  csp: ["policy", "hosting"],
  webpack: ["bundler", "bundlers"],
  vite: ["bundler", "bundlers"],
  chatbot: ["chat", "conversation"],
  prompt: ["text", "chat"],
  streaming: ["stream", "pieces"],
  interpretability: ["inspect", "heads"],
  visualize: ["figures", "maps"],
  visualise: ["figures", "maps"],
  gqa: ["grouped"],
  mla: ["latent"],
};

/** A question as the index takes it: each word, or one that means the same. */
export function queryOf(text: string): Query {
  const words = text.toLowerCase().match(/[\p{L}\p{N}_]+/gu) ?? [];
  // “get started”, “how to”: what stands beside the words that matter.
  const asked =
    words.length > 1 ? words.filter((word) => !/^(?:a|an|the|to|how|do|i|get|with|of|in)$/.test(word)) : words;
  return {
    combineWith: "AND",
    queries: (asked.length > 0 ? asked : words).map((word) => ({
      combineWith: "OR",
      queries: [word, ...(SYNONYMS[word] ?? [])],
    })),
  };
}

/** Letters before and behind the first word that was found. */
const [BEFORE, BEHIND] = [40, 120];

/** The text around the first of the words that were found, with these marked. */
export function excerpt(text: string, terms: readonly string[]): (Node | string)[] {
  const plain = text.replace(/\s+/g, " ").trim();
  const words = terms.filter((term) => /^[\p{L}\p{N}_]+$/u.test(term));
  const any = new RegExp(words.join("|"), "giu");
  const first = words.length > 0 ? plain.search(any) : -1;
  const from = first <= BEFORE ? 0 : plain.indexOf(" ", first - BEFORE) + 1;
  const shown = plain.slice(from, Math.max(first, 0) + BEHIND);
  const parts: (Node | string)[] = from > 0 ? ["… "] : [];
  let at = 0;
  for (const { 0: word, index } of first < 0 ? [] : shown.matchAll(any)) {
    parts.push(shown.slice(at, index), make("mark", { textContent: word }));
    at = index + word.length;
  }
  return [...parts, shown.slice(at), ...(from + shown.length < plain.length ? [" …"] : [])];
}
