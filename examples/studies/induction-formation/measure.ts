// The loss, the in-context score and the scores of all heads at each checkpoint, and what the circuit is made of at the end.

import { fileURLToPath } from "node:url";
import { detectionPattern, type Edit, forwardWith, headScores, type Tensor } from "headwise/inspect";
import type { Session } from "headwise/models";
import { loadStudyKernels, readJson, withModel } from "../evaluate.ts";
import { lossesOf } from "../losses.ts";
import { runPython } from "../python.ts";
import { mean, round } from "../study.ts";

/** Means over the measured sequences. */
export interface Measured {
  /** Nats a token, at all places but the first. */
  readonly loss: number;
  /** At the last PLACES places of the first copy of the segment, and of the second. */
  readonly early: number;
  readonly late: number;
  /** [layer][head]: the weight of the previous token. */
  readonly previous: readonly (readonly number[])[];
  /** [layer][head]: the weight of what followed the same token before, where it came before. */
  readonly induction: readonly (readonly number[])[];
}

export interface Checkpoint extends Measured {
  readonly step: number;
}

/** The late loss, and the score of the induction head. */
export interface Part {
  readonly late: number;
  readonly induction: number;
}

/** The best previous-token head of layer 0, the best induction head of layer 1, and what is left without a part of the circuit. */
export interface Circuit {
  readonly previousHead: number;
  readonly inductionHead: number;
  readonly all: Part;
  readonly withoutPrevious: Part;
  /** Without one other head of layer 0: the mean over these. */
  readonly withoutOther: Part;
  /** With keys, queries or values of layer 1 as they are without the previous-token head. */
  readonly keys: Part;
  readonly queries: Part;
  readonly values: Part;
}

export interface Run {
  readonly layers: number;
  readonly seed: number;
  readonly checkpoints: readonly Checkpoint[];
  /** Of two layers. */
  readonly circuit?: Circuit;
}

export interface InductionFormation {
  readonly segment: number;
  readonly sequences: number;
  /** Nats of a token that only its frequency tells. */
  readonly entropy: number;
  /** The largest difference between the losses of PyTorch and of headwise over all checkpoints. */
  readonly difference: number;
  readonly runs: readonly Run[];
}

interface Training {
  readonly segment: number;
  readonly sequences: readonly (readonly number[])[];
  readonly entropy: number;
  readonly checkpoints: readonly {
    readonly layers: number;
    readonly seed: number;
    readonly step: number;
    readonly loss: number;
  }[];
}

/** Places at the end of a copy of the segment. */
export const PLACES = 24;

export async function measureInductionFormation(
  cache: URL,
  report: (line: string) => void,
): Promise<InductionFormation> {
  await runPython(new URL("train.py", import.meta.url), ["--out", fileURLToPath(cache)], report);
  const { segment, sequences, entropy, checkpoints }: Training = readJson(new URL("training.json", cache));
  const lastStep = Math.max(...checkpoints.map(({ step }) => step));
  const kernels = await loadStudyKernels();
  const texts = sequences.map((ids) => describeText(ids, segment));
  const runs: { layers: number; seed: number; checkpoints: Checkpoint[]; circuit?: Circuit }[] = [];
  let difference = 0;
  for (const { layers, seed, step, loss } of checkpoints) {
    if (step === 0) {
      report(`${layers} layers, seed ${seed}: measuring`);
      runs.push({ layers, seed, checkpoints: [] });
    }
    const run = runs.at(-1)!;
    await withModel(kernels, new URL(`${layers}-${seed}-${step}/`, cache), (session) => {
      const measured = measure(session, texts);
      difference = Math.max(difference, Math.abs(loss - measured.loss));
      run.checkpoints.push({ step, ...rounded(measured) });
      if (step === lastStep && layers === 2) run.circuit = dissect(session, texts, measured);
    });
  }
  kernels.release();
  return {
    segment,
    sequences: sequences.length,
    entropy: round(entropy),
    difference: Number(difference.toPrecision(2)),
    runs,
  };
}

function rounded({ loss, early, late, previous, induction }: Measured): Measured {
  return { loss: round(loss), early: round(early), late: round(late), previous, induction };
}

