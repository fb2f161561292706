// The stages of one head in a layer of the model, for a query and a key: what the pass computed on the way.

import { explainScore, forwardWith, type ScorePlace, type Site, sitesOf, type Tensor } from "headwise/inspect";
import { createSession, type Model } from "headwise/models";
import { shownReading } from "./inspect.ts";
import { capturedRun } from "./inspect-why.ts";
import { loadedModel } from "./load.ts";

/** Floats of a stage: one row of a tensor. */
export interface StageRow {
  readonly name: string;
  readonly values: Float32Array;
}

export interface Stage {
  readonly name: string;
  readonly text: string;
  /** Tensors of the stage, as "q [17, 8 · 16]". */
  readonly shapes: readonly string[];
  readonly rows: readonly StageRow[];
}

const SITES = ["attnIn", "q", "k", "v", "z", "attnOut"] as const;
type StageSite = (typeof SITES)[number];

/** The nine stages of a cell, in the pass without changes. */
export function stagesTask({ layer, head, query, key }: ScorePlace): Stage[] {
  const { ids, patterns } = shownReading();
  const { model } = loadedModel();
  const n = ids.length;
  const rowsAt = captured(model, ids, layer);
  const count = (at: "q" | "k") => sitesOf(model, at).filter((site) => site.layer === layer).length;
  const [heads, kvHeads] = [count("q"), Math.max(1, count("k"))];
  const group = Math.floor((head * kvHeads) / heads);
  const whole = (at: StageSite, token: number): Float32Array => {
    const { data, shape } = rowsAt[at];
    const width = shape[1] as number;
    return data.slice(token * width, (token + 1) * width);
  };
  const part = (at: "q" | "k" | "v" | "z", token: number): Float32Array => {
    const row = whole(at, token);
    const [of, index] = at === "q" || at === "z" ? [heads, head] : [kvHeads, group];
    const dim = row.length / of;
    return row.slice(index * dim, (index + 1) * dim);
  };
  const shapeOf = (at: StageSite, of = 1) => {
    const width = rowsAt[at].shape[1] as number;
    return `${at} [${n}, ${of > 1 ? `${of} · ${width / of}` : width}]`;
  };
  const split = (at: StageSite, of: number) => `${at} [${of}, ${n}, ${(rowsAt[at].shape[1] as number) / of}]`;
  const shared =
    heads === kvHeads
      ? ""
      : ` ${heads / kvHeads} heads of queries share one of keys and values: this head has number ${group}.`;
  const weights = (patterns[layer] as Float32Array).slice((head * n + query) * n, (head * n + query + 1) * n);
  const { score } = explainScore(capturedRun(), { layer, head, query, key });
  return [
    {
      name: "input",
      text: "What attention reads: the residual of each token, after the layer's norm.",
      shapes: [shapeOf("attnIn")],
      rows: [
        { name: "the query's token", values: whole("attnIn", query) },
        { name: "the key's token", values: whole("attnIn", key) },
      ],
    },
    {
      name: "project",
      text: "Three matrices make queries, keys and values of all heads, side by side.",
      shapes: [shapeOf("q", heads), shapeOf("k", kvHeads), shapeOf("v", kvHeads)],
      rows: [
        { name: "q of the query", values: whole("q", query) },
        { name: "k of the key", values: whole("k", key) },
        { name: "v of the key", values: whole("v", key) },
      ],
    },
    {
      name: "split",
      text: `Each head takes its own part of them.${shared}`,
      shapes: [split("q", heads), split("k", kvHeads), split("v", kvHeads)],
      rows: [
        { name: "q of this head", values: part("q", query) },
        { name: "k of this head", values: part("k", key) },
        { name: "v of this head", values: part("v", key) },
      ],
    },
    {
      name: "scores",
      text: `The query times each key, scaled, after norms and the rotation by position that the model may have: ${score.toFixed(3)} here.`,
      shapes: [`scores [${heads}, ${n}, ${n}]`],
      rows: [{ name: "score of this query and key", values: Float32Array.of(score) }],
    },
    {
      name: "mask",
      text: `Keys that come later are left out: at most ${query + 1} of ${n} are seen from here, fewer in layers with a window.`,
      shapes: [`mask [${n}, ${n}]`],
      rows: [
        {
          name: "may be seen, 1, or comes later, 0",
          values: Float32Array.from({ length: n }, (_, j) => Number(j <= query)),
        },
      ],
    },
    {
      name: "softmax",
      text: `Scores become weights that sum to 1: this key has ${(weights[key] as number).toFixed(3)}.`,
      shapes: [`weights [${heads}, ${n}, ${n}]`],
      rows: [{ name: "weights of this query on all keys", values: weights }],
    },
    {
      name: "sum",
      text: "The values of all keys, each times its weight.",
      shapes: [split("z", heads)],
      rows: [{ name: "z of this head", values: part("z", query) }],
    },
    {
      name: "merge",
      text: "What all heads gave, side by side again.",
      shapes: [shapeOf("z", heads)],
      rows: [{ name: "z of all heads", values: whole("z", query) }],
    },
    {
      name: "output",
      text: "A last matrix mixes the heads. The result is added to the residual.",
      shapes: [shapeOf("attnOut")],
      rows: [{ name: "what attention adds", values: whole("attnOut", query) }],
    },
  ];
}

let kept:
  | {
      readonly model: Model;
      readonly ids: readonly number[];
      readonly layer: number;
      readonly rows: Record<StageSite, Tensor>;
    }
  | undefined;

/** The rows of a layer; kept for the next cell. */
function captured(model: Model, ids: readonly number[], layer: number): Record<StageSite, Tensor> {
  if (kept?.model === model && kept.ids === ids && kept.layer === layer) return kept.rows;
  const session = createSession(model);
  try {
    const capture = SITES.map((at): Site => ({ at, layer }));
    const { captured: found } = forwardWith(session, ids, { capture });
    const rows = Object.fromEntries(SITES.map((at, i) => [at, found[i]])) as Record<StageSite, Tensor>;
    kept = { model, ids, layer, rows };
    return rows;
  } finally {
    session.release();
  }
}
