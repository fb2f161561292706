import type { Attention } from "../attention/attention.ts";
import {
  type AttendCall,
  type AttendOptions,
  checkGiven,
  commit,
  expectAttention,
  readAttend,
} from "../forward/call.ts";
import { forward } from "../forward/forward.ts";
import { arraysOf, type GivenCall } from "../forward/given-call.ts";
import { expectRecord } from "../util/arguments.ts";
import { describe } from "../util/errors.ts";
import { finish } from "../util/steps.ts";

/** One of the calls that `attendMany` runs together: x, and the options of `attend`. */
export interface AttendManyCall extends AttendOptions {
  /** Input rows [batch, qLen, dModel]. */
  readonly x: Float32Array;
}

/**
 * Runs several calls of `attend` together, each with its own cache and its own qLen. The rows of all calls share each
 * projection, so that every weight is read once. Every y has the bits that `attend` gives for that call alone.
 *
 * Two calls must not append to the same cache. If the tokens of a cache change format as they age, or are dropped behind a
 * window, no call may read it while another one appends to it. No `out` may overlap an array that another call reads or writes.
 * @returns One y [batch, qLen, dModel] per call, in order.
 * @throws The same errors as `attend`, with the index of the call in the message. All caches are then unchanged.
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
export function attendMany(attention: Attention, calls: readonly AttendManyCall[]): Float32Array[] {
  const where = "attendMany";
  expectAttention(where, attention);
  if (!Array.isArray(calls)) throw new TypeError(`${where}: calls expected an array, got ${describe(calls)}`);
  // All calls are read before any is checked, because reading may run code of the caller's.
  const { length } = calls;
  const given: GivenCall<AttendOptions>[] = [];
  for (let i = 0; i < length; i++) {
    const call: AttendManyCall = calls[i];
    expectRecord(where, `calls[${i}]`, call);
    given.push(readAttend(`${where}, call ${i}`, undefined, call, ["x"]));
  }
  const checked = given.map((each, i) => checkGiven(`${where}, call ${i}`, attention, each));
  expectOwnCaches(where, checked);
  expectApart(where, given);
  if (checked.length === 0) return [];
  const { ys } = finish(forward(attention, checked, { where }));
  commit(checked);
  return ys.map((y, i) => checked[i]?.given ?? y);
}

function expectOwnCaches(where: string, calls: readonly AttendCall[]): void {
  const owners = new Map<unknown, number>();
  for (const [i, { cache, newKeys }] of calls.entries()) {
    // Where pages age, a call that appends changes pages that others read.
    if (!cache || (newKeys === 0 && !cache.pages.aging)) continue;
    const other = owners.get(cache);
    if (other !== undefined && newKeys + (calls[other] as AttendCall).newKeys > 0)
      throw new RangeError(`${where}, call ${i}: cache expected one of its own, got that of call ${other}`);
    owners.set(cache, i);
  }
}

/** The bytes of an array that a call reads or, as its `out`, writes. */
interface Range {
  readonly name: string;
  readonly call: number;
  readonly begin: number;
  readonly end: number;
}

/** Throws if one call would write what another one reads or writes. */
function expectApart(where: string, calls: readonly GivenCall<AttendOptions>[]): void {
  if (calls.every(({ out }) => out === undefined)) return;
  const buffers = new Map<unknown, Range[]>();
  for (const [call, given] of calls.entries()) {
    for (const [name, data] of Object.entries(arraysOf(given))) {
      if (!ArrayBuffer.isView(data)) continue;
      const ranges = buffers.get(data.buffer) ?? [];
      buffers.set(data.buffer, ranges);
      ranges.push({ name, call, begin: data.byteOffset, end: data.byteOffset + data.byteLength });
    }
  }
  for (const ranges of buffers.values()) {
    const [out, other] = clashOf(ranges) ?? [];
    if (!out || !other) continue;
    throw new RangeError(
      `${where}, call ${out.call}: out expected memory apart from ${other.name} of call ${other.call}, got one that overlaps it`,
    );
  }
}

/** An `out` and what it overlaps of another call, if there is such a pair. */
function clashOf(ranges: Range[]): readonly [out: Range, other: Range] | undefined {
  ranges.sort((a, b) => a.begin - b.begin);
  let open: Range[] = [];
  for (const range of ranges) {
    open = open.filter(({ end }) => end > range.begin);
    for (const other of open) {
      if (other.call === range.call || range.end === range.begin) continue;
      if (range.name === "out") return [range, other];
      if (other.name === "out") return [other, range];
    }
    open.push(range);
  }
  return undefined;
}
