import { describe, expect, test } from "vitest";
import { widen_f16 } from "../../src/reference/decoder.ts";
import { pointer } from "../../src/wasm/memory.ts";
import { builds, createRandom, load, pieces, runKernel } from "../support/harness.ts";

const every = Uint16Array.from({ length: 65_536 }, (_, i) => i);
const formats = [
  ["f16", 0],
  ["bf16", 1],
] as const;

describe.each(builds)("widen_f16 in the %s build", (build) => {
  const instance = load(build);

  test.each(formats)("every %s becomes the float of its twin, whole and in pieces", (_, bf16) => {
    const random = createRandom(bf16);
    for (const n of [every.length, 1, 7, 8, 13, 45]) {
      const start = random.int(0, every.length - n);
      const x = every.slice(start, start + n);
      const [twin, whole, split] = [0, 1, 2].map(() => new Float32Array(n)) as [
        Float32Array,
        Float32Array,
        Float32Array,
      ];
      widen_f16(twin, x, bf16, 0, n);
      runKernel(instance, "widen_f16", [whole, x, bf16, 0, n]);
      expect(whole).toEqual(twin);
      for (const [begin, end] of pieces(random, n)) runKernel(instance, "widen_f16", [split, x, bf16, begin, end]);
      expect(split).toEqual(twin);
    }
  });

  test.each(formats)("%s that lie in the second half of the result are widened in place", (_, bf16) => {
    const { memory, kernels } = instance;
    for (const n of [every.length, 31, 32, 33, 47, 5]) {
      const at = memory.allocate("test", 4 * n);
      const x = every.slice(0x3c00 - 1, 0x3c00 - 1 + n);
      const length = x.length;
      const want = new Float32Array(length);
      runKernel(instance, "widen_f16", [want, x, bf16, 0, length]);
      memory.u8(at + 2 * length, 2 * length).set(new Uint8Array(x.buffer));
      kernels.widen_f16(pointer.f32(at), pointer.u16(at + 2 * length), bf16, 0, length);
      expect(memory.f32(at, length)).toEqual(want);
      memory.free(at);
    }
  });
});
