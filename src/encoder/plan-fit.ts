// The memory of encoders and of models with two halves, from what was read of their files before their tensors.

import { PAGE } from "../../assembly/layout.ts";
import { checkConfig } from "../attention/config.ts";
import { createPageLayout, type PageLayout } from "../cache/page-layout.ts";
import { pagesBytes } from "../cache/pages.ts";
import type { PlanKind } from "../decoder/fit.ts";
import type { PackedFormats } from "../decoder/model-formats.ts";
import { planSpec } from "../decoder/plan-model.ts";
import { wholePanels } from "../linear/formats.ts";
import { positionsOf } from "../models/decoder/read-spec.ts";
import type { ModelSpec } from "../models/decoder/spec.ts";
import type { HfAttentionConfig } from "../models/hf/rules.ts";
import { CHUNK_ROWS } from "../util/rows.ts";
import { aligned } from "../wasm/memory.ts";
import { MOST_TOGETHER } from "./pass.ts";
import { stemBytes } from "./stem.ts";

/** Tokens of the longest text that is planned for by default. */
const MOST_TOKENS = 512;

/** `MOST_TOKENS`, or those that the model has positions for. */
export const plannedTokens = ({ maxSeqLen = MOST_TOKENS }: ModelSpec): number => Math.min(maxSeqLen, MOST_TOKENS);

/** Bytes of the weights of an encoder, and of calls on texts of up to `tokens` tokens, of which at most `texts` run together. */
export function planTexts(
  where: string,
  spec: ModelSpec,
  formats: PackedFormats,
  tokens: number,
  texts: number = MOST_TOGETHER,
): { readonly weights: number; readonly scratch: number; readonly total: number } {
  const { weights, scratch } = planSpec(where, spec, formats, { rows: CHUNK_ROWS, outputs: 0, maxSeqLen: 1 });
  const [{ attention }] = spec.blocks as readonly [(typeof spec.blocks)[number]];
  const layout = pageLayoutOf(where, attention.config as HfAttentionConfig);
  // A group of texts takes a page each, and one of them may begin a second one; a longer text is alone.
  const together = texts * pagesBytes(layout, 1, 1) + (tokens > PAGE ? pagesBytes(layout, 1, 2 * PAGE) : 0);
  const rows = tokens > CHUNK_ROWS ? 4 * tokens * wholePanels(spec.dModel) : 0;
  const pages = Math.max(together, pagesBytes(layout, 1, tokens));
  const all = { weights, scratch: aligned(aligned(scratch) + pages + rows) + stemBytes(spec) };
  return { ...all, total: all.weights + all.scratch };
}

/** An encoder and its calls. */
export const planEncoderFit: PlanKind =
  (where, encoder) =>
  ({ weights: formatsOf }) => {
    const tokens = plannedTokens(encoder.spec);
    const { weights, scratch, total } = planTexts(where, encoder.spec, formatsOf(encoder), tokens);
    return { total, text: `${weights} of weights, ${scratch} of calls on texts of ${tokens} tokens` };
  };

/** Both halves, a run of the encoder, and a session of the decoder with the keys of a source. */
export const planHalvesFit: PlanKind =
  (where, decoder) =>
  ({ weights: formatsOf, maxSeqLen }) => {
    const { spec } = decoder;
    const encoder = decoder.encoder as NonNullable<typeof decoder.encoder>;
    const first = encoder.spec;
    // Where distances take the place of positions, sources may be as long as the decoder's sequences.
    const source = first.embed.positions ? positionsOf(first.embed) : maxSeqLen;
    const reads = planTexts(where, first, formatsOf(encoder), source, 1);
    const writes = planSpec(where, spec, formatsOf(decoder), { maxSeqLen, rows: Math.min(CHUNK_ROWS, maxSeqLen) });
    const keys = spec.blocks.reduce(
      (sum, { cross }) => sum + pagesBytes(pageLayoutOf(where, cross as HfAttentionConfig), 1, source),
      0,
    );
    const weights = reads.weights + writes.weights;
    const [sessions, scratch] = [writes.sessions + keys, reads.scratch + writes.scratch];
    const session = `${sessions} of a session of ${maxSeqLen} tokens with a source of ${source}`;
    return { total: weights + sessions + scratch, text: `${weights} of weights, ${session}, ${scratch} of calls` };
  };

function pageLayoutOf(where: string, { fused: _, ...config }: HfAttentionConfig): PageLayout {
  return createPageLayout(checkConfig(where, config));
}
