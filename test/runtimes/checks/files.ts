import type { Tensor } from "../../../src/entries/core.ts";
import { createRandom } from "../../../src/tools/diagnostics/random.ts";
import type { Context } from "../suite.ts";
import { expectEqual, expectSameBits, expectThrown, expectTrue, expectWithin, thrownBy } from "./expect.ts";

const PREFIX = "model.layers.1.self_attn.";

/** Files from bytes and from a Blob, what is read of them, and files that are none. */
export async function checkFiles({ headwise, weights, fixtures, check }: Context): Promise<void> {
  const bytes = fixtures.files["model/model.safetensors"] as Uint8Array;
  const json = fixtures.texts["model/config.json"] as string;
  const file = weights.readSafetensors(bytes);
  const { floats } = createRandom(3);

  await check("files: every tensor of the model is listed with dtype, shape and bytes", () => {
    expectEqual("tensors", file.tensors.size, 13);
    const q = file.tensors.get(`${PREFIX}q_proj.weight`);
    expectEqual("dtype", q?.dtype, "F32");
    expectEqual("shape", q?.shape.join(), "64,64");
    expectEqual("bytes", q?.bytes.length, 64 * 64 * 4);
    expectTrue("bytes are borrowed", q?.bytes.buffer === bytes.buffer);
  });
  await check("files: writing what was read gives a file with the same tensors", () => {
    const again = weights.readSafetensors(weights.writeSafetensors(Object.fromEntries(file.tensors)));
    expectEqual("tensors", again.tensors.size, file.tensors.size);
    for (const [name, tensor] of file.tensors) expectSameBits(name, again.tensors.get(name)!.bytes, tensor.bytes);
  });
  const sources = {
    bytes: () => bytes,
    "an ArrayBuffer": () => bytes.slice().buffer,
    "a Blob": () => new Blob([bytes.slice()]),
    blobSource: () => weights.blobSource(new Blob([bytes.slice()])),
  };
  for (const [from, source] of Object.entries(sources))
    await check(`files: openSafetensors reads a layer from ${from}`, async () => {
      const open = await weights.openSafetensors(source());
      const names = [...open.tensors.keys()].filter((name) => name.startsWith(PREFIX));
      expectEqual("tensors of the layer", names.length, 4);
      const layer = { metadata: open.metadata, tensors: await open.readAll(names) };
      const want = weights.readAttentionWeights(file, PREFIX);
      const got = weights.readAttentionWeights(layer, PREFIX);
      expectSameBits("wq", (got.wq as Tensor).data, (want.wq as Tensor).data);
    });
  await check("files: a config in the words of Hugging Face", () => {
    const { dModel, numHeads, headDim, rope, causal } = weights.fromHfConfig(json, 1);
    expectEqual(
      "config",
      [dModel, numHeads, headDim, rope?.theta, rope?.pairing, causal].join(),
      "64,4,16,10000,half,true",
    );
  });
  await check("files: 16-bit floats widen exactly", () => {
    const stored = (dtype: "F16" | "BF16", ...words: number[]) =>
      weights.toFloats({
        name: "x",
        dtype,
        shape: [words.length],
        bytes: new Uint8Array(Uint16Array.from(words).buffer),
      });
    expectSameBits("F16", stored("F16", 0x3c00, 0xc000, 0x0001, 0x8000, 0x7bff), [1, -2, 2 ** -24, -0, 65504]);
    expectSameBits("BF16", stored("BF16", 0x3f80, 0xc040, 0x8000), [1, -3, -0]);
  });
  // Of values below 1: half a step of 1/127, a whole one of 1/8 (the side that has 7 of them), scales in 11 bits; half an ulp.
  for (const [dtype, most] of [
    ["Q8_0", 0.5 / 127 + 2 ** -11],
    ["Q4_0", 1 / 8 + 2 ** -11],
    ["F16", 2 ** -12],
    ["BF16", 2 ** -9],
  ] as const)
    await check(`files: quantizeTensor to ${dtype} and back is within ${most.toFixed(5)}`, () => {
      const w = { data: floats(4 * 64), shape: [4, 64] };
      const back = weights.toFloats(weights.quantizeTensor(w, dtype));
      expectWithin("largest error", Math.max(...w.data.map((value, i) => Math.abs(value - back[i]!))), 0, most);
    });

  await check("files: what headwise/weights throws is the HeadwiseError of the other entry", async () => {
    const thrown = await thrownBy(() => weights.readSafetensors(new Uint8Array(3)));
    expectTrue("instanceof", thrown instanceof headwise.HeadwiseError);
  });
  const text = (words: string) => new TextEncoder().encode(words);
  const html = text("<!doctype html><title>Not found</title>");
  await check("files: an HTML page is no safetensors file", () =>
    expectThrown(() => weights.readSafetensors(html), { kind: "BAD_FILE", text: /^readSafetensors: .*got a web page/ }),
  );
  await check("files: nor when it is opened", () =>
    expectThrown(() => weights.openSafetensors(html), { kind: "BAD_FILE", text: /^openSafetensors: / }),
  );
  await check("files: a file that was cut off is refused", () =>
    expectThrown(() => weights.readSafetensors(bytes.subarray(0, -1)), {
      kind: "BAD_FILE",
      text: /^readSafetensors: /,
    }),
  );
  await check("files: no bytes at all", () =>
    expectThrown(() => weights.readSafetensors(new Uint8Array()), { kind: "BAD_FILE", text: /^readSafetensors: / }),
  );
  await check("files: an HTML page is no GGUF file", () =>
    expectThrown(() => weights.openGguf(html), { kind: "BAD_FILE", text: /^openGguf: / }),
  );
  await check("files: a prefix without a layer names what is there", () =>
    expectThrown(() => weights.readAttentionWeights(file, "transformer.h.0."), {
      kind: "BAD_FILE",
      text: 'readAttentionWeights: prefix "transformer.h.0." expected to begin a tensor\'s name, got layers at "model.layers.0.self_attn.", "model.layers.1.self_attn."',
    }),
  );
}
