import { fileURLToPath } from "node:url";
import {
  bitsOf,
  differenceOf,
  loadStudyKernels,
  logitsOf,
  type Results,
  type Rows,
  readJson,
  scoreHeads,
  type Trained,
  withModel,
} from "../evaluate.ts";
import { runPython } from "../python.ts";
import { round, type Study } from "../study.ts";
import { drawCurves, drawHeads } from "./figures.ts";
import { writePage } from "./page.ts";

export type Task = "fixed" | "varied";

/** Models of one shape, trained on one task, in the order of the seeds. */
export interface Group {
  readonly task: Task;
  readonly layers: number;
  readonly heads: number;
  readonly positions: "rope" | "learned" | "none";
  /** Validation loss in bits, by headwise. */
  readonly bits: readonly number[];
  /** The same on the other task, which the model was not trained on. */
  readonly otherBits: readonly number[];
  /** Share of attention on the answer, and on the previous token, of the head in which it is largest. */
  readonly answer: readonly number[];
  readonly previous: readonly number[];
  /** Validation loss in bits without the head of the first layer that looks most at the previous token. */
  readonly bitsWithout: readonly number[];
  /** Largest difference of a logit between headwise and PyTorch. */
  readonly difference: number;
  /** Validation loss while training, by PyTorch: [seed][evaluation]. */
  readonly curves: readonly (readonly number[])[];
}

export type CopyResult = Results<Group>;

export const study = {
  async run(cache: URL, report: (line: string) => void): Promise<CopyResult> {
    await runPython(new URL("train.py", import.meta.url), [fileURLToPath(cache)], report);
    return measure(cache, report);
  },
  write(result: CopyResult) {
    return { "curves.svg": drawCurves(result), "heads.svg": drawHeads(result), "README.md": writePage(result) };
  },
} satisfies Study;

/** Measures the models that train.py left in a folder. */
async function measure(cache: URL, report: (line: string) => void): Promise<CopyResult> {
  const kernels = await loadStudyKernels();
  const sets: Record<Task, Rows> = readJson(new URL("validation.json", cache));
  const trained: Trained<Pick<Group, "task" | "layers" | "heads" | "positions">> = readJson(
    new URL("trained.json", cache),
  );
  const groups: Group[] = [];
  for (const { folders, curves, ...shape } of trained.groups) {
    const models = [];
    for (const name of folders) {
      const folder = new URL(`${name}/`, cache);
      models.push(
        await withModel(kernels, folder, async (session) => {
          const logits = logitsOf(session, sets[shape.task]);
          const other = sets[shape.task === "fixed" ? "varied" : "fixed"];
          const heads = scoreHeads(session, sets[shape.task]);
          const first = heads.filter(({ layer }) => layer === 0);
          const { layer, head } = first.reduce((found, each) => (each.previous > found.previous ? each : found));
          const without = logitsOf(session, sets[shape.task], [{ at: "z", layer, head, set: 0 }]);
          return {
            bits: round(bitsOf(logits, sets[shape.task]), 6),
            otherBits: round(bitsOf(logitsOf(session, other), other)),
            bitsWithout: round(bitsOf(without, sets[shape.task])),
            answer: round(Math.max(...heads.map(({ answer }) => answer)), 3),
            previous: round(Math.max(...heads.map(({ previous }) => previous)), 3),
            difference: await differenceOf(logits, folder),
          };
        }),
      );
    }
    const difference = Math.max(...models.map((model) => model.difference));
    groups.push({
      ...shape,
      bits: models.map(({ bits }) => bits),
      otherBits: models.map(({ otherBits }) => otherBits),
      bitsWithout: models.map(({ bitsWithout }) => bitsWithout),
      answer: models.map(({ answer }) => answer),
      previous: models.map(({ previous }) => previous),
      difference: Number(difference.toPrecision(2)),
      curves: curves.map((curve) => curve.map((bits) => round(bits))),
    });
    report(
      `measured: ${folders[0]} and ${folders.length - 1} more, logits within ${difference.toExponential(1)} of PyTorch's`,
    );
  }
  kernels.release();
  const { torch, steps, every, seeds } = trained;
  return { torch, steps, every, seeds, groups };
}
