import type { TensorEntry } from "../files/tensor-file.ts";
import { plainText } from "../util/errors.ts";

/** A tensor of a file, and why it is not converted, unless it is. */
interface Candidate {
  readonly from: TensorEntry;
  readonly reason?: string;
}

/** Tensors whose names differ in numbers alone, of one dtype and shape. */
interface Kind {
  /** The name of the only one, or the common name with N for each number. */
  readonly name: string;
  readonly count: number;
  readonly dtype: string;
  readonly shape: readonly number[];
  readonly reason: string;
}

const MOST_KINDS = 20;

/** The tensors that are not converted as lines of text, one for each kind, and why. */
export function unchangedLines(candidates: readonly Candidate[]): string[] {
  const kinds = kindsOf(candidates);
  const lines = kinds.slice(0, MOST_KINDS).map(({ name, count, dtype, shape, reason }) => {
    const times = count === 1 ? "" : `${count} x `;
    return `unchanged ${times}${plainText(name)} ${dtype} [${shape.join(", ")}]: ${reason}`;
  });
  const more = kinds.length - lines.length;
  return more > 0 ? [...lines, `unchanged ${more} more kinds of tensors`] : lines;
}

/** The most frequent ones first. */
function kindsOf(candidates: readonly Candidate[]): Kind[] {
  const kinds = new Map<string, Kind>();
  for (const { from, reason } of candidates) {
    if (reason === undefined) continue;
    const { dtype, shape } = from;
    const name = from.name.replace(/\d+/g, "N");
    const key = JSON.stringify([name, dtype, shape, reason]);
    const count = (kinds.get(key)?.count ?? 0) + 1;
    kinds.set(key, { name: count === 1 ? from.name : name, count, dtype, shape, reason });
  }
  return [...kinds.values()].sort((a, b) => b.count - a.count || (a.name < b.name ? -1 : 1));
}
