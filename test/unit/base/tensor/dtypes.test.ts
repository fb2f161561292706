import { expect, test } from "vitest";
import {
  BLOCKS,
  FLOAT_DTYPES,
  quantizeTensor,
  type StoredTensor,
  toFloats,
} from "../../../../src/base/tensor/dtypes.ts";
import { expectMatrix, rowsOf } from "../../../../src/base/tensor/matrix.ts";
import { expectTensor } from "../../../../src/base/tensor/tensor.ts";
import {
  openGguf,
  openSafetensors,
  readAttentionWeights,
  readSafetensors,
  writeSafetensors,
} from "../../../../src/entries/weights.ts";
import { badFileOf } from "../../../support/bad-file.ts";
import { writeGguf } from "../../../support/gguf-writer.ts";

const stored = (
  dtype: StoredTensor["dtype"],
  bytes: Uint8Array,
  shape = [(bytes.length * 8) / { F16: 16, BF16: 16, F32: 32, F64: 64 }[dtype as "F16"]],
): StoredTensor => ({ name: "t", dtype, shape, bytes });

test("all 65 536 float16 values widen to the float32 of the same value, -0, subnormals and NaN included", () => {
  const halves = Uint16Array.from({ length: 65_536 }, (_, bits) => bits);
  const floats = toFloats(stored("F16", new Uint8Array(halves.buffer)));
  let wrong = 0;
  for (let bits = 0; bits < 65_536; bits++) {
    const [exponent, fraction] = [(bits >> 10) & 31, bits & 1023];
    const size = exponent === 0 ? fraction * 2 ** -24 : (1 + fraction / 1024) * 2 ** (exponent - 15);
    const special = fraction === 0 ? Number.POSITIVE_INFINITY : Number.NaN;
    const value = (exponent === 31 ? special : size) * (bits >> 15 ? -1 : 1);
    if (!Object.is(floats[bits], value)) wrong++;
  }
  expect(wrong).toBe(0);
});

test("BF16 is the upper half of a float32, F64 rounds to nearest, and empty tensors give no floats", () => {
  const bf16 = new Uint8Array(Uint16Array.of(0x3f80, 0xc000, 0x0001, 0x8000, 0x7f80, 0x7fc0).buffer);
  const subnormal = 2 ** -133;
  expect([...toFloats(stored("BF16", bf16))]).toEqual([1, -2, subnormal, -0, Number.POSITIVE_INFINITY, Number.NaN]);
  const f64 = new Uint8Array(Float64Array.of(0.1, 1e39, -0, 1 + 2 ** -24).buffer);
  expect([...toFloats(stored("F64", f64))]).toEqual([Math.fround(0.1), Number.POSITIVE_INFINITY, -0, 1]);
  expect(toFloats(stored("F16", new Uint8Array(), [2, 0]))).toEqual(new Float32Array());
});

test.each(["F16", "BF16", "F32", "F64"] as const)(
  "%s at any byte offset gives the floats of an aligned copy",
  (dtype) => {
    const bytes = Uint8Array.from({ length: 48 }, (_, i) => (i * 37) & 0x7b);
    const want = toFloats(stored(dtype, bytes));
    for (let offset = 1; offset < 9; offset++)
      for (const base of [new Uint8Array(64), Buffer.alloc(64)]) {
        const moved = base.subarray(offset, offset + 48);
        moved.set(bytes);
        expect(toFloats(stored(dtype, moved))).toEqual(want);
      }
  },
);

test("aligned F32 is borrowed, and other dtypes are refused by name", async () => {
  const floats = Float32Array.of(1, 2);
  expect(toFloats(stored("F32", new Uint8Array(floats.buffer))).buffer).toBe(floats.buffer);
  expect(await badFileOf(() => toFloats({ name: "w", dtype: "I64", shape: [1], bytes: new Uint8Array(8) }))).toBe(
    'toFloats: tensor "w" expected dtype F32, F64, F16, BF16, Q8_0 or Q4_0, got I64',
  );
  expect(() => toFloats(stored("F32", new Uint8Array(8), [3]))).toThrow(
    new RangeError('toFloats: tensor "t" expected 12 bytes for F32 [3], got 8'),
  );
});

const EMPTY = [
  [0, 2 ** 32],
  [0, 2 ** 47],
  [2 ** 32, 0],
  [0, 2 ** 32, 2 ** 32],
];

test.each(FLOAT_DTYPES)("%s with a dimension of 0 has no floats, however large the others are", async (dtype) => {
  for (const shape of EMPTY) {
    if (dtype in BLOCKS && shape.length !== 2) continue;
    const tensor = { name: "t", dtype, shape, bytes: new Uint8Array() };
    expect(toFloats(tensor)).toEqual(new Float32Array());
    const written = writeSafetensors({ t: tensor });
    for (const read of [readSafetensors(written).tensors.get("t"), await (await openSafetensors(written)).read("t")]) {
      expect(read).toEqual(tensor);
      expect(toFloats(read as StoredTensor)).toEqual(new Float32Array());
    }
    if (shape.length !== 2) continue;
    const matrix = expectMatrix("f", "w", tensor, "out-in");
    expect(toFloats(rowsOf(matrix, 0, 0))).toEqual(new Float32Array());
    expect(quantizeTensor(tensor, "F16")).toMatchObject({ shape, bytes: new Uint8Array() });
  }
});

test("a tensor of a GGUF file with a dimension of 0 has no floats, however large the others are", async () => {
  for (const shape of EMPTY.filter(({ length }) => length === 2)) {
    const file = await openGguf(writeGguf({ tensors: [{ name: "t", type: 0, shape, bytes: new Uint8Array() }] }));
    const tensor = await file.read("t");
    expect(tensor.shape).toEqual(shape);
    expect(toFloats(tensor)).toEqual(new Float32Array());
  }
});

test("a layer refuses empty matrices and vectors by name, and kernels dimensions from 2^31", async () => {
  const one = (shape: number[]) => ({ dtype: "F32", shape, bytes: new Uint8Array() }) as const;
  const square = { data: new Float32Array(1), shape: [1, 1] };
  const rest = { "k_proj.weight": square, "v_proj.weight": square, "o_proj.weight": square };
  const readMatrix = (shape: number[]) => () =>
    readAttentionWeights(writeSafetensors({ "q_proj.weight": one(shape), ...rest }));
  expect(await badFileOf(readMatrix([0, 2 ** 32]))).toBe(
    'readAttentionWeights: tensor "q_proj.weight" expected a matrix with no empty side, got shape [0, 4294967296]',
  );
  const readVector = (shape: number[]) => () =>
    readAttentionWeights(writeSafetensors({ "q_proj.weight": square, ...rest, "o_proj.bias": one(shape) }));
  for (const shape of EMPTY)
    expect(await badFileOf(readVector(shape))).toBe(
      `readAttentionWeights: tensor "o_proj.bias" expected shape [1], got [${shape.join(", ")}]`,
    );
  expect(() => expectTensor("f", "x", { data: new Float32Array(), shape: [0, 2 ** 32] }, [2])).toThrow(
    new RangeError("f: x.shape[1] expected an integer from 0 to 2147483647, got 4294967296"),
  );
});
