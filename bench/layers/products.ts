// The products of one token's way through a decoder, in turn: every layer has weights of its own, which come from memory.

import { createLinear, linear } from "../../src/entries/core.ts";
import type { Linear } from "../../src/layers/api/linear.ts";
import type { Build } from "../lib/builds.ts";
import type { Case, Prepared } from "../lib/case.ts";
import { casePart } from "../lib/case-part.ts";
import { randomFloats } from "../lib/random.ts";

interface Decoder {
  readonly model: string;
  readonly layers: number;
  /** Outputs and inputs of each product of a layer: q, k, v, the attention's output, gate, up, down. */
  readonly products: readonly (readonly [n: number, k: number])[];
}

const decoders: readonly Decoder[] = [
  {
    model: "SmolLM2 135M",
    layers: 30,
    products: [
      [576, 576],
      [192, 576],
      [192, 576],
      [576, 576],
      [1536, 576],
      [1536, 576],
      [576, 1536],
    ],
  },
  {
    model: "Qwen3 0.6B",
    layers: 28,
    products: [
      [2048, 1024],
      [1024, 1024],
      [1024, 1024],
      [1024, 2048],
      [3072, 1024],
      [3072, 1024],
      [1024, 3072],
    ],
  },
];

const formats = [
  { weights: "q8", activations: "exact", worst: 0.01 },
  { weights: "q8", activations: "fast", worst: 0.03 },
  { weights: "q4", activations: "exact", worst: 0.15 },
  { weights: "q4", activations: "fast", worst: 0.15 },
] as const;

type Format = (typeof formats)[number];

/** |got - want| / |want|, of whole vectors. */
function relativeError(got: Float32Array, want: ArrayLike<number>): number {
  let difference = 0;
  let size = 0;
  for (let i = 0; i < got.length; i++) {
    difference += (got[i]! - want[i]!) ** 2;
    size += want[i]! ** 2;
  }
  return Math.sqrt(difference / size);
}

function prepare({ host }: Build, { layers, products }: Decoder, { weights, activations, worst }: Format): Prepared {
  const loads = products.map(([n, k], i) => {
    const weight = { data: randomFloats(n * k, 2 * i), shape: [n, k] };
    const x = randomFloats(k, 2 * i + 1);
    return { weight, x, out: new Float32Array(n) };
  });
  const calls: { layer: Linear; x: Float32Array; out: Float32Array }[] = [];
  for (let layer = 0; layer < layers; layer++)
    for (const { weight, x, out } of loads)
      calls.push({ layer: createLinear(host, { weight }, { weights, activations }), x, out });
  return {
    run() {
      for (const { layer, x, out } of calls) linear(layer, x, { out });
    },
    reads: calls.map(({ layer }) => ({ at: layer.packed.w, length: layer.bytes })),
    check() {
      for (const { weight, x, out } of loads) {
        const want = Array.from(out, (_, row) =>
          x.reduce((sum, value, i) => sum + value * weight.data[row * x.length + i]!, 0),
        );
        const error = relativeError(out, want);
        if (!(error <= worst)) throw new Error(`bench: products of ${weights} ${activations} are wrong by ${error}`);
      }
    },
    release() {
      for (const { layer } of calls) layer.release();
    },
  };
}

const flopsOf = ({ layers, products }: Decoder) => layers * products.reduce((sum, [n, k]) => sum + 2 * n * k, 0);

export const products = casePart(
  "products",
  decoders.flatMap((decoder) =>
    formats.map(
      (format): Case => ({
        kernel: "linear, one token",
        shape: `${decoder.model} ${format.weights} ${format.activations}`,
        quick: false,
        flops: flopsOf(decoder),
        limit: "reading",
        prepare: (build) => prepare(build, decoder, format),
      }),
    ),
  ),
);
