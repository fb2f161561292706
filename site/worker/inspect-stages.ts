// The stages of one head in a layer of the model, for a query and a key: what the pass computed on the way.

import { type ScorePlace, sitesOf, type Tensor } from "headwise/inspect";
import type { Model } from "headwise/models";
import { visible } from "../../src/base/util/strings.ts";
import { shownReading } from "./inspect.ts";
import { type LayerTrace, traceLayer } from "./inspect-trace.ts";
import { loadedModel, onRelease } from "./load.ts";

/** Floats of a stage: one row of a tensor. */
export interface StageRow {
  readonly name: string;
  readonly values: Float32Array;
  /** Whether there is a value for each token of the text. */
  readonly ofTokens?: boolean;
}

export interface Stage {
  readonly name: string;
  readonly text: string;
  readonly formula: string;
  /** Tensors of the stage, as "q [8, 17, 16]". */
  readonly shapes: readonly string[];
  readonly rows: readonly StageRow[];
}

/** The stages of a cell, in the pass without changes. */
export function stagesTask(place: ScorePlace): Stage[] {
  const { ids } = shownReading();
  const { model, tokenizer } = loadedModel();
  const nameOf = (at: number) => `“${visible(tokenizer.decode([ids[at] as number], { keepSpecial: true }))}” at ${at}`;
  const { x, stages } = traced(model, ids, place.layer);
  const heads = sitesOf(model, "z").filter(({ layer }) => layer === place.layer).length;
  const width = x.length / ids.length;
  const input = {
    name: `x of ${nameOf(place.query)}`,
    values: x.slice(place.query * width, (place.query + 1) * width),
  };
  return stages.map(({ name, text, formula, tensors }): Stage => {
    const rows = Object.entries(tensors).flatMap(([letter, tensor]) => rowsOf(letter, tensor, heads, place, nameOf));
    return {
      ...{ name, text, formula, rows: name === "project" ? [input, ...rows] : rows },
      shapes: Object.entries(tensors).map(([letter, { shape }]) => `${letter} [${shape.join(", ")}]`),
    };
  });
}

/** Tensors with a row for each key; `kv`, `c` and `r` are those of latent attention: the projection, the latent and the rotated key. */
const OF_KEYS: readonly string[] = ["k", "v", "kv", "c", "r"];

/**
 * What a tensor of a stage has for the cell: of all heads [tokens, width], or of its head [heads, tokens, width], where keys and
 * values may have fewer heads than the `heads` of queries.
 */
function rowsOf(
  letter: string,
  { data, shape }: Tensor,
  heads: number,
  { head, query, key }: ScorePlace,
  nameOf: (at: number) => string,
): StageRow[] {
  const [isKey, isPair] = [OF_KEYS.includes(letter), letter === "scores" || letter === "weights"];
  const [width, n] = [shape.at(-1) as number, shape.at(-2) as number];
  const own = shape.length === 3 ? Math.floor((head * (shape[0] as number)) / heads) : 0;
  const at = (own * n + (isKey ? key : query)) * width;
  const values = data.slice(at, at + width) as Float32Array;
  const of = shape.length === 3 ? "" : " of all heads,";
  if (!isPair) return [{ name: `${letter}${of} of ${nameOf(isKey ? key : query)}`, values }];
  return [
    { name: `${letter} of ${nameOf(query)} for ${nameOf(key)}`, values: values.slice(key, key + 1) },
    { name: `${letter} of ${nameOf(query)} for each token`, values, ofTokens: true },
  ];
}

let kept: { readonly ids: readonly number[]; readonly layer: number; readonly trace: LayerTrace } | undefined;
onRelease(() => {
  kept = undefined;
});

/** The trace of a layer; kept for the next cell. */
function traced(model: Model, ids: readonly number[], layer: number): LayerTrace {
  if (kept?.ids !== ids || kept.layer !== layer)
    kept = { ids, layer, trace: traceLayer(model, ids, layer, { edits: [], cache: "f32" }) };
  return kept.trace;
}
