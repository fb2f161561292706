// Whole models: a prompt at once, in chunks and token by token, given tokens behind it, and the greedy continuation.

import { createHash } from "node:crypto";
import { readFileSync } from "node:fs";
import { join } from "node:path";
import type { Kernels } from "../../src/entries/core.ts";
import type { Model } from "../../src/models/blocks/model.ts";
import { forward } from "../../src/models/decoder/forward.ts";
import { createSession, type Session } from "../../src/models/decoder/session.ts";
import { reasonAgainst, UNSUPPORTED_MODELS } from "../../src/models/families/unsupported.ts";
import { generate } from "../../src/models/generate/generate.ts";
import { loadModel } from "../../src/models/load/load-model.ts";
import { gguf } from "../../src/models/spec/read-gguf.ts";
import type { Case, Entry, Outcome } from "./case.ts";

/** Models of later versions, by `model_type`, and cases that cannot be met; each with its reason. */
const SKIPPED: Readonly<Record<string, string>> = {
  doge: "a term of each key's value in its scores is not supported",
  zamba2: "a block of attention and MLP that layers share, with adapters, is not supported",
};

/** Models that would need more than a file of rules: what loadModel refuses them for is the reason. */
const REFUSED = ["deepseek_v32", "qwen4_exp_text"];

const FALCON_ALIBI =
  "transformers adds Falcon's ALiBi twice in eager mode, which made this case, and once with SDPA, its default, as here";

/** Why a case is not run; undefined if it is. */
export function reasonToSkip(folder: string, { op, set, folder: own = "" }: Entry): string | undefined {
  if (op !== "CausalLM") return undefined;
  if (set === "gguf") return undefined;
  const config = JSON.parse(readFileSync(join(folder, own, "config.json"), "utf8")) as Record<string, unknown>;
  if (config.model_type === "falcon" && config.alibi === true) return FALCON_ALIBI;
  const type = String(config.model_type);
  if (REFUSED.includes(type)) return `${type} has ${reasonAgainst(type, UNSUPPORTED_MODELS)}`;
  return SKIPPED[type];
}

/** Runs a case of a decoder. */
export async function causalLm(kernels: Kernels, c: Case): Promise<Outcome> {
  const [batch = 0, length = 0] = c.shape("input_ids");
  const decoded = c.has("decode_ids") ? (c.shape("decode_ids")[1] ?? 0) : 0;
  const steps = c.has("greedy") ? (c.shape("greedy")[1] ?? 0) : 0;
  const longest = length + Math.max(decoded, steps);
  const source = join(c.folder, c.entry.folder ?? "", c.entry.set === "gguf" ? "model.gguf" : "");
  using model = await loadModel(kernels, source, {
    ...{ weights: "f32", maxSeqLen: longest, perLayer: "resident", gguf },
  });
  const problems: string[] = [];
  const rows = Array.from({ length: batch }, (_, b) => b);
  const results = await Promise.all(rows.map((b) => runRow(model, c, b, longest, steps, problems)));
  const join3 = (name: "logits" | "decoded", count: number) => ({
    shape: [batch, count, model.vocabSize],
    data: Float32Array.from(results.flatMap((result) => [...result[name]])),
  });
  if (c.entry.set === "gguf") problems.push(...(await checkStored(kernels, c, source, longest, results)));
  return {
    problems,
    outputs: {
      logits: join3("logits", length),
      logits_decode: join3("decoded", decoded),
      greedy: { shape: [batch, steps], data: results.flatMap(({ greedy }) => greedy) },
    },
  };
}

/**
 * How far logits of a token may be from those of float32 weights where integers of the file are multiplied as they are, with
 * activations of 14 bits: a share of the largest one. The largest measured is 3.0e-3. In models with experts, rounding may choose
 * others for single tokens, so that half of the tokens are within it.
 */
const STORED_BOUND = 1e-2;

/** Float32 alone changes the logits of usual models by this share of the largest one: those that are worse may differ by more. */
const USUAL_ERROR = 1e-5;

