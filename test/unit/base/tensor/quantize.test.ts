// Tensors in fewer bits.

import { expect, test } from "vitest";
import type { StoredTensor } from "../../../../src/entries/core.ts";
import { quantizeTensor, toFloats } from "../../../../src/entries/weights.ts";
import { narrowBf16, narrowF16, widenF16 } from "../../../../src/reference/numbers.ts";
import { createRandom } from "../../../../src/tools/diagnostics/random.ts";
import { floats } from "../../../support/harness.ts";

const KINDS = ["normal", "outlier", "equal", "tiny"] as const;
const halvesOf = ({ bytes }: StoredTensor) => new Uint16Array(bytes.buffer);

test.each([
  ["F16", narrowF16, 0x7fff],
  ["BF16", narrowBf16, 0x7fff],
] as const)("%s is the nearest, halves to even, at every border and at random bits", (format, twin, most) => {
  const random = createRandom(1);
  const borders = Array.from({ length: most }, (_, i) => i).flatMap((half) => {
    const [a, b] = format === "F16" ? [widenF16(half), widenF16(half + 1)] : [half, half + 1].map(bf16);
    const middle = Math.fround(((a as number) + (b as number)) / 2);
    const next = Math.fround(middle * (1 + 2 ** -23));
    return [a as number, middle, next, -middle];
  });
  const bits = Uint32Array.from({ length: 100_000 }, () => random.int(0, 2 ** 32 - 1));
  const data = Float32Array.from([...borders.filter((x) => !Number.isNaN(x)), ...new Float32Array(bits.buffer)]);
  const halves = halvesOf(quantizeTensor({ data, shape: [data.length] }, format));
  const wrong = data.findIndex((x, i) =>
    Number.isNaN(x) ? !isNaNHalf(halves[i] as number, format) : halves[i] !== twin(x),
  );
  expect(wrong, `${data[wrong]}`).toBe(-1);
});

const bf16 = (half: number) => new Float32Array(Uint32Array.of(half << 16).buffer)[0] as number;
const isNaNHalf = (half: number, format: string) => Number.isNaN(format === "F16" ? widenF16(half) : bf16(half));

test.each([
  ["Q8_0", 127],
  ["Q4_0", 8],
] as const)("%s is off by half a step and the rounding of its scale, and keeps zeros", (format, most) => {
  const random = createRandom(2);
  for (const kind of KINDS) {
    const data = floats(random, 40 * 64, kind);
    data.fill(0, 64, 96);
    const back = toFloats(quantizeTensor({ data, shape: [40, 64] }, format));
    expect([...back.subarray(64, 96)].every((x) => x === 0)).toBe(true);
    for (let block = 0; block < data.length; block += 32) {
      const largest = Math.max(...data.subarray(block, block + 32).map(Math.abs));
      const step = largest / most;
      // Q4_0 has no +8: what is as large as the largest on the other side is off by a whole step. A scale is a float16.
      const allowed = (format === "Q4_0" ? 1 : 0.5) * step * (1 + 2 ** -10) + largest * 2 ** -11 + most * 2 ** -25;
      for (let i = block; i < block + 32; i++)
        expect(Math.abs((back[i] as number) - (data[i] as number)), `${kind} ${i}`).toBeLessThanOrEqual(allowed);
    }
  }
});

test("blocks that hold numbers of their own are found again", () => {
  const random = createRandom(3);
  for (const [format, most] of [
    ["Q8_0", 127],
    ["Q4_0", 7],
  ] as const) {
    // The largest stands at the end of the scale, 127 or -8.
    const data = Float32Array.from({ length: 128 }, () => random.int(-most, most) / 4);
    for (let block = 0; block < 128; block += 32) data[block + 5] = format === "Q8_0" ? -127 / 4 : -2;
    expect(toFloats(quantizeTensor({ data, shape: [2, 64] }, format))).toEqual(data);
  }
});

test("what cannot be quantised is refused", () => {
  const make = (values: ArrayLike<number>, shape = [1, 32]) => ({ data: Float32Array.from(values), shape });
  const ones = Array<number>(32).fill(1);
  const refused: [() => unknown, string][] = [
    [() => quantizeTensor(make(ones, [32, 1]), "Q8_0"), "rows of whole blocks of 32, got shape [32, 1]"],
    [() => quantizeTensor(make([1], []), "Q8_0"), "rows of whole blocks of 32, got shape []"],
    [() => quantizeTensor(make([1], []), "Q4_0"), "rows of whole blocks of 32, got shape []"],
    [
      () => toFloats({ name: "s", dtype: "Q8_0", shape: [], bytes: new Uint8Array(34) }),
      'toFloats: tensor "s" expected rows of whole blocks (32) for Q8_0, got []',
    ],
    [() => quantizeTensor(make(ones.with(3, Number.NaN)), "Q8_0"), "tensor expected finite numbers, got NaN"],
    [() => quantizeTensor(make(ones.with(3, Number.NaN)), "Q4_0"), "tensor expected finite numbers, got NaN"],
    [() => quantizeTensor(make(ones.with(9, -Infinity)), "Q4_0"), "tensor expected finite numbers, got Infinity"],
    [() => quantizeTensor(make(ones.with(9, 1e9)), "Q8_0"), "scale is a float16, got a scale of 7874015.5"],
    [() => quantizeTensor(make(ones, [2, 32]), "F16"), "tensor.data expected 64 floats for [2, 32], got 32"],
    [
      () => quantizeTensor(make(ones), "Q5_0" as "Q8_0"),
      'format expected "Q8_0" or "Q4_0" or "F16" or "BF16", got "Q5_0"',
    ],
  ];
  for (const [run, text] of refused) expect(run).toThrow(text);
});
