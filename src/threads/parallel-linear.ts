// The projections of an engine with threads: see cuts.ts.

import { BLOCK, PANEL } from "../../assembly/layout.ts";
import { panelBytes, scratchBytes } from "../linear/formats.ts";
import { type KernelTable, NULL } from "../wasm/abi.ts";
import { aligned } from "../wasm/memory.ts";
import { fewest, type Load, rangesOf, type Span, STREAM_ROWS, share } from "./partition.ts";
import type { Team } from "./pool.ts";

/** Panels of a tile of many rows: a weight block of the kernel, or less where so few rows leave little to share. */
const BLOCK_PANELS = 16;
const SHORT_PANELS = 4;
/** Up to so many rows weights are read once, and tiles are panels alone, at whole register tiles of 2, 3 and 4. */
const FEW_ROWS = 12;
const FEW_PANELS = 12;

/** What sharing depends on: a multiple of the kernel's strips, and what takes how long where float32 takes 1. */
interface Costs {
  readonly stripRows: number;
  readonly product: number;
  readonly stream: number;
}

const COSTS: Readonly<Record<"f32" | "f16" | "q8" | "q4", Costs>> = {
  f32: { stripRows: 30, product: 1, stream: 1 },
  f16: { stripRows: 30, product: 1, stream: 0.5 },
  q8: { stripRows: 32, product: 0.5, stream: 0.3 },
  q4: { stripRows: 32, product: 0.5, stream: 0.2 },
};

/** What rounding a float to an integer costs, in the operations that take as long. */
const QUANTIZED = 16;

type Linears = "linear_f32" | "linear_f16" | "linear_q8" | "linear_q4";

/** The tiles of a projection of many rows: some whole weight blocks, or some of the rows of one. */
function blocksOf(panels: number, rows: number, load: Load, stripRows: number): { panels: Span; rows: Span }[] {
  const strips = Math.ceil(rows / stripRows);
  const width = strips > 1 ? BLOCK_PANELS : SHORT_PANELS;
  const cells = strips * Math.ceil(panels / width);
  const least = fewest(cells, load);
  const tiles: { panels: Span; rows: Span }[] = [];
  for (let cell = 0; cell < cells; ) {
    const block = Math.floor(cell / strips);
    const strip = cell % strips;
    const size = share(cells - cell, least, load.threads);
    const blocks = strip === 0 ? Math.floor(size / strips) : 0;
    const stripEnd = blocks > 0 ? strips : Math.min(strips, strip + size);
    tiles.push({
      panels: [block * width, Math.min(panels, (block + Math.max(1, blocks)) * width)],
      rows: [strip * stripRows, Math.min(rows, stripEnd * stripRows)],
    });
    cell += blocks > 0 ? blocks * strips : stripEnd - strip;
  }
  return tiles;
}

/** The projections of `direct` on all threads of the team where `pays` says so. */
export function shareLinears(
  direct: KernelTable,
  team: Team,
  pays: (work: number) => boolean,
  loadOf: (work: number) => Load,
): Pick<KernelTable, Linears | "quantize_rows"> {
  /**
   * Runs a projection on all threads. `argsOf` gives the arguments before `begin` for `count` panels from `panel` on, with
   * scratch of `own` bytes a thread. Returns whether it did.
   */
  const run = (
    name: Linears,
    costs: Costs,
    own: number,
    [panels, k, begin, end]: readonly [panels: number, k: number, begin: number, end: number],
    argsOf: (panel: number, count: number, scratch: number) => readonly number[],
  ): boolean => {
    const rows = end - begin;
    const work = 2 * PANEL * panels * k * Math.max(costs.product * rows, costs.stream * STREAM_ROWS);
    if (!pays(work)) return false;
    const scratch = own === 0 ? 0 : team.own(own);
    if (scratch === undefined) return false;
    const tiles =
      rows > FEW_ROWS
        ? blocksOf(panels, rows, loadOf(work), costs.stripRows)
        : rangesOf(0, panels, FEW_PANELS, 0, loadOf(work)).map((range) => ({
            panels: range,
            rows: [0, rows] as const,
          }));
    team.run(
      name,
      own,
      tiles.map(({ panels: [panel, next], rows: [from, to] }) => [
        ...argsOf(panel, next - panel, scratch),
        begin + from,
        begin + to,
      ]),
    );
    return true;
  };
  const column = 4 * PANEL;
  const biasAt = (bias: number, panel: number) => (bias === NULL ? NULL : bias + column * panel);
  return {
    linear_f32(out, x, w, bias, panels, k, outStride, xStride, begin, end) {
      const bytes = panelBytes("f32", k);
      const argsOf = (p: number, n: number) => {
        return [out + column * p, x, w + bytes * p, biasAt(bias, p), n, k, outStride, xStride];
      };
      if (!run("linear_f32", COSTS.f32, 0, [panels, k, begin, end], argsOf))
        direct.linear_f32(out, x, w, bias, panels, k, outStride, xStride, begin, end);
    },
    linear_f16(out, x, w, scratch, bias, panels, k, bf16, outStride, xStride, begin, end) {
      const bytes = panelBytes("f16", k);
      const argsOf = (p: number, n: number, own: number) => {
        return [out + column * p, x, w + bytes * p, own, biasAt(bias, p), n, k, bf16, outStride, xStride];
      };
      if (!run("linear_f16", COSTS.f16, aligned(scratchBytes("f16")), [panels, k, begin, end], argsOf))
        direct.linear_f16(out, x, w, scratch, bias, panels, k, bf16, outStride, xStride, begin, end);
    },
    linear_q8(out, x, w, scratch, bias, panels, k, block, mode, outStride, begin, end) {
      const bytes = panelBytes(block === BLOCK ? "q8" : "q8-row", k);
      const argsOf = (p: number, n: number, own: number) => {
        return [out + column * p, x, w + bytes * p, own, biasAt(bias, p), n, k, block, mode, outStride];
      };
      if (!run("linear_q8", COSTS.q8, aligned(scratchBytes("q8")), [panels, k, begin, end], argsOf))
        direct.linear_q8(out, x, w, scratch, bias, panels, k, block, mode, outStride, begin, end);
    },
    linear_q4(out, x, w, scratch, bias, panels, k, mode, outStride, begin, end) {
      const bytes = panelBytes("q4", k);
      const argsOf = (p: number, n: number, own: number) => {
        return [out + column * p, x, w + bytes * p, own, biasAt(bias, p), n, k, mode, outStride];
      };
      if (!run("linear_q4", COSTS.q4, aligned(scratchBytes("q4")), [panels, k, begin, end], argsOf))
        direct.linear_q4(out, x, w, scratch, bias, panels, k, mode, outStride, begin, end);
    },
    quantize_rows(out, x, k, xStride, mode, begin, end) {
      const work = QUANTIZED * (end - begin) * k;
      if (!pays(work)) return direct.quantize_rows(out, x, k, xStride, mode, begin, end);
      const tiles = rangesOf(begin, end, 1, 0, loadOf(work));
      team.run(
        "quantize_rows",
        0,
        tiles.map(([from, to]) => [out, x, k, xStride, mode, from, to]),
      );
    },
  };
}
