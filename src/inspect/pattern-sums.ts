// Sums over the attention patterns of texts, of which a session holds a few rows at a time.

import type { Model } from "../decoder/model.ts";
import type { PackedBlock } from "../decoder/packed.ts";
import { makeSession, type Session } from "../decoder/session.ts";
import { createFloats, type Tensor } from "../tensor/tensor.ts";
import { chunksOf } from "../util/rows.ts";
import { type CheckedText, type HeadDetector, looksIn } from "./detection-texts.ts";
import { addQuery, type Look, type ScoreSum } from "./detectors.ts";
import { forwardWith } from "./forward-with.ts";
import { isLatent } from "./read-weights.ts";
import type { Site } from "./sites.ts";

/** About how many weights of patterns are held at a time. */
const PATTERN_FLOATS = 2 ** 24;

/** Sums of a head over all texts: of each kind, and of each offset. */
export interface HeadSums {
  readonly kinds: readonly ScoreSum[];
  readonly offsets: readonly ScoreSum[];
}

/** Sums of a layer's heads, and of a head without preference there. */
export interface LayerSums {
  /** Keys that a token sees besides its own. */
  readonly window: number;
  readonly heads: readonly HeadSums[];
  readonly even: HeadSums;
}

/** A labelled pair: the token at `key`, and its values [numKvHeads·valueDim] by layer; those of latent attention have none. */
export interface Referred {
  readonly token: number;
  readonly values: ReadonlyMap<number, Float32Array>;
}

/** Sums of 0, for the layers of a model. */
export function createLayerSums({ weights }: Model, kinds: number, maxOffset: number): LayerSums[] {
  const zeros = (length: number) => Array.from({ length }, (): ScoreSum => ({ matched: 0, of: 0 }));
  const create = () => ({ kinds: zeros(kinds), offsets: zeros(maxOffset + 1) });
  return weights.blocks.map(({ attention: { config } }) => ({
    window: config.window.left,
    heads: Array.from({ length: config.numHeads }, create),
    even: create(),
  }));
}

/** Reads all texts and adds them to the sums. Returns what the pairs of labelled texts refer to. */
export function readAll(
  where: string,
  model: Model,
  texts: readonly CheckedText[],
  kinds: readonly [string, HeadDetector][],
  layers: readonly LayerSums[],
): Referred[] {
  const longest = texts.reduce((most, { ids }) => Math.max(most, ids.length), 0);
  const session = makeSession(where, model, { maxSeqLen: longest });
  try {
    return texts.flatMap((text) => {
      session.truncate(0);
      return addText(where, session, text, looksIn(where, text, kinds), layers);
    });
  } finally {
    session.release();
  }
}

function addText(
  where: string,
  session: Session,
  { ids, pairs }: CheckedText,
  looks: readonly Look[],
  layers: readonly LayerSums[],
): Referred[] {
  const n = ids.length;
  const numHeads = layers.reduce((sum, { heads }) => sum + heads.length, 0);
  const patterns = Array.from(layers.keys());
  const { blocks } = session.model.weights;
  const valued = patterns.filter((layer) => pairs.length > 0 && !isLatent((blocks[layer] as PackedBlock).attention));
  const capture = valued.map((layer): Site => ({ at: "v", layer }));
  const values = new Map(pairs.map(({ key }): [number, Map<number, Float32Array>] => [key, new Map()]));
  const wanted = looks.map(() => createFloats(where, "pattern", n));
  const even = createFloats(where, "pattern", n);
  for (const [begin, end] of chunksOf(n, Math.max(1, Math.floor(PATTERN_FLOATS / (numHeads * n))))) {
    const pass = forwardWith(session, ids.slice(begin, end), { patterns, capture, top: 1 });
    for (let i = begin; i < end; i++) {
      for (const [kind, look] of looks.entries()) look(i, wanted[kind] as Float32Array);
      for (const [layer, { heads, even: sums, window }] of layers.entries()) {
        const { data } = pass.patterns[layer] as Tensor;
        for (const [head, own] of heads.entries())
          addRow(own, wanted, i, data, (head * (end - begin) + i - begin) * end);
        const first = Math.max(0, i - window);
        even.fill(0).fill(1 / (i - first + 1), first, i + 1);
        addRow(sums, wanted, i, even, 0);
      }
    }
    for (const [i, { data, shape }] of pass.captured.entries())
      for (const [key, rows] of values)
        if (key >= begin && key < end) {
          const width = shape[1] as number;
          rows.set(valued[i] as number, data.slice((key - begin) * width, (key - begin + 1) * width));
        }
  }
  return pairs.map(({ key }) => ({ token: ids[key] as number, values: values.get(key) as Referred["values"] }));
}

/** Adds the weights of token i, which lie at `at`; `wanted` is where each kind looks. */
function addRow(
  { kinds, offsets }: HeadSums,
  wanted: readonly Float32Array[],
  i: number,
  weights: Float32Array,
  at: number,
): void {
  for (const [kind, sum] of kinds.entries())
    addQuery(sum, "overlap", weights, at, wanted[kind] as Float32Array, 0, 0, i + 1);
  for (let by = 0; by <= i && by < offsets.length; by++) {
    const sum = offsets[by] as ScoreSum;
    sum.matched += weights[at + i - by] as number;
    sum.of++;
  }
}
