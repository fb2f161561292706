// The public function `linear` beside the kernel that it runs, on the same weights, in one process and by turns.

import { createLinear, linear } from "../../src/entries/core.ts";
import type { Linear } from "../../src/layers/api/linear.ts";
import { FORMATS, integerRowBytes, linearShape, quantizing } from "../../src/layers/linear/formats.ts";

import { LinearShape } from "../../src/wasm/abi.ts";
import { Layout, pointer } from "../../src/wasm/memory.ts";
import { type Build, type BuildName, loadBuild } from "../lib/builds.ts";
import { compare, type Load } from "../lib/measure.ts";
import { type Column, part } from "../lib/part.ts";
import { randomFloats } from "../lib/random.ts";

interface LinearRow {
  readonly shape: string;
  readonly format: string;
  readonly build: BuildName;
  /** Milliseconds of the kernel, with the rounding of activations to integers if weights are integers. */
  readonly ms: number;
  /** The speed of `linear` over that of the kernel, with `out`: median, and the range of the middle 80 %. */
  readonly out: number;
  readonly low: number;
  readonly high: number;
  /** The same without `out`: the result is a new array. */
  readonly fresh: number;
}

const columns: readonly Column<LinearRow>[] = [
  ["shape", 14, (row) => row.shape],
  ["format", 6, (row) => row.format],
  ["build", 7, (row) => row.build],
  ["kernel ms", 9, ({ ms }) => ms.toPrecision(3)],
  ["with out", 8, (row) => row.out.toFixed(3)],
  ["spread", 11, (row) => `${row.low.toFixed(3)}-${row.high.toFixed(3)}`],
  ["new array", 9, (row) => row.fresh.toFixed(3)],
];

/** One token of Llama 2 7B, and a prompt of GPT-2 small. */
const shapes = [
  { m: 1, n: 4096, k: 4096 },
  { m: 128, n: 768, k: 768 },
] as const;

/** The kernel on the weights of a layer, and its output after a run. n is a multiple of 8. */
function kernelOf({ kernels, memory }: Build, layer: Linear, x: Float32Array): Load & { out: () => Float32Array } {
  const { packed, outputs: n, inputs: k, mode } = layer;
  const { format, panels, w, sums, bias } = packed;
  const m = x.length / k;
  const layout = new Layout();
  const places = {
    x: layout.floats(m * k),
    integers: layout.take(m * integerRowBytes(k)),
    out: layout.floats(m * n),
    shape: layout.take(LinearShape.bytes),
  };
  const block = memory.allocate("bench", layout.bytes);
  const at = (place: keyof typeof places) => block + places[place];
  const [from, integers, to] = [pointer.f32(at("x")), pointer.u8(at("integers")), pointer.f32(at("out"))];
  const shape = pointer.linearShape(at("shape"));
  memory.f32(from, x.length).set(x);
  LinearShape.store(memory.view(), shape, linearShape(FORMATS[format], { panels, k, outStride: n, xStride: k, mode }));
  const run = () => {
    if (!FORMATS[format].integers) return kernels.linear_f32(to, from, pointer.f32(w), bias, shape, 0, m);
    const shared = quantizing(FORMATS[format], k, mode);
    kernels.quantize_rows(integers, from, k, k, shared.block, shared.mode, 0, m);
    kernels.linear_q8(to, integers, pointer.u8(w), pointer.u8(sums), bias, shape, 0, m);
  };
  return { work: 1, run, out: () => memory.f32(to, m * n) };
}

export const linears = part(
  "linear",
  columns,
  async function* rows({ effort, builds, wants }): AsyncGenerator<LinearRow> {
    for (const { m, n, k } of shapes)
      for (const format of ["f32", "q8"] as const)
        for (const name of builds) {
          const shape = `${m}x${n}x${k}`;
          if (!wants(`${shape} ${format} ${name}`)) continue;
          const build = await loadBuild(name);
          const weight = { data: randomFloats(n * k, 1), shape: [n, k] };
          const layer = createLinear(build.host, { weight, bias: randomFloats(n, 2) }, { weights: format });
          const x = randomFloats(m * k, 3);
          const out = new Float32Array(m * n);
          const kernel = kernelOf(build, layer, x);
          kernel.run();
          linear(layer, x, { out });
          if (kernel.out().some((value, i) => !Object.is(value, out[i])))
            throw new Error(`bench: linear has other bits than its kernel at ${shape} ${format}`);
          const loads = [
            kernel,
            { work: 1, run: () => linear(layer, x, { out }) },
            { work: 1, run: () => linear(layer, x) },
          ];
          const [alone, filled, fresh] = await compare(loads, effort);
          const { ratio, low, high } = filled!;
          yield { shape, format, build: name, ms: 1000 / alone!.rate, out: ratio, low, high, fresh: fresh!.ratio };
          build.host.release();
        }
  },
);
