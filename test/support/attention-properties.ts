// The properties of the attention kernels, as one function that the tests run on every build and the mutants must fail.

import { FORMAT_F16, LATENT_PAGES, PAGE } from "../../assembly/layout.ts";
import { createRandom, type Random } from "../../src/tools/diagnostics/random.ts";
import type { Instance } from "../../src/wasm/modules.ts";
import { oracleRow } from "./attention-oracle.ts";
import {
  attendAll,
  attendInChunks,
  attends,
  attendTokens,
  createLatentTrial,
  createTrial,
  inRandomFormats,
  type Left,
  type Trial,
  valuesIn,
} from "./attention-trial.ts";
import { pieces } from "./harness.ts";

/** Words that a slot of a page, a masked key or the scratch may hold: NaNs with payloads, infinities, extremes. */
const POISON = [
  0x7fc00000, 0x7fc12345, 0xffc00001, 0x7fffffff, 0xffffffff, 0x7f800001, 0x7f800000, 0xff800000, 0x7e967699,
  0xfe967699, 0x80000000, 0x00000001,
] as const;
const NANS = POISON.slice(0, 6);
const NAN = 0x7fc00000;

const pick = (random: Random, words: readonly number[]): number => words[random.int(0, words.length - 1)]!;
const isNaNWord = (word: number) => (word & 0x7fffffff) > 0x7f800000;

function difference(property: string, got: Left, want: Left): string | undefined {
  for (const part of ["out", "lse"] as const) {
    const at = got[part].findIndex((word, i) => word !== want[part][i]);
    if (at >= 0) return `${property}: ${part}[${at}] is ${hex(got[part][at]!)}, not ${hex(want[part][at]!)}`;
  }
  return undefined;
}

const hex = (word: number) => `0x${word.toString(16).padStart(8, "0")}`;

/** Ranges, chunks, single tokens and any garbage around leave the bits of one call. */
function checkSchedules(instance: Instance, trial: Trial, whole: Left, random: Random): string | undefined {
  const { shape } = trial;
  const fill = pick(random, POISON);
  const cuts = pieces(random, shape.qLen * shape.numHeads);
  const ranges = attendTokens(instance, trial, 0, shape.qLen, shape.kvLen, fill, cuts);
  return (
    difference("ranges", ranges, whole) ??
    difference(
      "chunks",
      attendInChunks(instance, trial, () => random.int(1, 40), pick(random, POISON)),
      whole,
    ) ??
    (shape.qLen <= 13
      ? difference(
          "tokens",
          attendInChunks(instance, trial, () => 1, fill),
          whole,
        )
      : undefined)
  );
}

/** The float operations of the contract, one at a time, leave the bits of the kernel on a few rows. */
function checkOracle(trial: Trial, whole: Left, fused: boolean, random: Random): string | undefined {
  const { shape } = trial;
  const out = new Float32Array(whole.out.buffer);
  const lse = new Float32Array(whole.lse.buffer);
  for (let n = 0; n < 3; n++) {
    const t = random.int(0, shape.qLen - 1);
    const h = random.int(0, shape.numHeads - 1);
    const want = oracleRow(trial, t, h, fused);
    const from = t * shape.outStride + h * shape.outHeadStride;
    for (const [d, x] of want.out.entries())
      if (!Object.is(out[from + d], x)) return `oracle: out[${t}, ${h}, ${d}] is ${out[from + d]}, not ${x}`;
    const got = lse[h * shape.qLen + t]!;
    if (!(Object.is(got, want.lse) || Math.abs(got - want.lse) <= 2 ** -23 * Math.max(1, Math.abs(want.lse))))
      return `oracle: lse[${h}, ${t}] is ${got}, not ${want.lse}`;
  }
  return undefined;
}

/** A trial with some keys' K, V or both poisoned, and what is poisoned. */
interface Poisoned {
  readonly trial: Trial;
  readonly keys: ReadonlySet<number>;
  readonly values: ReadonlyMap<number, number>;
}

function poison(trial: Trial, random: Random, words: readonly number[]): Poisoned {
  const { numKvHeads, headDim, valueDim, kvLen, formats } = trial.shape;
  const latent = (formats & LATENT_PAGES) !== 0;
  const k = new Uint32Array(trial.k.slice().buffer);
  const v = new Uint32Array(trial.v.slice().buffer);
  const keys = new Set<number>();
  const values = new Map<number, number>();
  const share = [0, 0.02, 0.25][random.int(0, 2)]!;
  const one = random.int(0, kvLen - 1);
  // A latent is key and value.
  const where = latent ? 0 : random.int(0, 2);
  for (let j = 0; j < kvLen; j++) {
    if (j !== one && random.next() >= share) continue;
    if (where !== 1) {
      keys.add(j);
      for (let h = 0; h < numKvHeads; h++)
        k[(j * numKvHeads + h) * headDim + random.int(0, headDim - 1)] = pick(random, words);
    }
    if (where !== 0) {
      const d = random.int(0, valueDim - 1);
      values.set(j, d);
      for (let h = 0; h < numKvHeads; h++) v[(j * numKvHeads + h) * valueDim + d] = pick(random, words);
    }
  }
  const poisoned = new Float32Array(k.buffer);
  const v32 = latent ? valuesIn(poisoned, headDim, valueDim) : new Float32Array(v.buffer);
  return { trial: { ...trial, k: poisoned, v: v32 }, keys, values };
}

