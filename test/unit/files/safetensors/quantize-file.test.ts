// Files quantised in pieces.

import { readFileSync, rmSync, statSync } from "node:fs";
import { open } from "node:fs/promises";
import { expect, test } from "vitest";
import { HeadwiseError } from "../../../../src/base/util/errors.ts";
import {
  fileSource,
  quantizeSafetensors,
  quantizeTensor,
  readSafetensors,
  writeSafetensors,
} from "../../../../src/entries/weights.ts";
import { floats } from "../../../support/harness.ts";
import { createSmallFiles } from "../../../support/small-files.ts";

const { model, random, tensor, write } = createSmallFiles();

/** Elements of a piece that is converted, and bytes of one that is copied. */
const [PIECE_ELEMENTS, PIECE_BYTES] = [2 ** 20, 2 ** 22];

test.each([
  ["model.layers.3.mlp.up_proj.weight", true],
  ["in_proj_weight", true],
  ["encoder.block.0.layer.0.SelfAttention.q.weight", true],
  ["model.layers.3.mlp.gate_proj.weight", true],
  ["model.layers.3.mlp.gate.weight", false],
  ["model.embed_tokens.weight", false],
  ["lm_head.weight", false],
  ["transformer.wte.weight", false],
  ["shared.weight", false],
  ["model.layers.3.post_attention_layernorm.weight", false],
  ["block.0.SelfAttention.relative_attention_bias.weight", false],
  ["model.layers.3.self_attn.q_proj.bias", false],
])("whether %s is a linear weight of a layer: %s", async (name, is) => {
  const file = await quantizeSafetensors(writeSafetensors({ [name]: tensor(2, 32) }), { format: "Q8_0" });
  expect(file.tensors[0]?.chosen).toBe(is);
});

test("no read and no write is larger than a piece, whatever the tensors are, and no byte is read twice", async () => {
  const rows = 3 * Math.ceil(PIECE_ELEMENTS / 1024) + 5;
  const input = write("pieces.safetensors", {
    "a.weight": { data: floats(random, rows * 1024), shape: [rows, 1024] },
    "embed.weight": { data: floats(random, PIECE_BYTES / 4 + 3), shape: [PIECE_BYTES / 4 + 3] },
  });
  const handle = await open(input);
  const reads: number[] = [];
  const source = await fileSource({
    stat: () => handle.stat(),
    read: (into, offset, length, position) => {
      reads.push(length);
      return handle.read(into, offset, length, position);
    },
  });
  const writes: Uint8Array[] = [];
  const steps: number[] = [];
  const file = await quantizeSafetensors(source, {
    format: "Q8_0",
    onProgress: (done, total) => void steps.push(done / total),
  });
  for await (const piece of file) writes.push(piece);
  await handle.close();
  expect(Math.max(...reads)).toBe(4 * PIECE_ELEMENTS);
  expect(Math.max(...writes.map(({ length }) => length))).toBeLessThanOrEqual(PIECE_BYTES);
  expect(reads.reduce((sum, length) => sum + length, 0)).toBe(statSync(input).size);
  expect(steps.length).toBe(4 + 2);
  expect(steps.at(-1)).toBe(1);
  expect(steps).toEqual(steps.toSorted((a, b) => a - b));
  // Pieces of a matrix are the matrix.
  const given = readSafetensors(readFileSync(input)).tensors;
  const expected = writeSafetensors({
    "embed.weight": given.get("embed.weight")!,
    "a.weight": quantizeTensor(given.get("a.weight")!, "Q8_0"),
  });
  expect(Buffer.compare(Buffer.concat(writes), expected)).toBe(0);
  expect([file.bytes, [...file.errors.keys()]]).toEqual([expected.length, ["a.weight"]]);
  rmSync(input);
});

