import type { Case, Outcome, Tolerance, Values } from "./case.ts";
import { product } from "./case.ts";

/** The first wrong element of every output (nothing = all is right), and how many NaN rows stood where we give zeros. */
export interface Comparison {
  readonly problems: readonly string[];
  readonly maskedRows: number;
}

/** Compares every output that the case lists with what an adapter gave. */
export function compareOutcome(c: Case, outcome: Outcome): Comparison {
  const problems = [...(outcome.problems ?? [])];
  let maskedRows = 0;
  for (const name of Object.keys(c.entry.outputs ?? {})) {
    const tolerance = c.entry.tolerance?.[name] ?? c.entry.tolerance?.default;
    if (!tolerance) throw new Error(`${c.entry.name}: no tolerance for ${name}`);
    const want = c.values(name);
    const got = outcome.outputs?.[name];
    const shielded = got && sameShape(got, want) ? shield(got, want, outcome.maskedRows?.[name]) : undefined;
    maskedRows += shielded?.rows ?? 0;
    const problem = firstDifference(name, got, shielded?.want ?? want, tolerance, outcome.slack?.[name]);
    if (problem !== undefined) problems.push(problem);
  }
  return { problems, maskedRows };
}

/** The first element that is not as wanted, in words: index, got, want, tolerance. */
export function firstDifference(
  name: string,
  got: Values | undefined,
  want: Values,
  tolerance: Tolerance,
  slack: (element: number) => number = () => 0,
): string | undefined {
  if (!got) return `${name}: missing`;
  if (!sameShape(got, want)) return `${name}: got shape [${got.shape.join(", ")}], want [${want.shape.join(", ")}]`;
  if (got.data.length !== want.data.length) return `${name}: got ${got.data.length} elements, want ${want.data.length}`;
  for (let i = 0; i < want.data.length; i++)
    if (!isClose(got.data[i]!, want.data[i]!, { ...tolerance, atol: tolerance.atol + slack(i) })) {
      const allowed = `${tolerance.atol + slack(i)} + ${tolerance.rtol}·|want|`;
      return `${name}[${unravel(i, want.shape).join(", ")}]: got ${got.data[i]}, want ${want.data[i]}, tolerance ${allowed}`;
    }
  return undefined;
}

function isClose(got: number, want: number, { atol, rtol }: Tolerance): boolean {
  if (!Number.isFinite(want) || !Number.isFinite(got)) return Object.is(got, want);
  if (atol === 0 && rtol === 0) return Object.is(got, want);
  return Math.abs(got - want) <= atol + rtol * Math.abs(want);
}

/**
 * Puts our own row in place of a wanted row that is NaN throughout, where the adapter says that the row has no allowed
 * key and ours is finite. Anything else stays wanted, so a NaN from elsewhere is still asked for.
 */
function shield(
  got: Values,
  want: Values,
  masked: ((row: number) => boolean) | undefined,
): { want: Values; rows: number } {
  if (!masked) return { want, rows: 0 };
  const width = want.shape.at(-1) ?? 1;
  const data = Float64Array.from(want.data);
  let rows = 0;
  for (let row = 0; row * width < data.length; row++) {
    const ours = Array.from({ length: width }, (_, i) => got.data[row * width + i]!);
    if (!masked(row) || !ours.every(Number.isFinite)) continue;
    if (!data.subarray(row * width, (row + 1) * width).every(Number.isNaN)) continue;
    data.set(ours, row * width);
    rows++;
  }
  return { want: { data, shape: want.shape }, rows };
}

function sameShape(a: Values, b: Values): boolean {
  return a.shape.length === b.shape.length && a.shape.every((length, axis) => length === b.shape[axis]);
}

function unravel(index: number, shape: readonly number[]): number[] {
  return shape.map((length, axis) => Math.floor(index / product(shape.slice(axis + 1))) % length);
}
