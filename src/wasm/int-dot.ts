import { BLOCK, PANEL } from "../../assembly/layout.ts";
import { LINEAR_SHAPE_BYTES, NULL, storeLinearShape } from "./abi.ts";
import type { Instance } from "./instantiate.ts";
import { Layout, pointer } from "./memory.ts";

/**
 * The dot-product path of integer kernels (assembly/linear/int_dot.ts): 0 multiplies pairs of 16-bit integers, 1 four
 * bytes in one instruction, 2 four bytes in three. Sums are exact on every path, so the choice affects speed only.
 */
type DotPath = 0 | 1 | 2;

/** The fastest dot-product paths for integers of 14 bits ("exact" activations) and of 7 bits ("fast"). */
export interface DotPaths {
  readonly exact: DotPath;
  readonly fast: DotPath;
}

const I16_PAIRS: DotPath = 0;
const I8: DotPath = 1;
const I8_EMULATED: DotPath = 2;

/** A product of ROWS by 8 · PANELS by K takes some ten microseconds. */
const ROWS = 4;
const PANELS = 8;
const K = 512;
/** A sample takes at least this long, unless the clock stands still. */
const SAMPLE_MS = 0.4;
const MOST_REPEATS = 64;
const SAMPLES = 3;

/**
 * Finds the fastest paths by timing: WebAssembly does not reveal whether the CPU multiplies four bytes in one
 * instruction. Takes a few milliseconds. Where the clock stands still during a task, as on Cloudflare Workers, 16-bit
 * pairs are taken.
 */
export function findDotPaths({ kernels, memory, relaxed }: Instance): DotPaths {
  if (!relaxed) return { exact: I16_PAIRS, fast: I16_PAIRS };
  const layout = new Layout();
  const zerosAt = layout.take(PANELS * (K / BLOCK) * PANEL * (4 + BLOCK));
  const outAt = layout.floats(ROWS * PANELS * PANEL);
  const shapeAt = layout.take(LINEAR_SHAPE_BYTES);
  const at = memory.allocate("kernels", layout.bytes);
  memory.u8(at, layout.bytes).fill(0);
  // Weights, their sums and the rows that they are multiplied by.
  const zeros = pointer.u8(at + zerosAt);
  const [out, shape] = [pointer.f32(at + outAt), pointer.linearShape(at + shapeAt)];
  const sizes = { panels: PANELS, k: K, outStride: PANELS * PANEL, xStride: 0, bf16: 0, block: BLOCK };
  const time = (path: DotPath, repeats: number) => {
    storeLinearShape(memory.view(), shape, { ...sizes, mode: 2 * path });
    const start = performance.now();
    for (let i = 0; i < repeats; i++) kernels.linear_q8(out, zeros, zeros, zeros, NULL, shape, 0, ROWS);
    return performance.now() - start;
  };
  let repeats = 1;
  while (time(I16_PAIRS, repeats) < SAMPLE_MS && repeats < MOST_REPEATS) repeats *= 2;
  time(I8, repeats);
  const best = { pairs: Infinity, bytes: Infinity };
  for (let i = 0; i < SAMPLES; i++) {
    best.pairs = Math.min(best.pairs, time(I16_PAIRS, repeats));
    best.bytes = Math.min(best.bytes, time(I8, repeats));
  }
  memory.free(at);
  return best.bytes < best.pairs ? { exact: I8, fast: I8 } : { exact: I16_PAIRS, fast: I8_EMULATED };
}
