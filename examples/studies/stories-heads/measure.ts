// Where the heads of the model of stories look, and what is lost without them.

import { loadKernels } from "headwise";
import {
  detectionPattern,
  type Edit,
  forwardWith,
  type HeadKind,
  headScores,
  meanRows,
  type Tensor,
} from "headwise/inspect";
import { createSession, loadModel, models, type Session } from "headwise/models";
import { TorchRandom } from "../../seeds/torch-random.ts";
import { mean, round } from "../study.ts";
import { describeLook, LOOKS, type Look, MODEL, readStories, type Story } from "./looks.ts";

export interface Head {
  readonly layer: number;
  readonly head: number;
}

/** A number for each head: [layer][head]. */
export type Grid = readonly (readonly number[])[];

/**
 * Shares of words that are still known without the `count` heads that look most, and without as many others, of which none is
 * needed alone.
 */
export interface Group {
  readonly count: number;
  readonly zero: number;
  readonly mean: number;
  /** A share for each random set of other heads. */
  readonly othersZero: readonly number[];
  readonly othersMean: readonly number[];
}

export interface LookResult {
  readonly name: string;
  readonly probes: readonly string[];
  /** Words of a story: *what is looked at*, **what looks**. */
  readonly example: string;
  /** The mean weight on the places to look at, and from these on the word before them. */
  readonly weights: Grid;
  readonly before: Grid;
  /** The same of a head that weighs all places alike. */
  readonly uniform: number;
  /** Words that were asked for, and the share of them that is known with all heads. */
  readonly targets: number;
  readonly accuracy: number;
  /** The share that a guess among the words of the right kind in the story would know. */
  readonly chance: number;
  /** The share without the head: with its output set to 0, and to its mean. */
  readonly withoutZero: Grid;
  readonly withoutMean: Grid;
  readonly groups: readonly Group[];
}

export interface StoriesHeads {
  readonly stories: { readonly looked: number; readonly tested: number };
  /** Scores of heads by the name of the pattern. */
  readonly kinds: Readonly<Record<string, Grid>>;
  readonly looks: readonly LookResult[];
}

const KINDS: Readonly<Record<string, HeadKind>> = {
  "previous word": "previous",
  "two back": { offset: 2 },
  "three back": { offset: 3 },
  itself: { offset: 0 },
  "same word before": "duplicate",
  induction: "induction",
  "<s>": "first",
};
const COUNTS = [1, 2, 4, 6, 8];
/** A head is needed alone if without it so much less is known. */
export const NEEDED = 0.1;
const OTHER_SETS = 5;
/** Stories that are read for each set of heads. */
const MOST_STORIES = 60;

/** All heads by their weight, the largest first. */
export const byWeight = (weights: Grid): Head[] =>
  weights
    .flatMap((row, layer) => row.map((_, head): Head => ({ layer, head })))
    .sort((a, b) => weights[b.layer]![b.head]! - weights[a.layer]![a.head]!);

export async function measureStoriesHeads(_cache: URL, report: (line: string) => void): Promise<StoriesHeads> {
  const kernels = await loadKernels({ deterministic: true, models });
  const session = createSession(await loadModel(kernels, MODEL), { maxSeqLen: 192 });
  const stories = readStories();
  const [looked, tested] = [stories.slice(0, stories.length / 2), stories.slice(stories.length / 2)];
  report(`${looked.length} stories: where heads look`);
  const seen = lookAt(session, looked);
  const looks = LOOKS.map((look, i) => {
    report(`${tested.length} other stories: ${look.name}`);
    const example = exampleOf(look, looked);
    return {
      name: look.name,
      probes: look.probes,
      example,
      ...seen.looks[i]!,
      ...withoutHeads(session, tested, look, seen, i),
    };
  });
  kernels.release();
  return { stories: { looked: looked.length, tested: tested.length }, kinds: seen.kinds, looks };
}

function exampleOf(look: Look, stories: readonly Story[]): string {
  const found = stories.flatMap((story) =>
    story.probes.filter(({ name }) => look.probes.includes(name)).map(({ at }) => describeLook(look, story, at)),
  );
  return found.reduce((short, text) => (text.length < short.length ? text : short));
}

interface Seen {
  readonly kinds: Record<string, Grid>;
  readonly looks: readonly Pick<LookResult, "weights" | "before" | "uniform">[];
  /** The mean output [headDim] of a head over all words. */
  meanOf(head: Head): Float32Array;
}

