// Masks as they are written for kernels, against their definition key by key.

import { expect, test } from "vitest";
import {
  checkMasks,
  type MaskTarget,
  maskElements,
  writeBias,
  writeKeep,
} from "../../../../src/layers/attention/mask.ts";
import { createRandom, type Random } from "../../../../src/tools/diagnostics/random.ts";

/** Whether the first dimension could be that of the sequences, as in other libraries, and would then mean something else. */
const hasTwoReadings = ([first, ...rest]: readonly number[], { batch, numHeads, qLen }: MaskTarget): boolean =>
  batch > 1 && first === batch && first === [undefined, qLen, numHeads][rest.length];

/** A shape that broadcasts, of any rank, and of rank 4 where it would have two readings. */
const drawn = (random: Random, target: MaskTarget): number[] => {
  const { batch, numHeads, qLen, kvLen } = target;
  const one = (length: number) => (random.next() < 0.5 ? 1 : length);
  const last = random.next() < 0.3 ? random.int(0, kvLen) : one(kvLen);
  const shape = [one(batch), one(numHeads), one(qLen), last].slice(random.int(0, 3));
  return hasTwoReadings(shape, target) ? [...Array<number>(4 - shape.length).fill(1), ...shape] : shape;
};

const elements = (shape: readonly number[]) => shape.reduce((a, b) => a * b, 1);

/** The element of a broadcast mask; undefined behind a short last dimension. */
function at<T>(data: ArrayLike<T>, shape: readonly number[], index: readonly number[]): T | undefined {
  const full = [...Array<number>(4 - shape.length).fill(1), ...shape];
  let i = 0;
  for (const [axis, length] of full.entries()) {
    const own = length === 1 ? 0 : (index[axis] as number);
    if (own >= length) return undefined;
    i = i * length + own;
  }
  return data[i];
}

test("shapes of all small sizes: those with two readings are refused, and each of the two that the message names is taken", () => {
  const sizes = [1, 2, 3, 6];
  let refused = 0;
  for (const batch of sizes)
    for (const numHeads of sizes)
      for (const qLen of sizes)
        for (const shape of [
          ...sizes.map((n) => [n, 6]),
          ...sizes.flatMap((n) => [
            [n, 1, 6],
            [n, qLen, 6],
          ]),
        ]) {
          const target = { batch, numHeads, qLen, kvLen: 6 };
          const check = (own: readonly number[]) => {
            const keep = { data: new Uint8Array(elements(own)), shape: own };
            return checkMasks("attend", { keep }, target).keep[0]?.shape;
          };
          const full = [...Array<number>(4 - shape.length).fill(1), ...shape];
          const inOrder = full.every((n, axis) => n === 1 || n === [batch, numHeads, qLen, 6][axis]);
          let message: string | undefined;
          try {
            expect(check(shape)).toEqual(full);
          } catch (error) {
            message = (error as Error).message;
          }
          const text = JSON.stringify([shape, target]);
          expect(message === undefined, text).toBe(inOrder && !hasTwoReadings(shape, target));
          if (!hasTwoReadings(shape, target)) continue;
          refused++;
          const named = [...(message as string).matchAll(/\[[\d, ]+\]/g)].map(([list]) => JSON.parse(list) as number[]);
          const [first = 0, ...rest] = shape;
          const bySequence = rest.length === 1 ? [first, 1, 1, ...rest] : [first, 1, ...rest];
          expect(named, text).toEqual([full, bySequence, shape]);
          for (const each of named.slice(0, 2)) expect(check(each)).toEqual(each);
        }
  expect(refused).toBeGreaterThan(20);
});

test("the masks of other libraries are refused with the shape in which their elements mean the same", () => {
  const target = { batch: 2, numHeads: 3, qLen: 4, kvLen: 5 };
  const said = (shape: readonly number[]) => () =>
    checkMasks("attend", { drop: { data: new Uint8Array(elements(shape)), shape } }, target);
  const rule = "attend: drop expected a shape that broadcasts to [2, 3, 4, 5]";
  expect(said([2, 5])).toThrow(`${rule}, such as [2, 1, 1, 5], got [2, 5]`);
  expect(said([2, 4, 5])).toThrow(`${rule}, such as [2, 1, 4, 5], got [2, 4, 5]`);
  expect(said([6, 4, 5])).toThrow(`${rule}, such as [2, 3, 4, 5], got [6, 4, 5]`);
  expect(said([7, 4, 5])).toThrow(`${rule}, got [7, 4, 5]`);
  expect(said([3, 5])).toThrow(`${rule}, got [3, 5]`);
});

test("keep, drop and bias are broadcast, cut and joined as they are defined; bytes other than 0 are true", () => {
  const random = createRandom(21);
  for (let round = 0; round < 400; round++) {
    const target = {
      batch: random.int(1, 3),
      numHeads: random.int(1, 3),
      qLen: random.int(1, 5),
      kvLen: random.int(1, 20),
    };
    const bytes = (shape: number[]) => ({
      data: Uint8Array.from({ length: elements(shape) }, () => (random.next() < 0.5 ? 0 : random.int(1, 255))),
      shape,
    });
    const keep = random.next() < 0.6 ? bytes(drawn(random, target)) : undefined;
    const drop = random.next() < 0.6 ? bytes(drawn(random, target)) : undefined;
    const shape = drawn(random, target);
    const bias = { data: Float32Array.from({ length: elements(shape) }, () => random.next() - 0.5), shape };
    const masks = checkMasks("test", { keep, drop, bias }, target);

    const b = random.int(0, target.batch - 1);
    const begin = random.int(0, target.qLen - 1);
    const end = random.int(begin + 1, target.qLen);
    const length = random.int(0, target.kvLen);
    const size = maskElements(masks, target, end - begin);
    const kept = new Uint8Array(size).fill(7);
    const added = new Float32Array(size).fill(Number.NaN);
    writeKeep(kept, masks, target, b, begin, end, length);
    writeBias(added, masks, target, b, begin, end);
    const rows = masks.perRow ? end - begin : 1;
    for (let h = 0; h < (masks.perHead ? target.numHeads : 1); h++)
      for (let r = 0; r < rows; r++)
        for (let j = 0; j < target.kvLen; j++) {
          const index = [b, h, begin + r, j];
          const allowed =
            j < length &&
            (keep === undefined || (at(keep.data, keep.shape, index) ?? 0) !== 0) &&
            (drop === undefined || (at(drop.data, drop.shape, index) ?? 1) === 0);
          const i = (h * rows + r) * target.kvLen + j;
          expect([kept[i] !== 0, added[i]], `round ${round}, element ${index}`).toEqual([
            allowed,
            at(bias.data, shape, index) ?? -Infinity,
          ]);
        }
  }
});