test("a source that breaks off is BAD_FILE", async () => {
  const bytes = writeSafetensors(model);
  const source = {
    size: bytes.length,
    read: async (offset: number, length: number) =>
      offset > 20_000 ? new Uint8Array(0) : bytes.slice(offset, offset + length),
  };
  const file = await quantizeSafetensors(source, { format: "Q8_0" });
  const refused = takeAll(file);
  await expect(refused).rejects.toThrow(HeadwiseError);
  await expect(refused).rejects.toThrow(/^quantizeSafetensors: source expected \d+ bytes at \d+, got 0$/);
});

async function takeAll(pieces: AsyncIterable<Uint8Array>): Promise<Uint8Array> {
  const taken: Uint8Array[] = [];
  for await (const piece of pieces) taken.push(piece);
  return Buffer.concat(taken);
}

test("each tensor has what becomes of it, and why; the pieces may be taken again, and give the same bytes", async () => {
  const file = await quantizeSafetensors(writeSafetensors(model), { format: "Q4_0", keep: /k_proj|v_proj/g });
  const found = Object.fromEntries(
    file.tensors.map(({ name, format, reason, chosen }) => [name, [format, reason, chosen]]),
  );
  expect(found).toMatchObject({
    "model.layers.0.self_attn.q_proj.weight": ["Q4_0", undefined, true],
    "model.layers.0.self_attn.k_proj.weight": [undefined, "keep matches its name", false],
    "model.layers.0.self_attn.v_proj.weight": [undefined, "keep matches its name", false],
    "model.layers.0.mlp.down_proj.weight": [undefined, "its rows are not a multiple of 32", true],
    "model.layers.0.mlp.gate.weight": [
      ...[undefined, "its name is not that of a linear weight (include chooses others)", false],
    ],
    "model.norm.weight": [undefined, "its rank is 1, not 2", false],
    "model.layers.0.self_attn.rotary.steps": [undefined, "its dtype is none of F64, F32, F16, BF16", false],
  });
  const [first, second] = [await takeAll(file), await takeAll(file)];
  expect(Buffer.compare(first, second)).toBe(0);
  const changed = Array.from(readSafetensors(first).tensors.values()).filter(({ dtype }) => dtype === "Q4_0");
  expect(changed.map(({ name }) => name)).toEqual([...file.errors.keys()]);
  const again = await quantizeSafetensors(first, { format: "Q4_0", include: /q_proj|k_proj/ });
  expect(again.tensors.find(({ name }) => name.endsWith("q_proj.weight"))?.reason).toBe("it has this format already");
  expect(again.tensors.find(({ name }) => name.endsWith("v_proj.weight"))?.reason).toBe(
    "include does not match its name",
  );
  expect(again.tensors.find(({ name }) => name.endsWith("k_proj.weight"))?.format).toBe("Q4_0");
});

test("numbers that the format cannot represent are BAD_FILE when their piece is taken", async () => {
  const data = new Float32Array(32).fill(Number.NaN);
  const file = await quantizeSafetensors(writeSafetensors({ "a.weight": { data, shape: [1, 32] } }), {
    format: "Q8_0",
  });
  const text = 'quantizeSafetensors: tensor "a.weight" expected numbers that Q8_0 can represent, got others';
  await expect(takeAll(file)).rejects.toThrow(new HeadwiseError("BAD_FILE", text));
});

test.each<[options: unknown, error: Error]>([
  [{}, new TypeError('options.format expected "Q8_0" or "Q4_0" or "F16" or "BF16", got undefined')],
  [{ format: "q8" }, new RangeError('options.format expected "Q8_0" or "Q4_0" or "F16" or "BF16", got "q8"')],
  [{ format: "F16", keep: "norm" }, new TypeError('options.keep expected a RegExp, got "norm"')],
  [{ format: "F16", include: () => true }, new TypeError("options.include expected a RegExp, got function")],
  [{ format: "F16", onProgress: 1 }, new TypeError("options.onProgress expected a function, got 1")],
])("options %j are refused", async (options, error) => {
  const made = quantizeSafetensors(writeSafetensors(model), options as never);
  await expect(made).rejects.toThrow(error.constructor as typeof Error);
  await expect(made).rejects.toThrow(`quantizeSafetensors: ${error.message}`);
});
