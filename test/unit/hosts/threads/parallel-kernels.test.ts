// How calls are divided into tiles: every part of a range in one tile, no more tiles than there is room for, no small call
// shared.

import { expect, test } from "vitest";
import { SHARES, shareKernels } from "../../../../src/hosts/threads/parallel-kernels.ts";
import { type ThreadPool, TILES } from "../../../../src/hosts/threads/pool.ts";
import { FORMATS, linearShape, WEIGHT_FORMATS, type WeightFormat } from "../../../../src/layers/linear/formats.ts";

import { createRandom } from "../../../../src/tools/diagnostics/random.ts";

import {
  ActivationShape,
  AttentionShape,
  CacheShape,
  FIELDS,
  KERNEL_NAMES,
  type KernelTable,
  LinearShape,
  NormShape,
  NULL,
  type Pointer,
  RouteShape,
} from "../../../../src/wasm/abi.ts";
import { LinearMemory, pointer } from "../../../../src/wasm/memory.ts";

/** The arguments of each tile of a call. */
type Tiles = readonly (readonly number[])[];

interface Noting {
  readonly kernels: KernelTable;
  readonly memory: LinearMemory;
  /** The tiles of the last call; undefined after a direct one. */
  last(): Tiles | undefined;
  /** The bytes of scratch that each of its threads has. */
  lastOwn(): number;
  place(shape: LinearShape): Pointer<LinearShape>;
  shapeAt(at: number): LinearShape;
}

/** Kernels of a pool that only notes what it is given. */
function noting(size: number): Noting {
  let noted: Tiles | undefined;
  let notedOwn = 0;
  const memory = new LinearMemory(new WebAssembly.Memory({ initial: 1 }), 1024);
  const direct = () => {
    noted = undefined;
  };
  const run = (_name: string, own: number, tiles: Tiles) => {
    noted = tiles;
    notedOwn = own;
  };
  const table = Object.fromEntries(KERNEL_NAMES.map((name) => [name, direct])) as unknown as KernelTable;
  const shapes = memory.allocate("test", LinearShape.bytes * TILES);
  const shapeOf = (tile: number) => shapes + LinearShape.bytes * tile;
  const pool = { size, own: () => 64, run, shapeOf } as unknown as ThreadPool;
  const at = pointer.linearShape(memory.allocate("test", LinearShape.bytes));
  return {
    kernels: shareKernels(table, memory, pool),
    memory,
    last: () => noted,
    lastOwn: () => notedOwn,
    place(shape) {
      LinearShape.store(memory.view(), at, shape);
      return at;
    },
    shapeAt: (place) =>
      Object.fromEntries(
        FIELDS.LinearShape.map((name, i) => [name, memory.view().getInt32(place + 4 * i, true)]),
      ) as unknown as LinearShape,
  };
}

test("the tiles of a projection are each panel of each row once", () => {
  const random = createRandom(1);
  for (let trial = 0; trial < 150; trial++) {
    const { kernels, last, place, shapeAt } = noting(random.int(2, 64));
    const [panels, k, begin] = [random.int(1, 1500), random.int(1, 3000), random.int(0, 40)];
    const rows = trial % 3 === 0 ? random.int(1, 12) : random.int(1, 256);
    const [out, x, w, bias] = [1e9, 5e6, 2e9, trial % 2 === 0 ? NULL : pointer.f32(4096)].map(Number) as number[];
    const p = pointer.f32;
    const shape = linearShape(FORMATS.f32, { panels, k, outStride: 8 * panels, xStride: k });
    kernels.linear_f32(p(out!), p(x!), p(w!), p(bias!), place(shape), begin, begin + rows);
    const tiles = last();
    if (!tiles) {
      expect(16 * panels * k * rows).toBeLessThan(SHARES.call);
      continue;
    }
    expect(tiles.length).toBeLessThanOrEqual(TILES);
    const seen = new Uint8Array(panels * rows);
    for (const [to, from, weights, start, own, first, end] of tiles as number[][]) {
      const panel = (to! - out!) / 32;
      const { panels: count } = shapeAt(own!);
      expect([from, shapeAt(own!)]).toEqual([x, { ...shape, panels: count }]);
      expect([weights! - w!, start]).toEqual([panel * k * 32, bias === 0 ? 0 : bias! + 32 * panel]);
      for (let r = first! - begin; r < end! - begin; r++)
        for (let c = panel; c < panel + count; c++) seen[r * panels + c]! += 1;
    }
    expect(seen.every((times) => times === 1)).toBe(true);
  }
});

