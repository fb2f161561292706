import { BLOCK, PANEL } from "../../assembly/layout.ts";
import { LINEAR_SHAPE_BYTES, NULL, storeLinearShape } from "./abi.ts";
import type { Instance } from "./instantiate.ts";
import { Layout, pointer } from "./memory.ts";

/**
 * How integer kernels multiply: 0 by pairs of 16 bits, 1 by fours of bytes in one instruction, 2 by fours of bytes in three
 * (assembly/linear/int_dot.ts). Sums are exact on every path, so the choice is of speed alone.
 */
export type Road = 0 | 1 | 2;

/** The fastest path for integers of 14 bits, and for those of 7. */
export interface Roads {
  readonly exact: Road;
  readonly fast: Road;
}

const PAIRS: Road = 0;
const BYTES: Road = 1;
const BYTES_SPLIT: Road = 2;

/** A product of ROWS by 8 · PANELS by K takes some ten microseconds. */
const ROWS = 4;
const PANELS = 8;
const K = 512;
/** A sample takes at least so long, unless the clock stands still. */
const SAMPLE_MS = 0.4;
const MOST_REPEATS = 64;
const SAMPLES = 3;

/**
 * Finds the fastest paths by trying: nothing else shows whether a CPU multiplies bytes by fours in one instruction. Takes a
 * few milliseconds; where the clock stands still during a task, as on Workers, pairs win.
 */
export function findRoads({ kernels, memory, relaxed }: Instance): Roads {
  if (!relaxed) return { exact: PAIRS, fast: PAIRS };
  const layout = new Layout();
  const rowBytes = 16 + 2 * K;
  const places = {
    x: layout.take(ROWS * rowBytes),
    w: layout.take(PANELS * (K / BLOCK) * PANEL * (4 + BLOCK)),
    sums: layout.take(PANELS * (K / BLOCK) * PANEL * 4),
    out: layout.floats(ROWS * PANELS * PANEL),
    shape: layout.take(LINEAR_SHAPE_BYTES),
  };
  const at = memory.allocate("kernels", layout.bytes);
  memory.u8(at, layout.bytes).fill(0);
  const [x, w, sums] = [places.x, places.w, places.sums].map((place) => pointer.u8(at + place));
  const [out, shape] = [pointer.f32(at + places.out), pointer.linearShape(at + places.shape)];
  const sizes = { panels: PANELS, k: K, outStride: PANELS * PANEL, xStride: 0, bf16: 0, block: BLOCK };
  const time = (road: Road, repeats: number) => {
    storeLinearShape(memory.view(), shape, { ...sizes, mode: 2 * road });
    const start = performance.now();
    for (let i = 0; i < repeats; i++) kernels.linear_q8(out, x!, w!, sums!, NULL, shape, 0, ROWS);
    return performance.now() - start;
  };
  let repeats = 1;
  while (time(PAIRS, repeats) < SAMPLE_MS && repeats < MOST_REPEATS) repeats *= 2;
  time(BYTES, repeats);
  const best = { pairs: Infinity, bytes: Infinity };
  for (let i = 0; i < SAMPLES; i++) {
    best.pairs = Math.min(best.pairs, time(PAIRS, repeats));
    best.bytes = Math.min(best.bytes, time(BYTES, repeats));
  }
  memory.free(at);
  return best.bytes < best.pairs ? { exact: BYTES, fast: BYTES } : { exact: PAIRS, fast: BYTES_SPLIT };
}
