import { describe, expect, test, vi } from "vitest";
import { type Kernels, loadKernels } from "../../../../src/entries/index.ts";
import { models, selfTestModels } from "../../../../src/entries/models.ts";
import { quantized } from "../../../../src/entries/quantized.ts";

const start = (deterministic: boolean, formats: boolean): Promise<Kernels> =>
  loadKernels({ deterministic, models, ...(formats && { quantized }) });

describe.each([true, false])("the self-test of decoders, deterministic: %s", (deterministic) => {
  test.each([false, true])(
    "reaches the published digest, and gives its memory back; quantized: %s",
    async (formats) => {
      using kernels = await start(deterministic, formats);
      const first = await selfTestModels(kernels);
      const used = kernels.usedBytes;
      const { expected } = first;
      expect(first).toEqual({ ok: true, digest: expected, expected, outputs: formats ? 15 : 5, same: true });
      expect(await selfTestModels(kernels)).toEqual(first);
      expect(kernels.usedBytes).toBe(used);
    },
  );
});

test("a kernel that computes other bits in a batch of rows is reported", async () => {
  using kernels = await start(true, false);
  const { linear_f32: linear } = kernels.table;
  vi.spyOn(kernels.table, "linear_f32").mockImplementation((out, x, w, bias, shape, begin, end) => {
    linear(out, x, w, bias, shape, begin, end);
    if (end - begin > 9) kernels.memory.floats()[out / 4]! += 1;
  });
  expect(await selfTestModels(kernels)).toMatchObject({ ok: false, same: false });
});

test("a kernel that always computes other bits is reported by its digest", async () => {
  using kernels = await start(true, false);
  const { embed_rows: embed } = kernels.table;
  vi.spyOn(kernels.table, "embed_rows").mockImplementation((...args) => {
    embed(...args);
    const [out] = args as unknown as [number];
    kernels.memory.floats()[out / 4]! *= 2;
  });
  const { ok, digest, expected } = await selfTestModels(kernels);
  expect([ok, digest === expected]).toEqual([false, false]);
});

test("kernels without models are refused", async () => {
  using kernels = await loadKernels();
  await expect(selfTestModels(kernels)).rejects.toMatchObject({
    code: "NO_MODELS",
    message: expect.stringMatching(/^selfTestModels: /),
  });
  kernels.release();
  await expect(selfTestModels(kernels)).rejects.toMatchObject({ code: "RELEASED" });
});
