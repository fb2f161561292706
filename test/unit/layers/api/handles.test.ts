// Kernels, attentions and caches: frozen, printed as their facts, and nothing else is taken for one.

import { inspect } from "node:util";
import { expect, test } from "vitest";
import { type Attention, attend, createAttention, createCache, type Kernels } from "../../../../src/entries/core.ts";
import { createSession, loadModel } from "../../../../src/entries/models.ts";
import { kernelsOf } from "../../../support/layers.ts";
import { TINY, tinyFolder } from "../../../support/tiny-models.ts";

const eye = { data: Float32Array.from({ length: 16 }, (_, i) => (i % 5 === 0 ? 1 : 0)), shape: [4, 4] };
const weights = { wq: eye, wk: eye, wv: eye, wo: eye };
const config = {
  ...{ dModel: 4, numHeads: 2, causal: true, alibi: Float32Array.of(1, 2), qkNorm: { kind: "per-head" as const } },
  rope: { theta: 100, pairing: "half", scaling: { kind: "linear", factor: 2 } },
} as const;
const gains = { qNorm: Float32Array.of(1, 1), kNorm: Float32Array.of(1, 1) };
const layerOf = (kernels: Kernels): Attention => createAttention(kernels, config, { ...weights, ...gains });

/** The frozen and the other objects in a value. */
function objectsIn(value: unknown, path = ""): [path: string, frozen: boolean][] {
  if (value === null || typeof value !== "object" || ArrayBuffer.isView(value)) return [];
  const inner = Object.entries(value).flatMap(([key, each]) => objectsIn(each, `${path}.${key}`));
  return [[path, Object.isFrozen(value)], ...inner];
}

test("handles and all that they show are frozen", async () => {
  using kernels = await kernelsOf("simd");
  const attention = layerOf(kernels);
  const cache = createCache(attention, { maxSeqLen: 4, format: "q8" });
  const objects = Object.entries({ kernels, attention, cache }).flatMap(([name, each]) => objectsIn(each, name));
  expect(objects.map(([path]) => path)).toEqual(
    expect.arrayContaining(["kernels.threads", "attention.config.rope.scaling", "attention.formats", "cache.format.0"]),
  );
  expect(objects.filter(([, frozen]) => !frozen)).toEqual([]);
  const writable = attention as { -readonly [Name in keyof Attention]: Attention[Name] };
  expect(() => Object.assign(writable, { config: { ...attention.config, numHeads: 4 } })).toThrow(TypeError);
  expect(() => Object.assign(attention.config, { causal: false })).toThrow(TypeError);
});

test("the configuration and its arrays are copies of those given", async () => {
  using kernels = await kernelsOf("simd");
  const alibi = Float32Array.of(1, 2);
  const rope = { theta: 100, pairing: "half" as const };
  const attention = createAttention(kernels, { ...config, alibi, rope }, { ...weights, ...gains });
  const x = Float32Array.from({ length: 12 }, Math.sin);
  const before = attend(attention, x);
  alibi.fill(7);
  rope.theta = 3;
  expect(attention.config.slopes).toEqual(Float32Array.of(1, 2));
  expect(attention.config.rope?.theta).toBe(100);
  expect(attend(attention, x)).toEqual(before);
});

test("a copy of a released layer is refused, as every copy is", async () => {
  using kernels = await kernelsOf("simd");
  const attention = layerOf(kernels);
  const copies = [
    { ...attention },
    Object.create(attention),
    new Proxy(attention, {}),
    structuredClone({ ...attention.config }),
  ];
  attention.release();
  for (const copy of copies)
    expect(() => attend(copy as Attention, new Float32Array(4))).toThrow(
      /^attend: attention expected what createAttention or createLatentAttention gives, got (a copy|Object)$/,
    );
  expect(() => attend(attention, new Float32Array(4))).toThrow("attend: attention was released");
});

test("a model and a session are printed in a line or two, without kernels and weights", async () => {
  const kernels = await kernelsOf("simd");
  const model = await loadModel(kernels, tinyFolder(TINY.llama));
  const session = createSession(model, { maxSeqLen: 8 });
  expect(Object.keys(model)).toEqual(["type", "dModel", "vocabSize", "layers", "maxSeqLen", "bytes", "released"]);
  expect(Object.keys(session)).toEqual(["maxSeqLen", "bytes", "length", "released"]);
  expect(inspect(model)).toContain("type: 'llama'");
  expect([model.kernels, session.model]).toEqual([kernels, model]);
  kernels.release();
});

test("what is printed are facts, without what is internal, also after a release", async () => {
  const kernels = await kernelsOf("simd");
  const attention = layerOf(kernels);
  const cache = createCache(attention, { maxSeqLen: 4 });
  const text = inspect({ kernels, attention, cache }, { depth: 10 });
  expect(text.length).toBeLessThan(4000);
  for (const fact of ["[Kernels]", "build: 'simd'", "reason:", "usedBytes: ", "threads:", "[Attention]", "dModel: 4"])
    expect(text).toContain(fact);
  for (const fact of ["[Cache]", "length: 0", "maxSeqLen: 4"]) expect(text).toContain(fact);
  expect(text).not.toMatch(/table|memory:|pages|layer|Getter|linear_f32/);
  expect(Object.keys(cache)).toEqual(["batch", "maxSeqLen", "bytes", "format", "length", "start", "released"]);
  expect(JSON.parse(JSON.stringify(attention)).config.numHeads).toBe(2);
  kernels.release();
  expect(inspect(kernels)).toBe("Object [Kernels] { released: true }");
  expect(inspect({ attention, cache }, { depth: 0 })).toBe(
    "{ attention: [Object [Attention]], cache: [Object [Cache]] }",
  );
});
