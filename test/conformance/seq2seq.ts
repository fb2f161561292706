// Whole models with two halves: the encoder's states, the decoder's logits at once, in chunks and token by token, given tokens
// behind them, and the greedy continuation.

import { join } from "node:path";
import type { Tensor } from "../../src/base/tensor/tensor.ts";
import type { Kernels } from "../../src/entries/core.ts";
import { forward } from "../../src/models/decoder/forward.ts";
import { encode } from "../../src/models/encoder/encode.ts";
import { loadSeq2Seq, type Seq2Seq } from "../../src/models/encoder/load.ts";
import { readSource } from "../../src/models/encoder/read-source.ts";
import { generate } from "../../src/models/generate/generate.ts";
import type { Case, Outcome, Values } from "./case.ts";
import { padded, problemsOf, rowsOf, together } from "./encoders.ts";

/** Runs a case of a model with two halves. */
export async function seq2seq(kernels: Kernels, c: Case): Promise<Outcome> {
  using model = await loadSeq2Seq(kernels, join(c.folder, c.entry.folder ?? ""), { weights: "f32" });
  const sources = c.has("input_features") ? featuresOf(c) : rowsOf(c, "input_ids");
  const states = encode(model, sources);
  const alone = sources.map((ids) => encode(model, [ids])[0] as Float32Array);
  const prompts = rowsOf(c, "decoder_input_ids", "decoder_attention_mask");
  const given = rowsOf(c, "decode_ids", "decoder_attention_mask");
  const steps = c.shape("greedy")[1] as number;
  const problems = problemsOf(states, alone);
  const rows: Row[] = [];
  for (const [b, source] of sources.entries())
    rows.push(await runRow(model, source, prompts[b] as number[], given[b] as number[], steps, problems));
  return {
    problems,
    outputs: {
      encoder_last_hidden_state: c.has("input_features") ? stacked(states, model.dModel) : padded(c, states),
      logits: padded(
        c,
        rows.map(({ logits }) => logits),
        "decoder_input_ids",
        "decoder_attention_mask",
      ),
      logits_decode: padded(
        c,
        rows.map(({ decoded }) => decoded),
        "decode_ids",
        "decoder_attention_mask",
      ),
      greedy: together(rows.map(({ greedy }) => Float32Array.from(greedy))),
    },
  };
}

/** Features of each sound. */
function featuresOf(c: Case): Tensor[] {
  const { data, shape } = c.floats("input_features");
  const [batch = 0, bands = 0, frames = 0] = shape;
  const size = bands * frames;
  return Array.from({ length: batch }, (_, b) => ({
    data: data.slice(b * size, (b + 1) * size),
    shape: [bands, frames],
  }));
}

/** States of one length as a tensor [batch, rows, dModel]. */
function stacked(states: readonly Float32Array[], dModel: number): Values {
  const { data, shape } = together(states);
  return { data, shape: [states.length, (shape[1] as number) / dModel, dModel] };
}

interface Row {
  readonly logits: Float32Array;
  readonly decoded: Float32Array;
  readonly greedy: readonly number[];
}

async function runRow(
  model: Seq2Seq,
  source: number[] | Tensor,
  prompt: readonly number[],
  given: readonly number[],
  steps: number,
  problems: string[],
): Promise<Row> {
  const maxSeqLen = prompt.length + Math.max(given.length, steps);
  const open = () => readSource(model, source, { maxSeqLen });
  const [whole, single, greedy] = [await open(), await open(), await open()];
  const { logits } = forward(whole, prompt, { rows: "all" });
  const each = prompt.map((id) => forward(single, [id]).logits);
  problems.push(...problemsOf([logits], [Float32Array.from(each.flatMap((row) => [...row]))]));
  const decoded = given.map((id) => forward(whole, [id]).logits);
  const tokens: number[] = [];
  for await (const { id } of generate(greedy, prompt, { maxTokens: steps })) tokens.push(id);
  for (const session of [whole, single, greedy]) session.release();
  return { logits, decoded: Float32Array.from(decoded.flatMap((row) => [...row])), greedy: tokens };
}
