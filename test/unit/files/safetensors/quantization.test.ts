// Safetensors files that keep quantised tensors as blocks.

import { expect, test } from "vitest";
import {
  type AttentionWeights,
  attend,
  createAttention,
  HeadwiseError,
  type StoredTensor,
  type Tensor,
} from "../../../../src/entries/core.ts";
import {
  openSafetensors,
  quantizeTensor,
  readAttentionWeights,
  readSafetensors,
  readSafetensorsIndex,
  toFloats,
  writeSafetensors,
} from "../../../../src/entries/weights.ts";
import { asBytes } from "../../../../src/files/safetensors/safetensors.ts";
import { createRandom } from "../../../../src/tools/diagnostics/random.ts";
import { floats } from "../../../support/harness.ts";
import { firstDifference, kernelsOf, matrix, randomWeights } from "../../../support/layers.ts";

const LAYER = { dModel: 64, numHeads: 2, numKvHeads: 1, causal: true } as const;
const NAMES = { wq: "q_proj", wk: "k_proj", wv: "v_proj", wo: "o_proj" } as const;

/** A layer's matrices as blocks, and the file that holds them. */
function quantisedFile(seed: number) {
  const weights = randomWeights(createRandom(seed), LAYER) as Required<AttentionWeights<Tensor>>;
  const blocks = {
    wq: quantizeTensor(weights.wq, "Q8_0"),
    wk: quantizeTensor(weights.wk, "Q4_0"),
    wv: quantizeTensor(weights.wv, "F16"),
    wo: quantizeTensor(weights.wo, "Q4_0"),
  };
  const named = Object.entries(NAMES).map(([name, file]) => [`l.${file}.weight`, blocks[name as "wq"]] as const);
  return { blocks, tensors: Object.fromEntries(named) };
}

/** What the header of a file says. */
function headerOf(bytes: Uint8Array): Record<string, Record<string, unknown>> {
  const length = Number(new DataView(bytes.buffer, bytes.byteOffset).getBigUint64(0, true));
  return JSON.parse(new TextDecoder().decode(bytes.subarray(8, 8 + length)));
}

test("a file keeps blocks as U8 and metadata, and gives the tensors and the layer that they give", async () => {
  const { blocks, tensors } = quantisedFile(4);
  const bytes = writeSafetensors(tensors, { made: "here" });
  const reversed = Object.fromEntries(Object.entries(tensors).reverse());
  expect(writeSafetensors(reversed, { made: "here" })).toEqual(bytes);
  const file = readSafetensors(bytes);
  expect([...file.metadata]).toEqual([["made", "here"]]);
  const { __metadata__: notes, "l.q_proj.weight": q } = headerOf(bytes);
  expect(JSON.parse(notes?.["headwise.quantized"] as string)).toEqual({
    "l.k_proj.weight": { format: "Q4_0", shape: [32, 64] },
    "l.o_proj.weight": { format: "Q4_0", shape: [64, 64] },
    "l.q_proj.weight": { format: "Q8_0", shape: [64, 64] },
  });
  expect(q).toMatchObject({ dtype: "U8", shape: [64, 68] });
  for (const [name, tensor] of file.tensors) expect(tensor).toEqual({ ...tensors[name], name });
  expect(writeSafetensors(file.tensors, file.metadata)).toEqual(bytes);

  const opened = await openSafetensors(bytes);
  expect([...opened.metadata]).toEqual([...file.metadata]);
  expect(opened.tensors.get("l.q_proj.weight")).toMatchObject({ dtype: "Q8_0", shape: [64, 64], bytes: 64 * 68 });
  expect(await opened.read("l.q_proj.weight")).toEqual(file.tensors.get("l.q_proj.weight"));
  const layer = { metadata: opened.metadata, tensors: await opened.readAll(opened.tensors.keys()) };
  using kernels = await kernelsOf("simd");
  const x = floats(createRandom(5), 7 * 64);
  const run = (weights: AttentionWeights) => {
    using attention = createAttention(kernels, LAYER, weights);
    return { y: attend(attention, x), formats: attention.formats };
  };
  // 16-bit floats stay in their format and give the bits of the floats they stand for.
  const want = run({ ...blocks, wv: { data: toFloats(blocks.wv), shape: blocks.wv.shape } });
  expect(want.formats).toEqual({ q: "q8", k: "q4", v: "f32", o: "q4" });
  for (const source of [bytes, file, layer]) {
    const got = run(readAttentionWeights(source, "l.", LAYER));
    expect(got.formats).toEqual({ ...want.formats, v: "f16" });
    expect(firstDifference(got.y, want.y)).toBe(-1);
  }
});

