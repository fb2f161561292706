import type { Kernels } from "../../src/entries/core.ts";
import { dequantizeBlocks } from "./blocks.ts";
import { Case, type Entry, type Outcome, readIndex } from "./case.ts";
import { compareOutcome } from "./compare.ts";
import { decoderAttention, latentAttention, mhaToGqa } from "./decoder.ts";
import { encoder, maskedLm } from "./encoders.ts";
import { causalLm, reasonToSkip } from "./models.ts";
import { attention, rotaryEmbedding } from "./onnx.ts";
import { quantDecoderAttention, quantMatMul } from "./quantised.ts";
import {
  crossEncoder,
  fillMask,
  generativeReranker,
  ggufTexts,
  lateInteraction,
  questionAnswering,
  sentenceEmbedding,
  sequenceClassification,
  sparseEmbedding,
  tokenClassification,
  zeroShot,
} from "./retrieval.ts";
import { loadSafetensors } from "./safetensors.ts";
import { matMul, softmax, tutorialAttention } from "./seeds.ts";
import { seq2seq } from "./seq2seq.ts";
import { functionalAttention, multiheadAttention } from "./torch.ts";

type Adapter = (kernels: Kernels, c: Case) => Outcome | Promise<Outcome>;

const ADAPTERS: Readonly<Record<string, Adapter>> = {
  Attention: attention,
  RotaryEmbedding: rotaryEmbedding,
  MultiheadAttention: multiheadAttention,
  scaled_dot_product_attention: functionalAttention,
  MultiHeadAttention: tutorialAttention,
  MatMul: matMul,
  Softmax: softmax,
  DecoderAttention: decoderAttention,
  MHAToGQA: mhaToGqa,
  MLA: latentAttention,
  LoadSafetensors: loadSafetensors,
  QuantMatMul: quantMatMul,
  QuantDecoderAttention: quantDecoderAttention,
  CausalLM: causalLm,
  Encoder: encoder,
  MaskedLM: maskedLm,
  Seq2Seq: seq2seq,
  SentenceEmbedding: sentenceEmbedding,
  CrossEncoder: crossEncoder,
  GenerativeReranker: generativeReranker,
  SequenceClassification: sequenceClassification,
  TokenClassification: tokenClassification,
  QuestionAnswering: questionAnswering,
  ZeroShot: zeroShot,
  FillMask: fillMask,
  SparseEmbedding: sparseEmbedding,
  LateInteraction: lateInteraction,
  Rank: ggufTexts,
  Embed: ggufTexts,
  DequantizeBlocks: (_, c) => dequantizeBlocks(c),
};

/** What became of one case. */
export interface Result {
  readonly name: string;
  readonly set: string;
  readonly op: string;
  readonly state: "passed" | "failed" | "skipped";
  /** Why it failed, or was skipped. */
  readonly problems: readonly string[];
  /** Rows whose expected NaN we replaced by zeros, for a query without an allowed key. */
  readonly maskedRows: number;
}

/** Runs every case that the folder's index lists, or those given. */
export async function runFolder(
  folder: string,
  kernels: Kernels,
  entries: readonly Entry[] = readIndex(folder),
): Promise<Result[]> {
  const results: Result[] = [];
  for (const entry of entries) results.push(await runCase(folder, kernels, entry));
  return results;
}

async function runCase(folder: string, kernels: Kernels, entry: Entry): Promise<Result> {
  const { name, set, op } = entry;
  try {
    const reason = reasonToSkip(folder, entry);
    if (reason !== undefined) return { name, set, op, state: "skipped", problems: [reason], maskedRows: 0 };
    const c = new Case(folder, entry);
    const adapter = Object.hasOwn(ADAPTERS, op) ? ADAPTERS[op] : undefined;
    if (!adapter) throw new RangeError(`no adapter for the operator ${op}`);
    const { problems, maskedRows } = compareOutcome(c, await adapter(kernels, c));
    return { name, set, op, state: problems.length === 0 ? "passed" : "failed", problems, maskedRows };
  } catch (error) {
    return { name, set, op, state: "failed", problems: [String(error)], maskedRows: 0 };
  }
}
