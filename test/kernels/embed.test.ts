import { describe, expect, test } from "vitest";
import { LINEAR_SCRATCH, WEIGHT_BF16, WEIGHT_F16, WEIGHT_F32, WEIGHT_Q4, WEIGHT_Q8 } from "../../assembly/layout.ts";
import { FORMATS, integerRowBytes } from "../../src/layers/linear/formats.ts";
import { embed_rows } from "../../src/reference/decoder.ts";
import { padded } from "../../src/reference/numbers.ts";
import {
  type Arguments,
  builds,
  copyArguments,
  createRandom,
  floats,
  load,
  pieces,
  runKernel,
} from "../support/harness.ts";

const NAMES = ["f32", "f16", "bf16", "q8", "q8-row", "q4"] as const;

describe.each(builds)("embed_rows in the %s build", (build) => {
  const instance = load(build);

  /** The panels that a projection by w [n, k] would read, and the fields that tell how. */
  function pack(w: Float32Array, n: number, k: number, name: (typeof NAMES)[number]) {
    const panels = Math.ceil(n / 8);
    const block = name === "q8-row" ? padded(k) : 32;
    if (name === "f32") {
      const out = new Float32Array(panels * 8 * k);
      runKernel(instance, "pack_rows_f32", [out, w, n, k, 0, panels]);
      return { bytes: new Uint8Array(out.buffer), format: WEIGHT_F32, block: 0 };
    }
    if (name === "f16" || name === "bf16") {
      const out = new Uint16Array(panels * 8 * k);
      runKernel(instance, "pack_rows_f16", [out, w, n, k, name === "bf16" ? 1 : 0, 0, panels]);
      return { bytes: new Uint8Array(out.buffer), format: name === "bf16" ? WEIGHT_BF16 : WEIGHT_F16, block: 0 };
    }
    const blocks = (panels * padded(k)) / block;
    if (name === "q4") {
      const bytes = new Uint8Array(blocks * (32 + 128));
      runKernel(instance, "pack_q4", [bytes, w, n, k, 0, panels]);
      return { bytes, format: WEIGHT_Q4, block };
    }
    const bytes = new Uint8Array(blocks * (32 + 8 * block));
    const sums = new Uint8Array(panels * FORMATS[name].sumBytes(k));
    runKernel(instance, "pack_q8", [bytes, sums, w, n, k, block, 0, panels]);
    return { bytes, format: WEIGHT_Q8, block, sums };
  }

  test.each(NAMES)("leaves the bits of its twin from panels of %s, whole and in pieces", (name) => {
    const random = createRandom(3);
    for (const [n, k] of [
      [1, 1],
      [9, 31],
      [16, 32],
      [23, 67],
      [40, 96],
    ] as const) {
      const w = floats(random, n * k, "outlier");
      const { bytes, format, block } = pack(w, n, k, name);
      const tokens = 7;
      const ids = Int32Array.from({ length: tokens }, (_, t) => (t === 0 ? n - 1 : random.int(0, n - 1)));
      for (const scale of [1, Math.fround(Math.sqrt(k))]) {
        const shape = { n, k, format, block, scale };
        const args: Arguments<"embed_rows"> = [new Float32Array(tokens * k), ids, bytes, null, shape, 0, tokens];
        const twin = copyArguments<"embed_rows">(args);
        const split = copyArguments<"embed_rows">(args);
        embed_rows(...twin);
        runKernel(instance, "embed_rows", args);
        expect(args[0]).toEqual(twin[0]);
        for (const [begin, end] of pieces(random, tokens)) {
          split[5] = begin;
          split[6] = end;
          runKernel(instance, "embed_rows", split);
        }
        expect(split[0]).toEqual(args[0]);
        if (name === "f32")
          for (const [t, id] of ids.entries())
            for (let i = 0; i < k; i++) expect(args[0][t * k + i]).toBe(Math.fround(w[id * k + i]! * scale));
      }
    }
  });

  test.each(NAMES)("a row of %s is what a projection multiplies by: x · wᵀ with x all zeros but one", (name) => {
    const random = createRandom(5);
    const [n, k] = [11, 35];
    const { bytes, format, block, sums } = pack(floats(random, n * k), n, k, name);
    const ids = Int32Array.from({ length: n }, (_, i) => i);
    const table = new Float32Array(n * k);
    runKernel(instance, "embed_rows", [table, ids, bytes, null, { n, k, format, block, scale: 1 }, 0, n]);
    const panels = Math.ceil(n / 8);
    for (const i of [0, 1, 7, 33, 34]) {
      const x = new Float32Array(k);
      x[i] = 1;
      const out = new Float32Array(panels * 8);
      const shape = {
        panels,
        k,
        outStride: panels * 8,
        xStride: k,
        bf16: format === WEIGHT_BF16 ? 1 : 0,
        block,
        mode: 0,
        zero: 8,
        type: 0,
      };
      if (format === WEIGHT_F32)
        runKernel(instance, "linear_f32", [out, x, new Float32Array(bytes.buffer), null, shape, 0, 1]);
      else if (format === WEIGHT_F16 || format === WEIGHT_BF16)
        runKernel(instance, "linear_f16", [
          ...([out, x, new Uint16Array(bytes.buffer), new Uint8Array(4 * 65_536), null, shape, 0, 1] as const),
        ] as never);
      else {
        const row = new Uint8Array(integerRowBytes(k));
        runKernel(instance, "quantize_rows", [row, x, k, k, 0, 0, 0, 1]);
        const beside = sums ?? new Uint8Array(LINEAR_SCRATCH);
        const kernel = format === WEIGHT_Q8 ? "linear_q8" : "linear_q4";
        runKernel(instance, kernel, [out, row, bytes, beside, null, shape, 0, 1]);
      }
      for (let r = 0; r < n; r++) {
        const want = table[r * k + i]!;
        expect(Math.abs(out[r]! - want)).toBeLessThanOrEqual(Math.abs(want) * 2 ** -21);
      }
    }
  });
});
