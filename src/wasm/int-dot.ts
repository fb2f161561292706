import { BLOCK, PANEL } from "../../assembly/layout.ts";
import { LINEAR_SHAPE_BYTES, NULL, storeLinearShape } from "./abi.ts";
import type { Instance } from "./instantiate.ts";
import { Layout, pointer } from "./memory.ts";

/** The `mode` of linear_q8 on the fastest dot-product path, for activations of 14 bits ("exact") and of 7 ("fast"). */
export interface DotModes {
  readonly exact: number;
  readonly fast: number;
}

/**
 * Modes by dot-product path (assembly/linear/int_dot.ts): pairs of 16-bit integers, four bytes in one instruction, or in three.
 * Sums are exact on every path, so the choice affects speed only.
 */
const I16_PAIRS = 0;
const I8 = 2;
const I8_EMULATED = 4;
/** Added to them for activations of 7 bits. */
const FAST = 1;

/**
 * How integers are multiplied: by instructions for pairs of 16 bits ("i16 pairs"), or for fours of bytes, which are one
 * instruction of the CPU ("i8") or three ("i8 emulated"). The results are the same.
 */
export type DotProduct = "i16 pairs" | "i8" | "i8 emulated";

/** The dot product of a mode. */
export function dotProductOf(mode: number): DotProduct {
  const path = mode & ~FAST;
  return path === I8 ? "i8" : path === I8_EMULATED ? "i8 emulated" : "i16 pairs";
}

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
export function findDotModes({ kernels, memory, relaxed }: Instance): DotModes {
  if (!relaxed) return { exact: I16_PAIRS, fast: I16_PAIRS + FAST };
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
  const time = (mode: number, repeats: number) => {
    storeLinearShape(memory.view(), shape, { ...sizes, mode });
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
  return best.bytes < best.pairs ? { exact: I8, fast: I8 + FAST } : { exact: I16_PAIRS, fast: I8_EMULATED + FAST };
}