test("the tiles of projections of other formats are each panel of each row once, with scratch of their own or the sums of their weights", () => {
  const random = createRandom(5);
  const [f32, u8, u16] = [pointer.f32, pointer.u8, pointer.u16];
  const [out, x, w, bias] = [1e9, 5e6, 2e9, 4096] as const;
  for (let trial = 0; trial < 150; trial++) {
    const { kernels, last, place, shapeAt } = noting(random.int(2, 64));
    const [panels, k, begin] = [random.int(100, 1500), random.int(300, 3000), random.int(0, 40)];
    const end = begin + (trial % 3 === 0 ? random.int(1, 12) : random.int(1, 256));
    const stride = 8 * panels;
    const format = WEIGHT_FORMATS[1 + (trial % 5)] as WeightFormat;
    const beside = 7;
    const shape = linearShape(FORMATS[format], { panels, k, outStride: stride, xStride: k, mode: trial % 6 });
    const at = place(shape);
    if (format === "f16" || format === "bf16")
      kernels.linear_f16(f32(out), f32(x), u16(w), f32(beside), f32(bias), at, begin, end);
    else {
      const linear = format === "q4" ? kernels.linear_q4 : kernels.linear_q8;
      linear(f32(out), u8(x), u8(w), u8(beside), f32(bias), at, begin, end);
    }
    const tiles = last() as Tiles;
    expect(tiles.length).toBeLessThanOrEqual(TILES);
    const rows = end - begin;
    const seen = new Uint8Array(panels * rows);
    for (const tile of tiles) {
      type Arguments = [number, number, number, number, number, number];
      const [to, from, weights, own, start, placed] = tile as number[] as Arguments;
      const panel = (to - out) / 32;
      const { panels: count } = shapeAt(placed);
      // noting() gives scratch at 64.
      const expected = format === "q8" || format === "q8-row" ? beside + panel * FORMATS[format].sumBytes(k) : 64;
      expect([from, own, start, shapeAt(placed)]).toEqual([
        x,
        expected,
        bias + 32 * panel,
        { ...shape, panels: count },
      ]);
      expect(weights - w).toBe(panel * FORMATS[format].panelBytes(k));
      for (let r = tile.at(-2)! - begin; r < tile.at(-1)! - begin; r++)
        for (let c = panel; c < panel + count; c++) seen[r * panels + c]! += 1;
    }
    expect(
      seen.every((times) => times === 1),
      `${format} ${panels} ${k} ${rows}`,
    ).toBe(true);
  }
});

test("the tiles of attention are each row once, the last rows of a causal call first", () => {
  const random = createRandom(2);
  for (let trial = 0; trial < 150; trial++) {
    const { kernels, memory, last } = noting(random.int(2, 64));
    const numKvHeads = random.int(1, trial % 5 === 0 ? 300 : 12);
    const [group, qLen, past] = [random.int(1, 8), random.int(1, 256), random.int(0, 5000)];
    const at = memory.allocate("test", 108);
    const shape = {
      ...{ qLen, kvLen: past + qLen, qStart: past, left: 2 ** 30, right: 0, numHeads: numKvHeads * group, numKvHeads },
      ...{
        headDim: 64,
        valueDim: 64,
        qStride: 0,
        qHeadStride: 0,
        outStride: 0,
        outHeadStride: 0,
        scale: 1,
        softcap: 0,
      },
      ...{ slopes: NULL, sinks: NULL, extraKey: NULL, extraValue: NULL, zeroKey: 0, keep: NULL, keepHeadStride: 0 },
      ...{ keepRowStride: 0, bias: NULL, biasHeadStride: 0, biasRowStride: 0, lse: NULL, formats: 0 },
    };
    AttentionShape.store(memory.view(), at, shape);
    const rows = numKvHeads * group * qLen;
    const [begin, end] = trial % 2 === 0 ? [0, rows] : [random.int(0, rows - 1), rows];
    const p = pointer.f32;
    kernels.attention_f32(p(64), p(64), pointer.pages(64), p(64), pointer.attentionShape(at), begin, end);
    const tiles = last();
    if (!tiles) {
      expect((end - begin) * 128 * past).toBeLessThan(SHARES.call);
      continue;
    }
    expect(tiles.length).toBeLessThanOrEqual(TILES);
    const seen = new Uint8Array(rows);
    for (const tile of tiles) for (let r = tile[5]!; r < tile[6]!; r++) seen[r]! += 1;
    expect(seen.every((times, r) => times === (r >= begin ? 1 : 0))).toBe(true);
    if (numKvHeads === 1 && qLen * group > 12) expect(tiles[0]?.[6]).toBe(rows);
  }
});

