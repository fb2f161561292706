// The loss, the in-context score and the scores of all heads at each checkpoint, and what the circuit is made of at the end.

import { fileURLToPath } from "node:url";
import { detectionPattern, type Edit, forwardWith, headScores, type Tensor } from "headwise/inspect";
import type { Session } from "headwise/models";
import { loadStudyKernels, readJson, withModel } from "../evaluate.ts";
import { lossesOf, nextOf } from "../losses.ts";
import { runPython } from "../python.ts";
import { mean, round } from "../study.ts";
import { type Checkpoint, type Circuit, type FormationResult, type Measured, type Part, PLACES } from "./result.ts";

interface Training extends Pick<FormationResult, "setup" | "entropy"> {
  readonly sequences: readonly (readonly number[])[];
  readonly checkpoints: readonly {
    readonly layers: number;
    readonly seed: number;
    readonly step: number;
    readonly loss: number;
  }[];
}

export async function measure(cache: URL, report: (line: string) => void): Promise<FormationResult> {
  await runPython(new URL("train.py", import.meta.url), ["--out", fileURLToPath(cache)], report);
  const { setup, sequences, entropy, checkpoints }: Training = readJson(new URL("training.json", cache));
  const lastStep = Math.max(...checkpoints.map(({ step }) => step));
  const kernels = await loadStudyKernels();
  const texts = sequences.map((ids) => describeText(ids, setup.segment));
  const runs: { layers: number; seed: number; checkpoints: Checkpoint[]; circuit?: Circuit }[] = [];
  let difference = 0;
  for (const { layers, seed, step, loss } of checkpoints) {
    if (step === 0) {
      report(`${layers} layers, seed ${seed}: measuring`);
      runs.push({ layers, seed, checkpoints: [] });
    }
    const run = runs.at(-1)!;
    await withModel(kernels, new URL(`${layers}-${seed}-${step}/`, cache), (session) => {
      const measured = measureTexts(session, texts);
      difference = Math.max(difference, Math.abs(loss - measured.loss));
      run.checkpoints.push({ step, ...rounded(measured) });
      if (step === lastStep && layers === 2) run.circuit = dissect(session, texts, measured);
    });
  }
  kernels.release();
  return {
    ...{ setup, sequences: sequences.length, entropy: round(entropy) },
    difference: Number(difference.toPrecision(2)),
    runs,
  };
}

function rounded({ loss, early, late, previous, induction }: Measured): Measured {
  return { loss: round(loss), early: round(early), late: round(late), previous, induction };
}

/** A sequence, and what heads may look at in it: patterns [n, n]. */
interface Text {
  readonly ids: readonly number[];
  readonly segment: number;
  readonly previous: Tensor;
  readonly induction: Tensor;
}

const describeText = (ids: readonly number[], segment: number): Text => {
  return { ids, segment, previous: detectionPattern("previous", ids), induction: detectionPattern("induction", ids) };
};

/** The attention of the tokens that have something to look at. */
const scoresOf = (pattern: Tensor, detection: Tensor) => headScores(pattern, detection, { measure: "overlap" });

/** @param editsOf What to change in the pass of a text. */
function measureTexts(
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
    const losses = lossesOf(logits, nextOf(text.ids));
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
  const edited = (edits: (text: Text) => readonly Edit[]) => measureTexts(session, texts, edits);
  return {
    ...{ previousHead, inductionHead, all: partOf([whole]) },
    withoutPrevious: partOf([edited(() => [without(previousHead)])]),
    withoutOther: partOf(others.map((head) => edited(() => [without(head)]))),
    ...{ keys: partOf([edited(path("k"))]), queries: partOf([edited(path("q"))]), values: partOf([edited(path("v"))]) },
  };
}
