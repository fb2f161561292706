// Faults to be put into the source of the attention kernels: a check that the properties of the kernel must fail with each.

import { expect } from "vitest";
import type { KernelTable } from "../../src/wasm/abi.ts";
import { LinearMemory } from "../../src/wasm/memory.ts";
import type { Instance } from "../../src/wasm/modules.ts";
import { checkAttention, type PageKind } from "./attention-properties.ts";
import { compile } from "./compile.ts";
import { checkStatistics } from "./statistics-trial.ts";

interface Mutant {
  readonly fault: string;
  readonly file: string;
  readonly from: string;
  readonly to: string;
  /** The build in which the fault shows; default simd. */
  readonly relaxed?: boolean;
  /** The pages in which it shows; default floats. */
  readonly pages?: Pages;
}

/** The kernel of attention for these pages, or that which measures it. */
type Pages = PageKind | "statistics";

export const MUTANTS: readonly Mutant[] = [
  {
    fault: "the exponential's clamp swallows NaN",
    file: "math/exp.ts",
    from: "f32x4.pmax(t, lowest)",
    to: "f32x4.pmax(lowest, t)",
  },
  {
    fault: "the power of two is added to the exponent's bits",
    file: "math/exp.ts",
    from: "return f32x4.mul(r, i32x4.shl(z, 23));\n}\n\n// e^r",
    to: "return i32x4.add(r, i32x4.shl(i32x4.sub(z, i32x4.splat(127)), 23));\n}\n\n// e^r",
  },
  {
    fault: "a masked score is a large negative number",
    file: "attention/online_softmax.ts",
    from: "const excluded = f32x4.splat(f32.NEGATIVE_INFINITY);",
    to: "const excluded = f32x4.splat(-3e38);",
  },
  {
    fault: "-Infinity less -Infinity is not guarded",
    file: "attention/state.ts",
    from: "x == f32.NEGATIVE_INFINITY ? <f32>0 : x",
    to: "x",
  },
  {
    fault: "a row without weights is divided by 0",
    file: "attention/begin_end.ts",
    from: "sum == 0 ? <f32>0 : <f32>1 / sum",
    to: "<f32>1 / sum",
  },
  {
    fault: "values of masked keys are not checked",
    file: "attention/pv_page.ts",
    from: "const check: i32 = shared ? 0 : 1;",
    to: "const check: i32 = 0;",
  },
  {
    fault: "the slow path skips keys by a weight of 0",
    file: "attention/pv_masked.ts",
    from: "if (!is_excluded(keep, bias, key + j))",
    to: "if (load<f32>(allowed - 3072 + STRIP_BYTES * i + (<usize>j << 2)) != 0)",
  },
  {
    fault: "the slow path rescales outputs twice",
    file: "attention/pv_masked.ts",
    from: "pv_panel(rows, o, row, RESCALED,",
    to: "pv_panel(rows, o, row, states,",
  },
  {
    fault: "values are read up to a whole panel of keys",
    file: "attention/pv_page.ts",
    from: "const n = last - first;",
    to: "const n = ((last + PANEL - 1) & -PANEL) - first;",
  },
  {
    fault: "-0 leaves",
    file: "attention/begin_end.ts",
    from: "f32x4.add(f32x4.mul(o, inverse), f32x4.splat(0))",
    to: "f32x4.mul(o, inverse)",
  },
  {
    fault: "NaNs leave as they are",
    file: "attention/begin_end.ts",
    from: "v128.bitselect(x, v128.load32_splat(NAN), f32x4.eq(x, x))",
    to: "x",
  },
  {
    fault: "the causal diagonal starts a key late",
    file: "attention/pv_page.ts",
    from: "const whole = load<i32>(states, STATE_HIGH) - key - first;",
    to: "const whole = load<i32>(states, STATE_HIGH) - key - first + 1;",
  },
  {
    fault: "sums take their keys in another order",
    file: "attention/online_softmax.ts",
    from: "odd = f32x4.add(odd, w1);",
    to: "sums = f32x4.add(sums, w1);",
  },
  {
    fault: "a bias of -Infinity is only added",
    file: "attention/online_softmax.ts",
    from: "v128.bitselect(none, sum, f32x4.eq(x, none))",
    to: "sum",
  },
  {
    fault: "the bias is fused",
    file: "attention/online_softmax.ts",
    from: "f32x4.add(v128.load(at), product)",
    to: "f32x4.relaxed_madd(x, factor, v128.load(at))",
    relaxed: true,
  },
  {
    fault: "the lowest bias overflows",
    file: "attention/online_softmax.ts",
    from: "f32x4.pmax(f32x4.mul(x, factor), lowest)",
    to: "f32x4.mul(x, factor)",
  },
  {
    fault: "the slope is fused",
    file: "attention/online_softmax.ts",
    from: "f32x4.add(v128.load(at), f32x4.mul(length, factor))",
    to: "f32x4.relaxed_madd(length, factor, v128.load(at))",
    relaxed: true,
  },
  {
    fault: "scales of excluded values reach their rows",
    file: "attention/quantize.ts",
    from: "if (is_non_finite(top) && (keep != 0 || bias != 0)) {",
    to: "if (false) {",
    pages: "coded",
  },
  {
    fault: "scales beyond a row's keys have weight",
    file: "attention/quantize.ts",
    from: "if (start < from || to < end) {",
    to: "if (false) {",
    pages: "coded",
  },
  {
    fault: "a weight of 0 forgives the scale of its value",
    file: "attention/quantize.ts",
    from: "const p0 = f32x4.mul(v128.load(at), v128.load(k));",
    to: "const p0 = v128.andnot(f32x4.mul(v128.load(at), v128.load(k)), f32x4.eq(v128.load(at), f32x4.splat(0)));",
    pages: "coded",
  },
  {
    fault: "sums of integers are fused into the output",
    file: "attention/int_pairs.ts",
    from: "f32x4.add(f32x4.mul(v128.load(o), alpha), f32x4.mul(f32x4.convert_i32x4_s(low), x))",
    to: "f32x4.relaxed_madd(f32x4.convert_i32x4_s(low), x, f32x4.mul(v128.load(o), alpha))",
    relaxed: true,
    pages: "coded",
  },
  {
    fault: "the scales of a score are taken one after the other",
    file: "attention/int_pairs.ts",
    from: "f32x4.mul(f32x4.convert_i32x4_s(low), f32x4.mul(x, v128.load(k)))",
    to: "f32x4.mul(f32x4.mul(f32x4.convert_i32x4_s(low), x), v128.load(k))",
    pages: "coded",
  },
  {
    fault: "integers are rounded towards zero",
    file: "math/rounding.ts",
    from: "i32x4.sub(f32x4.add(f32x4.mul(v, factor), magic), magic)",
    to: "i32x4.trunc_sat_f32x4_s(f32x4.mul(v, factor))",
    pages: "coded",
  },
  {
    fault: "halves that are not normal are widened as if they were",
    file: "math/half.ts",
    from: "if (v128.any_true(i16x8.sub_sat_u(i16x8.max_u(a, b), most))) {",
    to: "if (false) {",
    pages: "coded",
  },
  {
    fault: "an odd first token is taken for an even one",
    file: "latent/pv.ts",
    from: "first & 1 ? pair - QUARTER_BYTES : QUARTER_BYTES",
    to: "QUARTER_BYTES",
    pages: "latents",
  },
  {
    fault: "the lanes of a score are added in another order",
    file: "latent/qk.ts",
    from: "v128.shuffle<f32>(a, b, 0, 1, 4, 5), v128.shuffle<f32>(a, b, 2, 3, 6, 7)",
    to: "v128.shuffle<f32>(a, b, 0, 2, 4, 6), v128.shuffle<f32>(a, b, 1, 3, 5, 7)",
    pages: "latents",
  },
  {
    fault: "latents of masked tokens are not checked",
    file: "latent/pv.ts",
    from: "const check: i32 = shared ? 0 : 1;",
    to: "const check: i32 = 0;",
    pages: "latents",
  },
  {
    fault: "the copy of 8 components takes 4 of the other token",
    file: "latent/pv.ts",
    from: "v128.store(to, v128.load(from, PAIR_STEP_BYTES), 16);",
    to: "v128.store(to, v128.load(from, PAIR_STEP_BYTES / 2), 16);",
    pages: "latents",
  },
  {
    fault: "rotated keys have the scales of latents",
    file: "latent/attention.ts",
    from: "rotated_scales(latents, dim) + at",
    to: "scales + at",
    pages: "latents",
  },
  {
    fault: "sums of what keys receive end with a tile",
    file: "attention/statistics.ts",
    from: "  add_rows(parts, list, end);\n}",
    to: "  add_rows(parts, list, end);\n  add_parts(to, parts);\n}",
    pages: "statistics",
  },
  {
    fault: "weights beyond a strip's keys are what the page before left",
    file: "attention/statistics_page.ts",
    from: "for (let at = end; at < STRIP_BYTES; at += 16) v128.store(to + at, f32x4.splat(0));",
    to: "",
    pages: "statistics",
  },
  {
    fault: "the steps of a weight are counted to the end of its strip's keys",
    file: "attention/statistics_page.ts",
    from: "for (let j = last; j < PAGE; j += 8) steps = f32x4.add(steps, both);",
    to: "",
    pages: "statistics",
  },
];