test("keys are appended in tiles that own whole panels of 8", () => {
  const random = createRandom(3);
  for (let trial = 0; trial < 100; trial++) {
    const { kernels, memory, last } = noting(random.int(2, 16));
    const at = memory.allocate("test", CacheShape.bytes);
    const sizes = { numKvHeads: 32, headDim: 128, valueDim: 128 };
    CacheShape.store(memory.view(), at, { ...sizes, kStride: 0, kHeadStride: 0, vStride: 0, vHeadStride: 0 });
    const [past, tokens] = [random.int(0, 300), random.int(64, 256)];
    const p = pointer.f32;
    kernels.append_f32(pointer.pages(64), p(64), p(64), pointer.cacheShape(at), past, 0, tokens);
    const ends = (last() as Tiles).map((tile) => tile[6] as number);
    const starts = (last() as Tiles).map((tile) => tile[5] as number);
    expect(starts).toEqual([0, ...ends.slice(0, -1)]);
    expect(ends.at(-1)).toBe(tokens);
    expect(starts.slice(1).filter((start) => (past + start) % 8 !== 0)).toEqual([]);
  }
});

test("rows of a decoder's kernels are each in one tile, with scratch of their own for routes", () => {
  const { kernels, memory, last, lastOwn } = noting(4);
  const { f32 } = pointer;
  const i32 = (at: number) => at as Pointer<Int32Array>;
  const at = memory.allocate("test", Math.max(RouteShape.bytes, NormShape.bytes, ActivationShape.bytes));
  const view = memory.view();
  const rows = 4096;
  const covered = () => {
    const ranges = (last() as Tiles).map((tile) => tile.slice(-2) as [number, number]).sort(([a], [b]) => a - b);
    expect(ranges.length).toBeGreaterThan(1);
    expect(ranges.map(([from]) => from)).toEqual([0, ...ranges.slice(0, -1).map(([, to]) => to)]);
    expect(ranges.at(-1)?.[1]).toBe(rows);
  };
  NormShape.store(view, at, { n: 576, stride: 576, eps: 1e-5 });
  kernels.layer_norm_f32(f32(64), f32(64), f32(64), NULL, at as Pointer<NormShape>, 0, rows);
  covered();
  const strides = { outStride: 1536, gateStride: 3072, upStride: 3072 };
  ActivationShape.store(view, at, { kind: 0, n: 1536, ...strides, alpha: 1, limit: 0 });
  kernels.activate_f32(f32(64), f32(64), f32(64), at as Pointer<ActivationShape>, 0, rows);
  covered();
  kernels.add_scaled_f32(f32(64), f32(64), f32(64), 576, 1, 0, rows);
  covered();
  kernels.cap_logits_f32(f32(64), 49_152, 49_152, 1, 30, 0, rows);
  covered();
  kernels.top_k_f32(f32(64), i32(64), f32(64), 49_152, 49_152, 40, 0, rows);
  covered();
  const groups = { groups: 8, keepGroups: 4, pairs: 1 };
  RouteShape.store(view, at, { experts: 256, topK: 8, stride: 256, sigmoid: 1, ...groups, renormalise: 1, scale: 2.5 });
  kernels.route_f32(i32(64), f32(64), f32(64), f32(64), NULL, at as Pointer<RouteShape>, 0, rows);
  covered();
  expect(lastOwn()).toBeGreaterThanOrEqual(4 * (256 + 3 * 8));
});

test("what is small stays on the calling thread", () => {
  const { kernels, last, place } = noting(8);
  const p = pointer.f32;
  const small = place(linearShape(FORMATS.f32, { panels: 8, k: 64, outStride: 64, xStride: 64 }));
  const linear = (rows: number) => kernels.linear_f32(p(64), p(64), p(64), p(64), small, 0, rows);
  linear(255);
  expect(last()).toBe(undefined);
  linear(256);
  expect(last()?.length).toBeGreaterThan(1);
  const alone = noting(1);
  const large = alone.place(linearShape(FORMATS.f32, { panels: 800, k: 640, outStride: 6400, xStride: 640 }));
  alone.kernels.linear_f32(p(64), p(64), p(64), p(64), large, 0, 256);
  expect(alone.last()).toBe(undefined);
});
