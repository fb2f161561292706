// Masks as they are written for kernels, against their definition key by key.

import { expect, test } from "vitest";
import { checkMasks, type MaskTarget, maskElements, writeBias, writeKeep } from "../../../src/attention/mask.ts";
import { createRandom, type Random } from "../../../src/diagnostics/random.ts";

const drawn = (random: Random, { batch, numHeads, qLen, kvLen }: MaskTarget): number[] => {
  const one = (length: number) => (random.next() < 0.5 ? 1 : length);
  const last = random.next() < 0.3 ? random.int(0, kvLen) : one(kvLen);
  return [one(batch), one(numHeads), one(qLen), last].slice(random.int(0, 3));
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