/** A sequence, and what heads may look at in it. */
interface Text {
  readonly ids: readonly number[];
  readonly segment: number;
  readonly previous: Detection;
  readonly induction: Detection;
}

/** A pattern [n, n], and the tokens that have something to look at in it. */
interface Detection {
  readonly pattern: Tensor;
  readonly rows: number;
}

function describeText(ids: readonly number[], segment: number): Text {
  const detect = (kind: "previous" | "induction"): Detection => {
    const pattern = detectionPattern(kind, ids);
    const rows = ids.filter((_, i) => pattern.data.subarray(i * ids.length, (i + 1) * ids.length).includes(1)).length;
    return { pattern, rows };
  };
  return { ids, segment, previous: detect("previous"), induction: detect("induction") };
}

/** `headScores` shares all attention; what is asked for is that of the tokens that have something to look at. */
const scoresOf = (pattern: Tensor, { pattern: detection, rows }: Detection) =>
  headScores(pattern, detection).map((score) => (score * pattern.shape[1]!) / rows);

/** @param editsOf What to change in the pass of a text. */
function measure(
  session: Session,
  texts: readonly Text[],
  editsOf: (text: Text) => readonly Edit[] = () => [],
): Measured {
  const layers = Array.from({ length: session.model.layers }, (_, layer) => layer);
  const passes = texts.map((text) => {
    session.truncate(0);
    const { logits, patterns } = forwardWith(session, text.ids, {
      rows: "all",
      patterns: layers,
      edits: editsOf(text),
    });
    const losses = lossesOf(logits, text.ids);
    const { segment } = text;
    return {
      loss: mean(losses),
      early: mean(losses.slice(segment - 1 - PLACES, segment - 1)),
      late: mean(losses.slice(-PLACES)),
      previous: patterns.map((pattern) => scoresOf(pattern, text.previous)),
      induction: patterns.map((pattern) => scoresOf(pattern, text.induction)),
    };
  });
  const grid = (of: "previous" | "induction") =>
    passes[0]![of].map((row, layer) =>
      row.map((_, head) => round(mean(passes.map((pass) => pass[of][layer]![head]!)))),
    );
  const number = (of: "loss" | "early" | "late") => mean(passes.map((pass) => pass[of]));
  return {
    ...{ loss: number("loss"), early: number("early"), late: number("late") },
    ...{ previous: grid("previous"), induction: grid("induction") },
  };
}

/** What of layer 0 the induction head needs, and by which of its projections. */
function dissect(session: Session, texts: readonly Text[], whole: Measured): Circuit {
  const largest = (scores: readonly number[]) => scores.indexOf(Math.max(...scores));
  const [previousHead, inductionHead] = [largest(whole.previous[0]!), largest(whole.induction[1]!)];
  const without = (head: number): Edit => ({ at: "z", layer: 0, head, set: 0 });
  /** Only q, k or v of layer 1 become what they are without the head. */
  const path = (at: "q" | "k" | "v") => (text: Text) => {
    session.truncate(0);
    const capture = [{ at, layer: 1 }] as const;
    const { captured } = forwardWith(session, text.ids, { edits: [without(previousHead)], capture });
    session.truncate(0);
    return [{ at, layer: 1, set: captured[0]! }];
  };
  const others = whole.previous[0]!.flatMap((_, head) => (head === previousHead ? [] : [head]));
  const partOf = (measured: readonly Measured[]): Part => ({
    late: round(mean(measured.map(({ late }) => late))),
    induction: round(mean(measured.map(({ induction }) => induction[1]![inductionHead]!))),
  });
  const edited = (edits: (text: Text) => readonly Edit[]) => measure(session, texts, edits);
  return {
    ...{ previousHead, inductionHead, all: partOf([whole]) },
    withoutPrevious: partOf([edited(() => [without(previousHead)])]),
    withoutOther: partOf(others.map((head) => edited(() => [without(head)]))),
    ...{ keys: partOf([edited(path("k"))]), queries: partOf([edited(path("q"))]), values: partOf([edited(path("v"))]) },
  };
}
