// How jobs of generateMany end, what a seed draws, and what plans assume.

import { expect, test } from "vitest";
import { createSession } from "../../../../src/models/decoder/session.ts";
import { type GenerationEvent, generateMany } from "../../../../src/models/generate/generate-many.ts";
import { randomAt } from "../../../../src/models/generate/sampling.ts";
import { loadModel, planModelFiles } from "../../../../src/models/load/load-model.ts";
import { planModel } from "../../../../src/models/load/plan-model.ts";
import { gguf } from "../../../../src/models/spec/read-gguf.ts";
import { writeGguf } from "../../../support/gguf-writer.ts";
import { kernelsOf } from "../../../support/layers.ts";
import { ggufModel } from "../../../support/tiny-gguf.ts";
import { TINY, tinyFolder, tinyTensors } from "../../../support/tiny-models.ts";

test("a job whose token is one of its stopIds ends with that id, and others go on", async () => {
  using kernels = await kernelsOf("simd");
  using model = await loadModel(kernels, tinyFolder(TINY.llama));
  const read = async (stopIds: readonly number[][]) => {
    const jobs = stopIds.map((ids) => ({
      ...{
        session: createSession(model, { maxSeqLen: 40 }),
        ids: [5, 34, 63],
        maxTokens: 4,
        temperature: 2,
        seed: 3,
        stopIds: ids,
      },
    }));
    const events: [number, GenerationEvent<(typeof jobs)[number]>][] = [];
    for await (const event of generateMany(jobs)) events.push([jobs.indexOf(event.job), event]);
    const of = (which: number) => events.filter(([job]) => job === which).map(([, event]) => event);
    return jobs.map((_, which) => ({
      ids: of(which).flatMap(({ token }) => token?.id ?? []),
      end: of(which).at(-1)?.end,
    }));
  };
  const [plain] = (await read([[]])) as [{ ids: number[]; end: unknown }];
  expect(plain.ids).toHaveLength(4);
  expect(plain.end).toEqual({ reason: "length", seed: 3 });
  const stop = plain.ids.find((id) => id !== plain.ids[0]) as number;
  const before = plain.ids.slice(0, plain.ids.indexOf(stop));
  expect(await read([[stop], []])).toEqual([{ ids: before, end: { reason: "stop", stopId: stop, seed: 3 } }, plain]);
});

test("the random numbers of a seed are those of every version", () => {
  const drawn = [
    [0, 0],
    [1, 0],
    [0, 1],
    [7, 100],
    [2 ** 32 - 1, 2 ** 20],
  ].map(([seed, position]) => randomAt(seed as number, position as number));
  expect(drawn).toEqual([
    0.6650139925996422, 0.5986603030360663, 0.433764034711807, 0.3857726329837101, 0.9368827151076453,
  ]);
});

test("a plan is for one session that reads 256 rows at once, of the last of which it wants logits", async () => {
  const config = { ...TINY.llama, vocab_size: 400_000 };
  const plan = planModel(config);
  expect(plan).toEqual(planModel(config, { sessions: 1, rows: 256, outputs: 1 }));
  for (const other of [{ sessions: 2 }, { rows: 128 }, { outputs: 2 }, { outputs: 0 }])
    expect(planModel(config, other)).not.toEqual(plan);
  expect(() => planModel(config, { rows: 0 })).toThrow("planModel: rows expected an integer >= 1, got 0");
  await expect(planModelFiles(tinyFolder(TINY.llama), { quantized: 1 as never })).rejects.toThrow(
    "planModelFiles: options.quantized expected true or false, got 1",
  );
});

test.each(["F16", "BF16"] as const)(
  "a GGUF of %s takes what this format takes, with matrices that are joined",
  async (dtype) => {
    const tensors = new Map([...tinyTensors(TINY.deepseek_v3)].filter(([name]) => !/self_attn\.\w+\.bias$/.test(name)));
    const model = ggufModel({ ...TINY.deepseek_v3, rms_norm_eps: 2 ** -14 }, tensors);
    const halves = model.tensors.map((tensor) =>
      tensor.shape.length < 2 || /ffn_gate_inp/.test(tensor.name)
        ? tensor
        : { ...tensor, type: dtype === "F16" ? 1 : 30, bytes: new Uint8Array(tensor.bytes.length / 2) },
    );
    const file = writeGguf({ ...model, tensors: halves });
    const bytesOf = async (weights?: "f16" | "bf16") => (await planModelFiles(file, { gguf, weights })).weights;
    expect(await bytesOf()).toBe(await bytesOf(dtype === "F16" ? "f16" : "bf16"));
  },
);
