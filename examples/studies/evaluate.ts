// What headwise finds of a trained model: its loss, how far its logits are from PyTorch's, and where its heads look.

import { openAsBlob, readFileSync } from "node:fs";
import { fileURLToPath } from "node:url";
import { type Kernels, loadKernels } from "headwise";
import { detectionPattern, type Edit, forwardWith, headScores, type Tensor } from "headwise/inspect";
import { latent } from "headwise/latent";
import { createSession, loadModel, models, type Session } from "headwise/models";
import { openSafetensors, toFloats } from "headwise/weights";
import { lossesOf } from "./losses.ts";
import { mean } from "./study.ts";

/** Sequences, and what follows each of their tokens: -100 where a model is not asked for it. */
export interface Rows {
  readonly tokens: readonly (readonly number[])[];
  readonly targets: readonly (readonly number[])[];
}

/** The kernels that every engine computes alike. */
export const loadStudyKernels = (): Promise<Kernels> => loadKernels({ deterministic: true, models, latent });

export const readJson = <Content>(url: URL): Content => JSON.parse(readFileSync(url, "utf8"));

/** Calls `measure` with a session of the model in a folder. */
export async function withModel<Result>(
  kernels: Kernels,
  folder: URL,
  measure: (session: Session) => Result | Promise<Result>,
): Promise<Result> {
  using model = await loadModel(kernels, fileURLToPath(folder));
  using session = createSession(model);
  return await measure(session);
}

/** The logits [length, vocabSize] of each sequence, with interventions or without. */
export function logitsOf(session: Session, { tokens }: Rows, edits: readonly Edit[] = []): Float32Array[] {
  return tokens.map((ids) => {
    session.truncate(0);
    return forwardWith(session, ids, { rows: "all", edits }).logits;
  });
}

/** The mean of -log2 of the probability of what is asked for. */
export function bitsOf(logits: readonly Float32Array[], { targets }: Rows): number {
  return mean(targets.flatMap((wanted, row) => lossesOf(logits[row]!, wanted))) / Math.LN2;
}

/** The largest difference of a logit from those that PyTorch gave, which lie beside the model. */
export async function differenceOf(logits: readonly Float32Array[], folder: URL): Promise<number> {
  const file = await openSafetensors(await openAsBlob(fileURLToPath(new URL("logits.safetensors", folder))));
  const theirs = toFloats(await file.read("logits"));
  return logits.reduce((largest, own, row) => {
    return own.reduce((most, logit, i) => Math.max(most, Math.abs(logit - theirs[row * own.length + i]!)), largest);
  }, 0);
}

/** Sequences by which heads are scored. */
const SCORED = 32;

/** Where a head looks. */
export interface ScoredHead {
  readonly layer: number;
  readonly head: number;
  /** Share of its attention on the previous token. */
  readonly previous: number;
  /** Share on the answer, which is behind the earlier place of the same token, of the tokens that are asked for one. */
  readonly answer: number;
}

/** The scores of all heads, layer by layer. */
export function scoreHeads(session: Session, { tokens, targets }: Rows): ScoredHead[] {
  const layers = Array.from({ length: session.model.layers }, (_, layer) => layer);
  const scored = tokens.slice(0, SCORED).map((ids, row) => {
    session.truncate(0);
    const { patterns } = forwardWith(session, ids, { patterns: layers });
    const answers = answerPattern(ids, targets[row]!);
    return patterns.flatMap((pattern, layer) => {
      const answer = headScores(pattern, answers, { measure: "overlap" });
      return headScores(pattern, detectionPattern("previous", ids)).map((previous, head) => {
        return { layer, head, previous, answer: answer[head]! };
      });
    });
  });
  const meanOf = (head: number, of: "previous" | "answer") => mean(scored.map((heads) => heads[head]![of]));
  return scored[0]!.map(({ layer, head }, i) => {
    return { layer, head, previous: meanOf(i, "previous"), answer: meanOf(i, "answer") };
  });
}

/** Where the tokens find their answer that are asked for one: behind the earlier place of the same token. */
export function answerPattern(ids: readonly number[], targets: readonly number[]): Tensor {
  const { data, shape } = detectionPattern("induction", ids);
  return { data: data.map((look, i) => (targets[Math.floor(i / ids.length)]! < 0 ? 0 : look)), shape };
}