test("the metadata of each shard of an index describe its own tensors", () => {
  const { blocks, tensors } = quantisedFile(10);
  const shards = Object.fromEntries(
    Object.entries(tensors).map(([name, tensor], i) => [`${i}.safetensors`, writeSafetensors({ [name]: tensor })]),
  );
  const weight_map = Object.fromEntries(Object.keys(tensors).map((name, i) => [name, `${i}.safetensors`]));
  const file = readSafetensorsIndex({ weight_map }, (name) => shards[name] as Uint8Array);
  expect(readAttentionWeights(file, "l.", LAYER)).toMatchObject({
    wq: { dtype: "Q8_0", shape: [64, 64], bytes: blocks.wq.bytes },
    wk: { dtype: "Q4_0", shape: [32, 64], bytes: blocks.wk.bytes },
    wv: { dtype: "F16", shape: blocks.wv.shape, bytes: blocks.wv.bytes },
    wo: { dtype: "Q4_0", shape: [64, 64], bytes: blocks.wo.bytes },
  });
  shards["0.safetensors"] = writeSafetensors({ w: blocks.wv }, { "headwise.quantized": "[]" });
  expect(
    () =>
      readSafetensorsIndex({ weight_map }, (name) => shards[name] as Uint8Array).tensors.get("l.q_proj.weight")?.dtype,
  ).toThrow('readSafetensorsIndex: shard "0.safetensors": metadata "headwise.quantized" expected an object, got Array');
});

test("matrices without rows or without columns are written and read as blocks too", () => {
  for (const shape of [
    [0, 32],
    [5, 0],
  ]) {
    const empty = quantizeTensor({ data: new Float32Array(0), shape }, "Q4_0");
    const read = readSafetensors(writeSafetensors({ empty })).tensors.get("empty");
    expect(read).toMatchObject({ dtype: "Q4_0", shape });
    expect(toFloats(read as StoredTensor)).toEqual(new Float32Array(0));
  }
});

test("fused rows of a file are blocks too, also where heads lie in groups", () => {
  const random = createRandom(6);
  const wo = quantizeTensor(matrix(random, 32, 32), "Q8_0");
  const rows = quantizeTensor(matrix(random, 64, 32), "Q8_0");
  // Two groups of two heads of 8, and the key and value that they share.
  const grouped = writeSafetensors({ "query_key_value.weight": rows, "dense.weight": wo });
  const config = { numHeads: 4, numKvHeads: 2, fused: "grouped" } as const;
  const { wq, wk, wv } = readAttentionWeights(grouped, "", config) as AttentionWeights<StoredTensor>;
  const floatsOf = (begin: number, end: number) => toFloats(rows).subarray(begin * 32, end * 32);
  expect(toFloats(wq as StoredTensor)).toEqual(Float32Array.from([...floatsOf(0, 16), ...floatsOf(32, 48)]));
  expect(toFloats(wk as StoredTensor)).toEqual(Float32Array.from([...floatsOf(16, 24), ...floatsOf(48, 56)]));
  expect(toFloats(wv as StoredTensor)).toEqual(Float32Array.from([...floatsOf(24, 32), ...floatsOf(56, 64)]));
  const plain = readAttentionWeights(grouped, "", { ...config, fused: "qkv" });
  expect(plain.wqkv).toMatchObject({ dtype: "Q8_0", shape: [64, 32] });
});

