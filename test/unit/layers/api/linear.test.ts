// The texts of errors of createLinear, linear, linearAsync and planLinear, call by call, and y of a layer that is checked by
// hand.

import { expect, test } from "vitest";
import * as core from "../../../../src/entries/core.ts";
import {
  type Attention,
  HeadwiseError,
  type HeadwiseErrorCode,
  type Linear,
  loadKernels,
  type Tensor,
} from "../../../../src/entries/core.ts";
import { kernelsOf, shippedBuilds } from "../../../support/layers.ts";
import { wasmOf } from "../../../support/modules.ts";

type Loose<T = unknown> = (...args: readonly unknown[]) => T;
type Row = readonly [call: () => unknown, kind: typeof TypeError | typeof RangeError | HeadwiseErrorCode, text: string];

// Callers from JavaScript: any argument may be anything.
const { createAttention, createLinear, linear, linearAsync, planLinear } = core as unknown as {
  readonly createAttention: Loose<Attention>;
  readonly createLinear: Loose<Linear>;
  readonly linear: Loose<Float32Array>;
  readonly linearAsync: Loose<Promise<Float32Array>>;
  readonly planLinear: Loose;
};

const f = (length: number) => new Float32Array(length);
const t = (...shape: number[]): Tensor => ({ data: f(shape.reduce((a, b) => a * b, 1)), shape });
const stored = (dtype: string, shape: number[], bytes: number) => ({ dtype, shape, bytes: new Uint8Array(bytes) });
const FORMATS = '"f32" or "f16" or "bf16" or "q8" or "q8-row" or "q4"';

test.each(shippedBuilds)("y is x·wᵀ + b, in the %s build", async (build) => {
  using kernels = await kernelsOf(build);
  const weight = { data: Float32Array.of(1, 2, 3, 4, 5, 6), shape: [2, 3] };
  const bias = Float32Array.of(0.5, -1);
  const x = Float32Array.of(1, 0, 0, 0, 1, 0, 1, 1, 1);
  const want = [1.5, 3, 2.5, 4, 6.5, 14];
  for (const weights of ["f32", "f16", "bf16"]) {
    using layer = createLinear(kernels, { weight, bias }, { weights });
    expect([...linear(layer, x)]).toEqual(want);
  }
  using turned = createLinear(kernels, { weight: { data: weight.data, shape: [3, 2] }, layout: "in-out" });
  expect([turned.outputs, turned.inputs]).toEqual([2, 3]);
  expect([...linear(turned, x)]).toEqual([1, 2, 3, 4, 9, 12]);
  using one = createLinear(kernels, { weight: { data: Float32Array.of(3), shape: [1, 1] } });
  expect([...linear(one, Float32Array.of(2, -1))]).toEqual([6, -3]);
});