/**
 * Rows that attend no poisoned key keep their bits; with NaNs alone, an output is NaN exactly where one is attended, and
 * always the same NaN. `clean` is what the trial leaves without poison.
 */
function checkPoison(instance: Instance, clean: Trial, whole: Left, random: Random): string | undefined {
  const { shape } = clean;
  if (shape.kvLen === 0) return undefined;
  const nansOnly = random.next() < 0.6;
  const { trial, keys, values } = poison(clean, random, nansOnly ? NANS : POISON);
  const left = attendAll(instance, trial, pick(random, POISON));
  // A value of integers is one number with a scale.
  const spoilsAll = (j: number) => (clean.formats?.[Math.floor(j / PAGE)] ?? 0) >> 2 > FORMAT_F16;
  for (let t = 0; t < shape.qLen; t++)
    for (let h = 0; h < shape.numHeads; h++) {
      const attended = (j: number) => attends(clean, t, h, j);
      const rowIsNonFinite = [...keys].some(attended);
      const spoiledValues = [...values].filter(([j]) => attended(j));
      const allNonFinite = spoiledValues.some(([j]) => spoilsAll(j));
      const columns = new Set(spoiledValues.map(([, d]) => d));
      const from = t * shape.outStride + h * shape.outHeadStride;
      for (let d = 0; d < shape.valueDim; d++) {
        const got = left.out[from + d]!;
        const at = `out[${t}, ${h}, ${d}] is ${hex(got)}`;
        if (isNaNWord(got) && got !== NAN) return `canonical NaN: ${at}`;
        const nonFinite = rowIsNonFinite || allNonFinite || columns.has(d);
        if (!nonFinite && got !== whole.out[from + d]) return `masked poison: ${at}, not ${hex(whole.out[from + d]!)}`;
        if (nonFinite && nansOnly && got !== NAN) return `attended NaN: ${at}`;
      }
      const lse = left.lse[h * shape.qLen + t]!;
      if (!rowIsNonFinite && lse !== whole.lse[h * shape.qLen + t])
        return `masked poison: lse[${h}, ${t}] is ${hex(lse)}`;
      if (rowIsNonFinite && nansOnly && lse !== NAN) return `attended NaN: lse[${h}, ${t}] is ${hex(lse)}`;
    }
  const chunks = attendInChunks(instance, trial, () => random.int(1, 9), pick(random, POISON));
  return difference("poisoned chunks", chunks, left);
}

/** Poison in one row's query, and in the bias of keys that a row may not attend, stays there. */
function checkOtherPoison(instance: Instance, clean: Trial, whole: Left, random: Random): string | undefined {
  const { shape } = clean;
  const q = new Uint32Array(clean.q.slice().buffer);
  const spoiledToken = random.int(0, shape.qLen - 1);
  const spoiledHead = random.int(0, shape.numHeads - 1);
  q[spoiledToken * shape.qStride + spoiledHead * shape.qHeadStride] = pick(random, POISON);
  const bias = shape.bias && new Uint32Array(shape.bias.slice().buffer);
  // A cell that two heads share is masked only where it is masked for both.
  if (bias)
    for (let t = 0; t < shape.qLen; t++)
      for (let j = 0; j < shape.kvLen; j++)
        for (let h = 0; h < (shape.biasHeadStride ? shape.numHeads : 1); h++) {
          const at = h * shape.biasHeadStride + t * shape.biasRowStride + j;
          const heads = shape.biasHeadStride ? [h] : Array.from({ length: shape.numHeads }, (_, i) => i);
          const masked = shape.bias?.[at] !== Number.NEGATIVE_INFINITY && !heads.some((i) => attends(clean, t, i, j));
          if (masked && random.next() < 0.5) bias[at] = pick(random, POISON);
        }
  const trial = {
    ...clean,
    q: new Float32Array(q.buffer),
    shape: { ...shape, bias: bias && new Float32Array(bias.buffer) },
  };
  const left = attendAll(instance, trial, pick(random, POISON));
  for (let t = 0; t < shape.qLen; t++)
    for (let h = 0; h < shape.numHeads; h++) {
      if (t === spoiledToken && h === spoiledHead) continue;
      const from = t * shape.outStride + h * shape.outHeadStride;
      for (let d = 0; d < shape.valueDim; d++)
        if (left.out[from + d] !== whole.out[from + d])
          return `poisoned query or masked bias: out[${t}, ${h}, ${d}] is ${hex(left.out[from + d]!)}`;
    }
  return undefined;
}

/** What pages hold: floats, any formats, or latents. */
export type PageKind = "floats" | "coded" | "latents";

/**
 * Runs `trials` random trials of a seed against every property. Returns what failed first, with the seed that repeats it, or
 * undefined. `fused` as for the oracle.
 */
export function checkAttention(
  instance: Instance,
  seed: number,
  trials: number,
  fused: boolean,
  pages: PageKind = "floats",
): string | undefined {
  for (let n = 0; n < trials; n++) {
    const random = createRandom(seed + n);
    const plain = pages === "latents" ? createLatentTrial(random) : createTrial(random);
    const trial = pages === "coded" ? inRandomFormats(plain, random) : plain;
    const whole = attendAll(instance, trial);
    const failure =
      checkOracle(trial, whole, fused, random) ??
      checkSchedules(instance, trial, whole, random) ??
      checkPoison(instance, trial, whole, random) ??
      checkOtherPoison(instance, trial, whole, random);
    if (failure !== undefined) return `seed ${seed + n}: ${failure}`;
  }
  return undefined;
}
