import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { PAGE } from "../../../assembly/layout.ts";
import { RecurrentState, recurrentStateBytes } from "../../../src/layers/recurrent/state.ts";
import type { Kernels } from "../../../src/wasm/kernels.ts";
import { createRandom } from "../../support/harness.ts";
import { kernelsOf } from "../../support/layers.ts";

const SIZES = { inputs: 3, scan: 5, rows: { inputs: 1, scan: 2 }, work: 1 };

let kernels: Kernels;
beforeAll(async () => {
  kernels = await kernelsOf("simd");
});
afterAll(() => kernels.release());

const create = (maxSeqLen: number) =>
  new RecurrentState("test", kernels, SIZES, maxSeqLen, (part, rows, count, { from, to }) => {
    const added = kernels.memory.f32(rows, count * SIZES.rows[part]).reduce((sum, value) => sum + value, 0);
    kernels.memory.f32(to, SIZES[part]).set(kernels.memory.f32(from, SIZES[part]).map((value) => value + added));
  });

/** Brings both parts from `from` tokens to `to`, as a layer does: each part is a sum over the tokens, cut at pages. */
function read(state: RecurrentState, from: number, to: number): void {
  for (const part of ["inputs", "scan"] as const)
    for (let at = from; at < to; ) {
      const end = Math.min(to, PAGE * (1 + Math.floor(at / PAGE)));
      const places = state.transition(part, at === from);
      const before = kernels.memory.f32(places.from, SIZES[part]);
      kernels.memory.f32(places.to, SIZES[part]).set(before.map((value) => value + (end - at)));
      for (let token = at; token < end; token++) state.rowAt(part, token - from, to - from)?.fill(1 / SIZES.rows[part]);
      state.keep(part, end);
      at = end;
    }
}

/** What the state holds: the number of its tokens, in every float of both parts. */
function expectHeld(state: RecurrentState, length: number): void {
  for (const part of ["inputs", "scan"] as const) {
    const held = kernels.memory.f32(state.transition(part, true).from, SIZES[part]);
    expect([...held]).toEqual(new Array(SIZES[part]).fill(length));
  }
}

describe("the state of a recurrent layer", () => {
  test("goes back to checkpoints that are about as far away again as what is cut off, and to before the last call", () => {
    const state = create(20 * PAGE);
    read(state, 0, 11 * PAGE + 5);
    state.commit(11 * PAGE + 5);
    const lengths = [11, 10, 8].map((pages) => pages * PAGE);
    for (const length of lengths) expect(state.nearest(length + 3, 11 * PAGE + 5)).toBe(length);
    expect(state.nearest(9 * PAGE, 11 * PAGE + 5)).toBe(8 * PAGE);
    expect(state.nearest(7 * PAGE, 11 * PAGE + 5)).toBe(4 * PAGE);
    read(state, 11 * PAGE + 5, 11 * PAGE + 9);
    state.commit(4);
    const kept = `0, ${4 * PAGE}, ${8 * PAGE}, ${10 * PAGE}, ${11 * PAGE}, ${11 * PAGE + 5}`;
    for (const [wanted, rule] of [
      [11 * PAGE + 1, `${kept} to ${11 * PAGE + 9}`],
      [11 * PAGE + 6.5, `${kept} to ${11 * PAGE + 9}`],
    ] as const)
      expect(() => state.expectTruncatable(wanted)).toThrow(`truncate: length expected one of ${rule}, got ${wanted}`);
    // Each row of a short call, twice, then what was before it.
    for (const [held, length] of [
      [11 * PAGE + 9, 11 * PAGE + 8],
      [11 * PAGE + 8, 11 * PAGE + 6],
      [11 * PAGE + 6, 11 * PAGE + 5],
    ] as const) {
      expect(state.nearest(length, held)).toBe(length);
      state.truncate(length);
    }
    expectHeld(state, 11 * PAGE + 5);
    state.mark();
    for (let length = 11 * PAGE + 5; length < 11 * PAGE + 40; length++) {
      read(state, length, length + 1);
      state.commit(1);
    }
    expect(state.nearest(11 * PAGE + 38, 11 * PAGE + 40)).toBe(11 * PAGE + 5);
    state.truncate(11 * PAGE + 5);
    expectHeld(state, 11 * PAGE + 5);
    expect(() => state.expectTruncatable(11 * PAGE + 1)).toThrow(`expected one of ${kept}, got ${11 * PAGE + 1}`);
    state.release();
  });

  test("random calls, aborted ones, cuts and forks hold what plain numbers do, and all memory comes back", () => {
    const random = createRandom(20261128);
    const used = kernels.usedBytes;
    const most = 40 * PAGE;
    let all = [{ state: create(most), length: 0 }];
    expect(all[0]!.state.bytes).toBe(recurrentStateBytes(SIZES, most));
    for (let step = 0; step < 3000; step++) {
      const one = all[random.int(0, all.length - 1)]!;
      const { state, length } = one;
      const count = Math.min(most - length, random.int(0, 3) === 0 ? random.int(1, 4 * PAGE) : random.int(1, 20));
      switch (random.int(0, 6)) {
        case 0: {
          const wanted = random.int(0, length);
          one.length = state.nearest(wanted, length);
          expect(one.length).toBeLessThanOrEqual(wanted);
          state.expectTruncatable(one.length);
          state.truncate(one.length);
          break;
        }
        case 1:
          if (all.length < 4) all.push({ state: state.fork("test"), length });
          break;
        case 2:
          state.begin();
          read(state, length, length + count);
          state.begin();
          break;
        case 3:
          state.mark();
          break;
        case 4:
          if (all.length > 1) {
            all = all.filter((each) => each !== one);
            state.release();
          }
          break;
        default: {
          state.begin();
          // What a length can be cut to once more is held is known before.
          const promised = state.nearest(length, length + count);
          read(state, length, length + count);
          state.commit(count);
          one.length += count;
          if (promised > 0) state.expectTruncatable(promised);
        }
      }
      if (all.includes(one)) expectHeld(one.state, one.length);
    }
    for (const { state } of all) state.release();
    expect(kernels.usedBytes).toBe(used);
  });
});
