// Why a head gave a token a weight: its score, by what wrote to the query and to the key.

import { type CapturedRun, type Component, captureRun, explainScore, type ScorePlace } from "headwise/inspect";
import { createSession } from "headwise/models";
import { shownReading } from "./inspect.ts";
import { loadedModel, onRelease } from "./load.ts";

/** A part of a score. */
export interface Source {
  readonly name: string;
  readonly part: number;
}

/** A score, split twice: each list sums to `score` less softcap and ALiBi. */
export interface Why {
  readonly score: number;
  readonly byQuery: readonly Source[];
  readonly byKey: readonly Source[];
  /** What is no part of either list: softcap and ALiBi, where they are not 0. */
  readonly more: readonly Source[];
  /** The largest parts: what wrote to the query, with what wrote to the key. */
  readonly pairs: readonly Source[];
}

/** Parts that have a bar; the others are one together. */
const [BARS, PAIRS] = [7, 4];
/** The least part of a pair that is named. */
const LEAST = 0.005;

let run: { readonly ids: readonly number[]; readonly captured: CapturedRun } | undefined;
onRelease(release);

function release(): void {
  run?.captured.release();
  run = undefined;
}

/** The score of a cell, in the pass without changes: captured runs have none. */
export function whyTask(place: ScorePlace): Why {
  const { score, softcap, alibi, components, parts, byQuery, byKey } = explainScore(capturedRun(), place);
  const named = components.query.flatMap((query, i) =>
    components.key.map((key, j) => {
      const part = parts[i * components.key.length + j] as number;
      return { name: `${nameOf(query)} × ${nameOf(key)}`, part };
    }),
  );
  const more = [
    { name: "softcap", part: softcap },
    { name: "ALiBi, for the distance", part: alibi },
  ];
  return {
    score,
    byQuery: largest(components.query, byQuery),
    byKey: largest(components.key, byKey),
    more: more.filter(({ part }) => part !== 0),
    pairs: named
      .filter(({ part }) => Math.abs(part) >= LEAST)
      .sort(bySize)
      .slice(0, PAIRS),
  };
}

/** All rows of the text that is shown; kept for the next cell. */
export function capturedRun(): CapturedRun {
  const { ids } = shownReading();
  if (run?.ids !== ids) {
    release();
    const session = createSession(loadedModel().model);
    try {
      run = { ids, captured: captureRun(session, ids) };
    } finally {
      session.release();
    }
  }
  return run.captured;
}

const bySize = (a: Source, b: Source): number => Math.abs(b.part) - Math.abs(a.part);

function largest(components: readonly Component[], parts: Float64Array): Source[] {
  const all = components.map((component, i) => ({ name: nameOf(component), part: parts[i] as number })).sort(bySize);
  const rest = all.slice(BARS);
  if (rest.length < 2) return all;
  const sum = rest.reduce((total, { part }) => total + part, 0);
  return [...all.slice(0, BARS), { name: `${rest.length} others`, part: sum }];
}

function nameOf({ kind, layer, head, at }: Component): string {
  switch (kind) {
    case "embed":
      return "the token itself";
    case "posEmbed":
      return "its position";
    case "head":
      return `head ${layer}.${head}`;
    case "mlp":
      return `MLP ${layer}`;
    case "bias":
      return layer === undefined ? `biases at ${at}` : `biases of layer ${layer} (${at})`;
    default:
      return "rounding";
  }
}