const ENTRY = `
  export { attention_f32, attention_pages } from "./attention/attention";
  export { HEAP_BASE } from "./module";`;
const LATENT_ENTRY = `
  export { attention_latents } from "./latent/attention";
  export { HEAP_BASE } from "./module";`;
const STATISTICS_ENTRY = `
  export { attention_statistics } from "./attention/attention_statistics";
  export { HEAP_BASE } from "./module";`;

/** The kernels with a fault in their source, or without. */
async function buildMutant(relaxed: boolean, pages: Pages, mutant?: Mutant): Promise<Instance> {
  let found = 0;
  const module = await compile("assembly/mutant.ts", relaxed, (path, text) => {
    if (path === "assembly/mutant.ts")
      return pages === "statistics" ? STATISTICS_ENTRY : pages === "latents" ? LATENT_ENTRY : ENTRY;
    if (text === null) return null;
    if (!mutant || path !== `assembly/${mutant.file}`) return text;
    const parts = text.split(mutant.from);
    found = parts.length - 1;
    return parts.join(mutant.to);
  });
  expect(found, "places of the fault").toBe(mutant ? 1 : 0);
  const memory = new WebAssembly.Memory({ initial: 1 });
  const { exports } = new WebAssembly.Instance(module, { env: { memory } });
  const { HEAP_BASE } = exports as { HEAP_BASE?: WebAssembly.Global };
  return {
    kernels: exports as unknown as KernelTable,
    memory: new LinearMemory(memory, Number(HEAP_BASE?.value)),
    relaxed,
  };
}

/** Throws unless the properties find a fault in one of some random calls, or without one hold in all of them. */
export async function expectFound(relaxed: boolean, pages: Pages, mutant?: Mutant, trials = 150): Promise<void> {
  const instance = await buildMutant(relaxed, pages, mutant);
  const failure =
    pages === "statistics" ? checkStatistics(instance, 1, trials) : checkAttention(instance, 1, trials, relaxed, pages);
  if (mutant) expect(failure).toBeTypeOf("string");
  else expect(failure).toBeUndefined();
}
