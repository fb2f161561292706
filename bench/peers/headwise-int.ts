// headwise's kernels for integer weights, called as the projections of a layer call them.

import { LINEAR_SCRATCH } from "../../assembly/layout.ts";
import type { Kernels } from "../../src/entries/index.ts";
import { FORMATS, integerRowBytes, linearShape, panelsOf, quantizing } from "../../src/layers/linear/formats.ts";

import { type F32Ptr, LinearShape, NULL, type Pointer, type U8Ptr } from "../../src/wasm/abi.ts";
import { pointer } from "../../src/wasm/memory.ts";
import { q4Blocks, toFloats } from "./int-matrix.ts";
import type { Prepared } from "./peer.ts";
import type { IntegerProduct } from "./works.ts";

type Three = [number, number, number];

/** Runs a kernel: out [m, n] from the rows that quantize_rows made. */
type Linear = (out: F32Ptr, rows: U8Ptr) => void;

function placeShape(memory: Kernels["memory"], shape: LinearShape): Pointer<LinearShape> {
  const at = pointer.linearShape(memory.allocate("bench", LinearShape.bytes));
  LinearShape.store(memory.view(), at, shape);
  return at;
}

/** Weights of 8 bits with a scale for each output. */
function packQ8({ memory, table }: Kernels, { m, n, k, w }: IntegerProduct, mode: number): Linear {
  const panels = panelsOf(n);
  const floats = memory.allocate("bench", 4 * n * k);
  const at = pointer.u8(memory.allocate("bench", panels * FORMATS["q8-row"].panelBytes(k)));
  const sums = pointer.u8(memory.allocate("bench", panels * FORMATS["q8-row"].sumBytes(k)));
  memory.f32(floats, n * k).set(toFloats(w));
  table.pack_q8(at, sums, pointer.f32(floats), n, k, k, 0, panels);
  memory.free(floats);
  const shape = placeShape(memory, linearShape(FORMATS["q8-row"], { panels, k, outStride: n, mode }));
  return (out, rows) => table.linear_q8(out, rows, at, sums, NULL, shape, 0, m);
}

/** Weights of 4 bits with a scale for each block of 32 inputs. */
function packQ4({ memory, table }: Kernels, { m, n, k, w }: IntegerProduct, mode: number): Linear {
  const panels = panelsOf(n);
  const blocks = q4Blocks(w);
  const from = memory.allocate("bench", blocks.length);
  const at = pointer.u8(memory.allocate("bench", panels * FORMATS.q4.panelBytes(k)));
  const scratch = pointer.u8(memory.allocate("bench", LINEAR_SCRATCH));
  memory.u8(from, blocks.length).set(blocks);
  table.repack_q4(at, pointer.u8(from), n, k, 0, panels);
  memory.free(from);
  const shape = placeShape(memory, linearShape(FORMATS.q4, { panels, k, outStride: n, mode }));
  return (out, rows) => table.linear_q4(out, rows, at, scratch, NULL, shape, 0, m);
}

/** A product whose sizes are multiples of 32, on the dot-product path that the probe has chosen. */
export function prepareIntegerProduct(kernels: Kernels, work: IntegerProduct): Prepared {
  const { m, n, k, x, w, activations } = work;
  const { memory, table, dotModes } = kernels;
  const mode = dotModes[activations];
  const sizes = [integerRowBytes(k) * m, 4 * m * k, 4 * m * n];
  const [rowsAt, xAt, outAt] = sizes.map((bytes) => memory.allocate("bench", bytes)) as Three;
  const [out, rows] = [pointer.f32(outAt), pointer.u8(rowsAt)];
  const shared = quantizing(FORMATS[w.bits === 8 ? "q8-row" : "q4"], k, mode);
  const linear = (w.bits === 8 ? packQ8 : packQ4)(kernels, work, mode);
  let y = new Float32Array();
  return {
    run() {
      memory.f32(xAt, m * k).set(x);
      table.quantize_rows(rows, pointer.f32(xAt), k, k, shared.block, shared.mode, 0, m);
      linear(out, rows);
      y = memory.f32(outAt, m * n).slice();
    },
    output: () => y,
    release: () => kernels.release(),
  };
}