test("every wrong call throws its exact text and changes nothing", async () => {
  using kernels = await kernelsOf("simd");
  using floatsOnly = await loadKernels({ module: wasmOf("simd") });
  const layer = createLinear(kernels, { weight: t(2, 3) });
  const square = createLinear(kernels, { weight: t(2, 2) });
  const eye = t(2, 2);
  const attention = createAttention(kernels, { dModel: 2, numHeads: 1 }, { wq: eye, wk: eye, wv: eye, wo: eye });
  const gone = createLinear(kernels, { weight: t(2, 3) });
  gone.release();
  const dead = await kernelsOf("simd");
  const deadLayer = createLinear(dead, { weight: t(2, 3) });
  dead.release();
  const make = (fields: object, options?: unknown) => createLinear(kernels, { weight: t(2, 3), ...fields }, options);
  const y = f(20);

  const tables: Readonly<Record<string, readonly Row[]>> = {
    createLinear: [
      [
        () => createLinear(undefined, { weight: t(2, 3) }),
        TypeError,
        "kernels expected what loadKernels gives, got undefined",
      ],
      [
        () => createLinear(layer, { weight: t(2, 3) }),
        TypeError,
        "kernels expected what loadKernels gives, got Linear",
      ],
      [() => createLinear(dead, { weight: t(2, 3) }), "RELEASED", "kernels was released"],
      [() => createLinear(kernels), TypeError, "weights expected an object, got undefined"],
      [() => createLinear(kernels, t(2, 3)), TypeError, 'weights expected only weight, bias, layout, got "data"'],
      [() => createLinear(kernels, f(6)), TypeError, "weights expected an object, got Float32Array"],
      [() => createLinear(kernels, {}), TypeError, "weight expected { data, shape }, got undefined"],
      [() => make({ weight: f(6) }), TypeError, "weight expected { data, shape }, got Float32Array"],
      [() => make({ weight: t(6) }), RangeError, "weight expected rank 2, got shape [6]"],
      [() => make({ weight: t(1, 2, 3) }), RangeError, "weight expected rank 2, got shape [1, 2, 3]"],
      [() => make({ weight: t(0, 3) }), RangeError, "weight expected 1 or more outputs and inputs, got shape [0, 3]"],
      [
        () => make({ weight: t(3, 0), layout: "in-out" }),
        RangeError,
        "weight expected 1 or more outputs and inputs, got shape [3, 0]",
      ],
      [
        () => make({ weight: { data: f(5), shape: [2, 3] } }),
        RangeError,
        "weight.data expected 6 floats for shape [2, 3], got 5",
      ],
      [
        () => make({ weight: { data: [1, 2], shape: [1, 2] } }),
        TypeError,
        "weight.data expected Float32Array, got Array",
      ],
      [
        () => make({ weight: stored("I8", [2, 3], 6) }),
        RangeError,
        "weight expected dtype F32, F64, F16, BF16, Q8_0 or Q4_0, got I8",
      ],
      [() => make({ weight: stored("F16", [6], 12) }), RangeError, "weight expected rank 2, got shape [6]"],
      [
        () => make({ weight: stored("F16", [2, 3], 6) }),
        RangeError,
        "weight.bytes expected 12 bytes for F16 [2, 3], got 6",
      ],
      [
        () => make({ weight: stored("Q8_0", [2, 33], 70) }),
        RangeError,
        "weight expected rows of whole blocks of 32, got shape [2, 33]",
      ],
      [
        () => make({ weight: stored("Q4_0", [32, 2], 36), layout: "in-out" }),
        RangeError,
        'weight expected layout "out-in" for Q4_0, got "in-out"',
      ],
      [() => make({ layout: "nk" }), RangeError, 'weights.layout expected "out-in" or "in-out", got "nk"'],
      [() => make({ layout: 1 }), TypeError, 'weights.layout expected "out-in" or "in-out", got 1'],
      [() => make({ bias: f(3) }), RangeError, "bias expected 2 floats, got 3"],
      [() => make({ bias: f(2), layout: "in-out" }), RangeError, "bias expected 3 floats, got 2"],
      [() => make({ bias: [0, 0] }), TypeError, "bias expected Float32Array, got Array"],
      [() => make({ bias: null }), TypeError, "bias expected Float32Array, got null"],
      [() => make({ b: f(2) }), TypeError, 'weights expected only weight, bias, layout, got "b"'],
      [() => make({}, null), TypeError, "options expected an object, got null"],
      [() => make({}, { format: "q8" }), TypeError, 'options expected only weights, activations, got "format"'],
      [() => make({}, { weights: "q5" }), RangeError, `options.weights expected ${FORMATS}, got "q5"`],
      [() => make({}, { weights: { q: "q8" } }), TypeError, `options.weights expected ${FORMATS}, got Object`],
      [
        () => make({}, { activations: "slow" }),
        RangeError,
        'options.activations expected "exact" or "fast", got "slow"',
      ],
      ...(["f16", "bf16", "q8", "q8-row", "q4"] as const).map(
        (weights): Row => [
          () => createLinear(floatsOnly, { weight: t(2, 3) }, { weights }),
          "NO_QUANTIZED",
          `format of weight expected "f32", the only format of these kernels, got "${weights}"; loadKernels({ quantized }), from headwise/quantized, loads the others`,
        ],
      ),
      [
        () => createLinear(floatsOnly, { weight: stored("Q8_0", [2, 32], 68) }),
        "NO_QUANTIZED",
        'format of weight expected "f32", the only format of these kernels, got "q8"; loadKernels({ quantized }), from headwise/quantized, loads the others',
      ],
    ],
    linear: [
      [() => linear(undefined, f(3)), TypeError, "layer expected what createLinear gives, got undefined"],
      [() => linear({}, f(3)), TypeError, "layer expected what createLinear gives, got Object"],
      [() => linear(attention, f(2)), TypeError, "layer expected what createLinear gives, got Attention"],
      [() => linear(gone, f(3)), "RELEASED", "layer was released"],
      [() => linear(deadLayer, f(3)), "RELEASED", "layer.kernels was released"],
      [() => linear(layer), TypeError, "x expected Float32Array, got undefined"],
      [() => linear(layer, [1, 2, 3]), TypeError, "x expected Float32Array, got Array"],
      [() => linear(layer, new Float64Array(3)), TypeError, "x expected Float32Array, got Float64Array"],
      [() => linear(layer, f(4)), RangeError, "x expected a multiple of inputs (3) floats, got 4"],
      [() => linear(layer, f(2)), RangeError, "x expected a multiple of inputs (3) floats, got 2"],
      [() => linear(layer, f(3), null), TypeError, "options expected an object, got null"],
      [() => linear(layer, f(3), f(2)), TypeError, "options expected an object, got Float32Array"],
      [() => linear(layer, f(3), { rows: 1 }), TypeError, 'options expected only out, got "rows"'],
      [() => linear(layer, f(3), { out: [] }), TypeError, "out expected Float32Array, got Array"],
      [() => linear(layer, f(3), { out: f(3) }), RangeError, "out expected 2 floats, got 3"],
      [() => linear(layer, f(6), { out: f(2) }), RangeError, "out expected 4 floats, got 2"],
      [
        () => linear(layer, y.subarray(0, 6), { out: y.subarray(0, 4) }),
        RangeError,
        "out expected memory apart from x, got one that overlaps it",
      ],
      [
        () => linear(layer, y.subarray(3, 9), { out: y.subarray(0, 4) }),
        RangeError,
        "out expected memory apart from x, got one that overlaps it",
      ],
      [
        () => linear(square, y.subarray(0, 6), { out: y.subarray(2, 8) }),
        RangeError,
        "out expected x itself or memory apart from x, got one that overlaps it",
      ],
    ],
    planLinear: [
      [() => planLinear(), TypeError, "sizes expected an object, got undefined"],
      [() => planLinear([2, 3]), TypeError, "sizes expected an object, got Array"],
      [() => planLinear({ n: 2 }), TypeError, 'sizes expected only outputs, inputs, got "n"'],
      [() => planLinear({ outputs: 2 }), TypeError, "inputs expected an integer >= 1, got undefined"],
      [() => planLinear({ outputs: 0, inputs: 3 }), RangeError, "outputs expected an integer >= 1, got 0"],
      [
        () => planLinear({ outputs: 2 ** 31, inputs: 3 }),
        RangeError,
        "outputs expected an integer from 1 to 2147483647, got 2147483648",
      ],
      [() => planLinear({ outputs: 2, inputs: 3 }, { rows: 0 }), RangeError, "rows expected an integer >= 1, got 0"],
      [
        () => planLinear({ outputs: 2, inputs: 3 }, { weights: "q5" }),
        RangeError,
        `weights expected ${FORMATS}, got "q5"`,
      ],
      [
        () => planLinear({ outputs: 2, inputs: 3 }, { batch: 1 }),
        TypeError,
        'options expected only rows, weights, got "batch"',
      ],
    ],
  };
  const used = () => [kernels, floatsOnly].map(({ usedBytes, memoryBytes }) => [usedBytes, memoryBytes]);
  const before = used();
  const thrownBy = (run: () => unknown): Error => {
    try {
      run();
    } catch (error) {
      return error as Error;
    }
    throw new Error(`accepted: ${run}`);
  };
  const kindOf = (error: Error) => (error instanceof HeadwiseError ? error.code : error.constructor);
  for (const [where, rows] of Object.entries(tables))
    for (const [run, kind, text] of rows) {
      const error = thrownBy(run);
      expect([error.message, kindOf(error)]).toEqual([`${where}: ${text}`, kind]);
      expect(used(), text).toEqual(before);
    }

  const rejections: readonly (readonly [args: readonly unknown[], kind: Row[1], text: string])[] = [
    [[layer, f(3), null], TypeError, "options expected an object, got null"],
    [[layer, f(3), { sliceMs: 0 }], RangeError, "sliceMs expected a finite number > 0, got 0"],
    [[layer, f(3), { signal: {} }], TypeError, "signal expected an AbortSignal, got Object"],
    [[layer, f(3), { onProgress: 1 }], TypeError, "onProgress expected a function, got 1"],
    [[layer, f(3), { slice: 1 }], TypeError, 'options expected only signal, onProgress, sliceMs, out, got "slice"'],
    [[gone, f(3)], "RELEASED", "layer was released"],
    [[layer, f(4)], RangeError, "x expected a multiple of inputs (3) floats, got 4"],
    [[layer, f(3), { out: f(1) }], RangeError, "out expected 2 floats, got 1"],
  ];
  for (const [args, kind, text] of rejections) {
    const error = await linearAsync(...args).then(
      () => new Error("accepted"),
      (reason: Error) => reason,
    );
    expect([error.message, kindOf(error)]).toEqual([`linearAsync: ${text}`, kind]);
    expect(used(), text).toEqual(before);
  }
});
