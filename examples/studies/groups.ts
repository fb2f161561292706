// The studies of the copy task: their models are trained in groups of one shape, a model for each seed.

import { fileURLToPath } from "node:url";
import type { Session } from "headwise/models";
import { differenceOf, loadStudyKernels, logitsOf, type Rows, readJson, withModel } from "./evaluate.ts";
import { runPython } from "./python.ts";
import { round } from "./study.ts";

/** Whether what is copied has one length or several. */
export type Task = "fixed" | "varied";

/** How the models of a study are trained: the constants of trainer.py and copy_task.py. */
export interface Setup {
  /** The version of PyTorch. */
  readonly torch: string;
  readonly seeds: readonly number[];
  readonly steps: number;
  /** Steps between evaluations. */
  readonly every: number;
  /** Sequences of a step. */
  readonly rows: number;
  /** The highest rate of all steps. */
  readonly rate: number;
  /** Sequences that a model is measured on. */
  readonly validationRows: number;
  readonly dModel: number;
  /** How many tokens there are to be copied. */
  readonly tokens: number;
  /** The lengths of what is copied, from the shortest to the longest; with the task "fixed" always the longest. */
  readonly shortest: number;
  readonly longest: number;
}

/** What every study knows of a group. Lists are in the order of the seeds. */
export interface GroupResult {
  readonly task: Task;
  /** Validation loss in bits, by headwise. */
  readonly bits: readonly number[];
  /** Largest difference of a logit between headwise and PyTorch. */
  readonly difference: number;
  /** Validation loss while training, by PyTorch: [seed][evaluation]. */
  readonly curves: readonly (readonly number[])[];
}

export interface GroupResults<Group extends GroupResult> {
  readonly setup: Setup;
  readonly groups: readonly Group[];
}

/** Names of a shape, which train.py writes with the folders of the models and their curves. */
type Trained<Shape> = Shape & { readonly task: Task; readonly folders: readonly string[]; readonly curves: number[][] };

/** A model to measure, with its logits for the sequences of its task. */
export interface Measured {
  readonly task: Task;
  readonly session: Session;
  readonly sets: Readonly<Record<Task, Rows>>;
  readonly logits: readonly Float32Array[];
}

/**
 * Trains the models of a study, and measures each.
 * @param script Its train.py.
 * @param measure Numbers of a model. A group has a list of each, in the order of the seeds.
 * @param describe What the config.json of its models says of a group.
 */
export async function runGroups<Shape extends object, Name extends string, Described extends object>(
  script: URL,
  cache: URL,
  report: (line: string) => void,
  measure: (model: Measured) => Readonly<Record<Name | "bits", number>>,
  describe: (config: object) => Described,
): Promise<GroupResults<Shape & Described & Record<Name, number[]> & GroupResult>> {
  await runPython(script, [fileURLToPath(cache)], report);
  const sets = readJson<Record<Task, Rows>>(new URL("validation.json", cache));
  const trained = readJson<{ setup: Setup; groups: Trained<Shape>[] }>(new URL("trained.json", cache));
  const kernels = await loadStudyKernels();
  const groups = [];
  for (const { folders, curves, ...shape } of trained.groups) {
    const { task } = shape;
    const differences: number[] = [];
    const models: Readonly<Record<string, number>>[] = [];
    for (const name of folders) {
      const folder = new URL(`${name}/`, cache);
      await withModel(kernels, folder, async (session) => {
        const logits = logitsOf(session, sets[task]);
        models.push(measure({ task, session, sets, logits }));
        differences.push(await differenceOf(logits, folder));
      });
    }
    const lists = Object.keys(models[0]!).map((name) => [name, models.map((model) => model[name]!)]);
    const difference = Math.max(...differences);
    groups.push({
      ...(shape as unknown as Shape & { task: Task }),
      ...describe(readJson(new URL(`${folders[0]}/config.json`, cache))),
      ...(Object.fromEntries(lists) as Record<Name | "bits", number[]>),
      difference: Number(difference.toPrecision(2)),
      curves: curves.map((curve) => curve.map((bits) => round(bits))),
    });
    report(
      `measured: ${folders[0]} and ${folders.length - 1} more, logits within ${difference.toExponential(1)} of PyTorch's`,
    );
  }
  kernels.release();
  return { setup: trained.setup, groups };
}