/** One pass over the stories: weights of heads on the places of each look, their scores by patterns, their mean outputs. */
function lookAt(session: Session, stories: readonly Story[]): Seen {
  const layers = Array.from({ length: session.model.layers }, (_, layer) => layer);
  const outputs: Tensor[][] = layers.map(() => []);
  const kinds = Object.keys(KINDS).map(() => new Mean());
  const weights = LOOKS.map(() => new Mean());
  const before = LOOKS.map(() => new Mean());
  const uniform = LOOKS.map(() => new Mean());
  for (const { words, ids, probes } of stories) {
    session.truncate(0);
    const capture = layers.map((layer) => ({ at: "z", layer }) as const);
    const { patterns, captured } = forwardWith(session, ids, { patterns: layers, capture });
    for (const layer of layers) outputs[layer]!.push(captured[layer]!);
    for (const [i, kind] of Object.values(KINDS).entries()) {
      const detection = detectionPattern(kind, ids);
      kinds[i]!.add(patterns.map((pattern) => headScores(pattern, detection)));
    }
    for (const [i, look] of LOOKS.entries())
      for (const { at } of probes.filter(({ name }) => look.probes.includes(name))) {
        const [from, to] = [look.from(words, at), look.to(words, at)];
        weights[i]!.add(patterns.map((pattern) => weightsOn(pattern, from, to)));
        for (const place of to) before[i]!.add(patterns.map((pattern) => weightsOn(pattern, place, [place - 1])));
        uniform[i]!.add([[to.length / (from + 1)]]);
      }
  }
  const means = outputs.map((rows) => meanRows(joinRows(rows)));
  return {
    kinds: Object.fromEntries(Object.keys(KINDS).map((name, i) => [name, kinds[i]!.grid()])),
    looks: LOOKS.map((_, i) => ({
      ...{ weights: weights[i]!.grid(), before: before[i]!.grid() },
      uniform: uniform[i]!.grid()[0]![0]!,
    })),
    meanOf({ layer, head }) {
      const headDim = means[layer]!.length / kinds[0]!.grid()[layer]!.length;
      return means[layer]!.subarray(head * headDim, (head + 1) * headDim);
    },
  };
}

/** What each head of a pattern [heads, n, n] gives from one place to some. */
function weightsOn({ data, shape }: Tensor, from: number, to: readonly number[]): number[] {
  const [heads, n] = shape as [number, number, number];
  return Array.from({ length: heads }, (_, head) => to.reduce((sum, at) => sum + data[(head * n + from) * n + at]!, 0));
}

/** Tensors [rows, width] one below the other. */
function joinRows(parts: readonly Tensor[]): Tensor {
  const rows = parts.reduce((sum, { shape }) => sum + shape[0]!, 0);
  const width = parts[0]!.shape[1]!;
  const data = new Float32Array(rows * width);
  let at = 0;
  for (const part of parts) {
    data.set(part.data, at);
    at += part.data.length;
  }
  return { data, shape: [rows, width] };
}

/** The mean of grids of one shape. */
class Mean {
  #sums: number[][] = [];
  #count = 0;

  add(grid: Grid): void {
    this.#sums = grid.map((row, i) => row.map((value, j) => value + (this.#sums[i]?.[j] ?? 0)));
    this.#count++;
  }

  grid(): Grid {
    return this.#sums.map((row) => row.map((sum) => round(sum / this.#count)));
  }
}

type Ablation = "zero" | "mean";

/** What is known of a look's words without single heads, without those that look most, and without as many others. */
function withoutHeads(session: Session, stories: readonly Story[], { probes }: Look, seen: Seen, look: number) {
  const asked = stories
    .flatMap((story) => {
      const targets = story.probes.filter(({ name }) => probes.includes(name));
      return targets.length === 0 ? [] : [{ ids: story.ids.slice(0, targets.at(-1)!.at + 1), targets }];
    })
    .slice(0, MOST_STORIES);
  const all = asked.flatMap(({ targets }) => targets);
  const share = (heads: readonly Head[], by: Ablation) => {
    const edits = heads.map((head): Edit => ({ at: "z", ...head, set: by === "zero" ? 0 : seen.meanOf(head) }));
    const hits = asked.flatMap(({ ids, targets }) => {
      session.truncate(0);
      const { ids: best } = forwardWith(session, ids, { rows: "all", top: 1, edits });
      return targets.map(({ at }) => Number(best![at - 1] === ids[at]));
    });
    return round(mean(hits));
  };
  const { weights } = seen.looks[look]!;
  const gridOf = (by: Ablation) => weights.map((row, layer) => row.map((_, head) => share([{ layer, head }], by)));
  const [withoutZero, withoutMean] = [gridOf("zero"), gridOf("mean")];
  const accuracy = share([], "zero");
  const order = byWeight(weights);
  const groups = COUNTS.map((count): Group => {
    const top = order.slice(0, count);
    const others = order.slice(count).filter(({ layer, head }) => accuracy - withoutZero[layer]![head]! < NEEDED);
    const sets = Array.from({ length: OTHER_SETS }, (_, set) => {
      const draws = new TorchRandom(set).randn([others.length]).data;
      const shuffled = others.map((head, i) => ({ head, draw: draws[i]! })).sort((a, b) => a.draw - b.draw);
      return shuffled.slice(0, count).map(({ head }) => head);
    });
    return {
      count,
      ...{ zero: share(top, "zero"), mean: share(top, "mean") },
      othersZero: sets.map((set) => share(set, "zero")),
      othersMean: sets.map((set) => share(set, "mean")),
    };
  });
  const chance = round(mean(all.map((target) => target.chance)));
  return { targets: all.length, accuracy, chance, withoutZero, withoutMean, groups };
}