test("metadata that breaks its form, or does not fit its tensor, is refused with the rule", () => {
  const { tensors } = quantisedFile(7);
  const plain = new Map(Object.entries(tensors).map(([name, tensor]) => [name, asBytes({ ...tensor, name })]));
  const textOf = (entry: unknown) => (typeof entry === "string" ? entry : JSON.stringify(entry));
  const read = (entry: unknown) =>
    readAttentionWeights(writeSafetensors(plain, { "headwise.quantized": textOf(entry) }), "l.");
  /** The same of a file that another reader has read. */
  const readOther = (entry: unknown) =>
    readAttentionWeights({ metadata: new Map([["headwise.quantized", textOf(entry)]]), tensors: plain }, "l.");
  const { __metadata__: metadata } = headerOf(writeSafetensors(tensors));
  const notes = JSON.parse(metadata?.["headwise.quantized"] as string) as Record<string, object>;
  const name = "l.q_proj.weight";
  const refused: [unknown, string][] = [
    ["{", 'metadata "headwise.quantized" expected valid JSON, got "{"'],
    [[], 'metadata "headwise.quantized" expected an object, got Array'],
    [{ [name]: 8 }, `metadata "headwise.quantized" of "${name}" expected { format, shape }, got 8`],
    [{ [name]: { format: "Q5_0", shape: [64, 64] } }, 'expected format Q8_0 or Q4_0, got "Q5_0"'],
    [{ [name]: { format: "Q8_0", shape: [64, 63] } }, "expected shape [n, k], k a multiple of 32, got [64,63]"],
    [{ [name]: { format: "Q8_0", shape: [-1, 32] } }, "expected shape [n, k], k a multiple of 32, got [-1,32]"],
    [{ [name]: { format: "Q8_0", shape: [4096] } }, "expected shape [n, k], k a multiple of 32, got [4096]"],
    [{ [name]: { format: "Q8_0" } }, "expected shape [n, k], k a multiple of 32, got undefined"],
    [
      { ...notes, [name]: { format: "Q4_0", shape: [64, 64] } },
      `tensor "${name}" expected 2304 bytes of U8 for Q4_0 [64, 64], got 4352 of U8`,
    ],
    [
      { ...notes, "l.v_proj.weight": { format: "Q8_0", shape: [32, 64] } },
      'tensor "l.v_proj.weight" expected 2176 bytes of U8 for Q8_0 [32, 64], got 4096 of F16',
    ],
    // Bytes that nothing explains are not weights.
    [{}, 'tensor "l.o_proj.weight" expected dtype F32, F64, F16, BF16, Q8_0 or Q4_0, got U8'],
    [
      { ...notes, [name]: { format: "Q8_0", shape: [128, 32] } },
      `tensor "l.o_proj.weight" expected shape [32, 64] for the 32 inputs of "${name}", got [64, 64]`,
    ],
  ];
  for (const [entry, text] of refused)
    for (const run of [read, readOther])
      try {
        run(entry);
        expect.unreachable(text);
      } catch (error) {
        expect(error).toBeInstanceOf(HeadwiseError);
        expect((error as HeadwiseError).code).toBe("BAD_FILE");
        expect((error as Error).message).toContain(text);
      }
  expect(readOther(notes).wq).toMatchObject({ dtype: "Q8_0", shape: [64, 64] });
  expect(read({ ...notes, "another.layer": { format: "Q8_0", shape: [1, 32] } }).wq).toMatchObject({ dtype: "Q8_0" });
});

test("blocks are refused where a file's matrices lie [in, out], and so is metadata with a field twice", () => {
  const random = createRandom(8);
  const gpt2 = {
    "c_attn.weight": quantizeTensor(matrix(random, 32, 96), "Q8_0"),
    "c_attn.bias": { data: new Float32Array(96), shape: [96] },
    "c_proj.weight": matrix(random, 32, 32),
    "c_proj.bias": { data: new Float32Array(32), shape: [32] },
  };
  expect(() => readAttentionWeights(writeSafetensors(gpt2))).toThrow(
    'tensor "c_attn.weight" expected floats in GPT-2, whose matrices are [in, out], got Q8_0',
  );
  expect(() => writeSafetensors(gpt2, { "headwise.quantized": "{}" })).toThrow(
    'writeSafetensors: metadata "headwise.quantized" expected none beside tensors of blocks, got one',
  );
  const ragged = { dtype: "Q8_0", shape: [2, 33], bytes: new Uint8Array(70) } as const;
  expect(() => writeSafetensors({ w: ragged })).toThrow(
    'writeSafetensors: tensor "w" expected rows of whole blocks of 32, got shape [2, 33]',
  );
});