/** The same prompt with the weights as the file has them. */
async function checkStored(
  kernels: Kernels,
  c: Case,
  source: string,
  maxSeqLen: number,
  floats: readonly RowResult[],
): Promise<string[]> {
  using model = await loadModel(kernels, source, { maxSeqLen, perLayer: "resident", gguf });
  const largest = (values: Float32Array) => values.reduce((all, value) => Math.max(all, Math.abs(value)), 0);
  const errors = floats.flatMap(({ logits }, b) => {
    using session = createSession(model, { maxSeqLen });
    const ids = tokensOf(c, b);
    const own = forward(session, ids, { rows: "all" }).logits;
    const want = logits.subarray(logits.length - own.length);
    const errors = own.map((value, i) => value - (want[i] as number));
    return ids.map((_, t) => largest(errors.subarray(t * model.vocabSize, (t + 1) * model.vocabSize)) / largest(want));
  });
  const sorted = errors.sort((a, b) => a - b);
  const error = sorted.at(c.number("router_gap") === undefined ? -1 : sorted.length >> 1) as number;
  const bound = STORED_BOUND * Math.max(1, Number(c.entry.attributes.float32_error ?? 0) / USUAL_ERROR);
  console.log(`${c.entry.name} as stored: ${error.toExponential(1)} of the largest logit, at most ${bound}`);
  return error <= bound ? [] : [`as stored: expected at most ${bound}, got ${error.toExponential(2)}`];
}

interface RowResult {
  /** Of all tokens, zeros where the row has padding. */
  readonly logits: Float32Array;
  readonly decoded: Float32Array;
  readonly greedy: readonly number[];
}

/** The tokens of a row of the batch, without the padding before them. */
function tokensOf(c: Case, b: number): number[] {
  const [, length = 0] = c.shape("input_ids");
  const row = c.integers("input_ids").slice(b * length, (b + 1) * length);
  const mask = c.has("attention_mask") ? c.integers("attention_mask").slice(b * length, (b + 1) * length) : undefined;
  return mask ? row.filter((_, i) => mask[i] === 1) : row;
}

async function runRow(
  model: Model,
  c: Case,
  b: number,
  maxSeqLen: number,
  steps: number,
  problems: string[],
): Promise<RowResult> {
  const ids = tokensOf(c, b);
  const sessions: Session[] = [];
  const open = () => {
    const session = createSession(model, { maxSeqLen });
    sessions.push(session);
    return session;
  };
  const [whole, chunks, single] = [open(), open(), open()];
  const all = forward(whole, ids, { rows: "all" }).logits;
  const sums = new Set([digest(all)]);
  sums.add(digest(...cut(ids, 7).map((piece) => forward(chunks, piece, { rows: "all" }).logits)));
  sums.add(digest(...ids.map((id) => forward(single, [id]).logits)));
  if (sums.size > 1) problems.push(`row ${b}: a prompt at once, in chunks and token by token give different bits`);
  const given = c.has("decode_ids") ? c.integers("decode_ids") : [];
  const count = given.length / (c.shape("input_ids")[0] ?? 1);
  const decoded = given.slice(b * count, (b + 1) * count).map((id) => forward(whole, [id]).logits);
  const greedy: number[] = [];
  for await (const { id } of generate(open(), ids, { maxTokens: steps })) greedy.push(id);
  for (const session of sessions) session.release();
  const [, length = 0] = c.shape("input_ids");
  const logits = new Float32Array(length * model.vocabSize);
  logits.set(all, logits.length - all.length);
  return { logits, decoded: Float32Array.from(decoded.flatMap((row) => [...row])), greedy };
}

/** Pieces of up to `size` elements. */
function cut(ids: readonly number[], size: number): number[][] {
  return Array.from({ length: Math.ceil(ids.length / size) }, (_, i) => ids.slice(i * size, (i + 1) * size));
}

function digest(...parts: readonly Float32Array[]): string {
  const hash = createHash("sha256");
  for (const part of parts) hash.update(new Uint8Array(part.buffer, part.byteOffset, part.byteLength));
  return hash.digest("hex");
}
