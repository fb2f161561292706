// Whole encoders: all rows of a batch at once, without padding, and each alone, with the same bits.

import { join } from "node:path";
import type { Kernels } from "../../src/entries/core.ts";
import { embed, encode, maskedLogits } from "../../src/models/encoder/encode.ts";
import { type Encoder, loadEncoder } from "../../src/models/encoder/load.ts";
import type { Case, Outcome, Values } from "./case.ts";

/** Runs a case of an encoder: states, and vectors of two kinds. */
export async function encoder(kernels: Kernels, c: Case): Promise<Outcome> {
  using model = await load(kernels, c);
  const { ids, tokenTypes } = batchOf(c);
  const states = encode(model, ids, { tokenTypes });
  const vectors = (pooling: "cls" | "mean") => embed(model, ids, { tokenTypes, pooling });
  const alone = ids.map((row, b) => encode(model, [row], { tokenTypes: tokenTypes && [tokenTypes[b] as number[]] })[0]);
  return {
    problems: problemsOf(states, alone as Float32Array[]),
    outputs: {
      last_hidden_state: padded(c, states),
      cls: together(vectors("cls")),
      mean_pooled: together(vectors("mean")),
    },
  };
}

/** Runs a case of an encoder with a head for masked tokens. */
export async function maskedLm(kernels: Kernels, c: Case): Promise<Outcome> {
  using model = await load(kernels, c);
  const { ids, tokenTypes } = batchOf(c);
  const all = maskedLogits(model, ids, { tokenTypes }).map(({ logits }) => logits);
  const alone = ids.map((row, b) =>
    maskedLogits(model, [row], { tokenTypes: tokenTypes && [tokenTypes[b] as number[]] }),
  );
  return {
    problems: problemsOf(
      all,
      alone.map(([row]) => row?.logits as Float32Array),
    ),
    outputs: { logits: padded(c, all) },
  };
}

const load = (kernels: Kernels, c: Case): Promise<Encoder> =>
  loadEncoder(kernels, join(c.folder, c.entry.folder ?? ""), { weights: "f32" });

/** The rows of a tensor [batch, length] without the padding behind them. */
export function rowsOf(c: Case, name: string, mask = "attention_mask"): number[][] {
  const [batch = 0, length = 0] = c.shape(name);
  const [values, kept] = [c.integers(name), c.has(mask) ? c.integers(mask) : undefined];
  return Array.from({ length: batch }, (_, b) =>
    values.slice(b * length, (b + 1) * length).filter((_, i) => kept?.[b * length + i] !== 0),
  );
}

function batchOf(c: Case): { ids: number[][]; tokenTypes: number[][] | undefined } {
  const types = c.has("token_type_ids") ? rowsOf(c, "token_type_ids") : undefined;
  return { ids: rowsOf(c, "input_ids"), tokenTypes: types };
}

/** Rows whose bits differ. */
export function problemsOf(together: readonly Float32Array[], alone: readonly Float32Array[]): string[] {
  return together.flatMap((row, b) =>
    row.every((x, i) => Object.is(x, alone[b]?.[i]))
      ? []
      : [`row ${b}: alone and with others, or at once and one by one, it has different bits`],
  );
}

/** Rows as a tensor [batch, length, width], zeros where there is padding. */
export function padded(c: Case, rows: readonly Float32Array[], name = "input_ids", mask = "attention_mask"): Values {
  const [batch = 0, length = 0] = c.shape(name);
  const tokens = rowsOf(c, name, mask);
  const width = (rows[0] as Float32Array).length / (tokens[0] as number[]).length;
  const data = new Float32Array(batch * length * width);
  for (const [b, row] of rows.entries()) data.set(row, b * length * width);
  return { data, shape: [batch, length, width] };
}

/** Vectors as rows of a tensor. */
export function together(rows: readonly Float32Array[]): Values {
  const width = (rows[0] as Float32Array).length;
  return { data: Float32Array.from(rows.flatMap((row) => [...row])), shape: [rows.length, width] };
}
