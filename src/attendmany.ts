import type { Attention } from "./attention.ts";
import { type AttendCall, type AttendOptions, checkCall, commit, expectAttention, overlaps, readsOf } from "./call.ts";
import { describe, expectRecord } from "./errors.ts";
import { forward } from "./forward.ts";
import { finish } from "./steps.ts";

/** One sequence of `attendMany`: its x [qLen, dModel] and all that `attend` may be told. */
export interface ManySequence extends AttendOptions {
  readonly x: Float32Array;
}

/**
 * `attend` for several sequences at once, each with a cache and a length of its own: the projections of all of them are one
 * product, so that a weight is read once. Returns one y each, with the bits that `attend` gives one at a time. Throws what
 * attend throws, naming the sequence; every cache is then as it was. A cache belongs to one of the sequences, and no `out`
 * may overlap what another one reads or writes.
 * @example
 * import { attendMany, createAttention, createCache, loadKernels } from "headwise";
 * const kernels = await loadKernels();
 * const eye = { data: Float32Array.from({ length: 16 }, (_, i) => (i % 5 === 0 ? 1 : 0)), shape: [4, 4] };
 * const attention = createAttention(kernels, { dModel: 4, numHeads: 2, causal: true }, { wq: eye, wk: eye, wv: eye, wo: eye });
 * const [first, second] = [16, 64].map((maxSeqLen) => createCache(attention, { maxSeqLen }));
 * const ys = attendMany(attention, [
 *   { x: new Float32Array(12).fill(1), cache: first }, // three tokens of one conversation
 *   { x: Float32Array.of(0, 1, 0, 0), cache: second }, // one of another
 * ]);
 * console.log(ys.map((y) => y.length), first?.length, second?.length); // [ 12, 4 ] 3 1
 * kernels.release();
 */
export function attendMany(attention: Attention, sequences: readonly ManySequence[]): Float32Array[] {
  const where = "attendMany";
  expectAttention(where, attention);
  if (!Array.isArray(sequences))
    throw new TypeError(`${where}: sequences expected an array, got ${describe(sequences)}`);
  const calls = sequences.map((sequence: ManySequence, i) => {
    expectRecord(where, `sequences[${i}]`, sequence);
    const { x, ...options } = sequence;
    return checkCall(`${where}, sequence ${i}`, attention, x, options);
  });
  expectOwnCaches(where, calls);
  expectApart(where, sequences);
  if (calls.length === 0) return [];
  const { ys } = finish(forward(attention, calls));
  commit(calls);
  return ys;
}

function expectOwnCaches(where: string, calls: readonly AttendCall[]): void {
  const owners = new Map<unknown, number>();
  for (const [i, { cache }] of calls.entries()) {
    const other = owners.get(cache);
    if (cache && other !== undefined)
      throw new RangeError(`${where}, sequence ${i}: cache expected one of its own, got that of sequence ${other}`);
    owners.set(cache, i);
  }
}

/** Throws when one sequence would write what another one reads or writes. */
function expectApart(where: string, sequences: readonly ManySequence[]): void {
  for (const [i, { out }] of sequences.entries())
    for (const [j, { x, ...other }] of out ? sequences.entries() : []) {
      const data = { ...readsOf(x, other), keys: other.keys, values: other.values, out: other.out };
      const name = Object.entries(data).find(([, array]) => out && i !== j && overlaps(out, array))?.[0];
      if (name !== undefined)
        throw new RangeError(
          `${where}, sequence ${i}: out expected memory apart from ${name} of sequence ${j}, got one that overlaps it`,
        );
    }
}
