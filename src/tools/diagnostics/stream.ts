// A module with one function, assembled here byte by byte, which measures how fast a core reads memory.

import { leb } from "../../base/util/bytes.ts";
import { moduleBytes, section, startModule } from "./peak.ts";
import type { Load } from "./timing.ts";

const WASM_PAGE = 2 ** 16;
/** The most bytes of its memory: more than any cache holds. */
const MOST_BYTES = 2 ** 28;
/** Independent sums, and the bytes that a round reads. */
const CHAINS = 4;
const ROUND_BYTES = 16 * CHAINS;

/** Parameters and locals of the function: where the unread bytes end, whether they are written first, then the sums. */
const [END, WRITE, SUM] = [0, 1, 2];

const [I32, V128] = [0x7f, 0x7b];
const get = (local: number) => [0x20, local];
const LOAD = (offset: number) => [0xfd, 0x00, 4, ...leb(offset)];
const XOR = [0xfd, 0x51];
const LANE_0 = [0xfd, 0x1b, 0];
const FILL = [0xfc, 0x0b, 0];

/** A module with `stream(end, write)`: reads the bytes before `end`, a multiple of 64, from the last to the first. */
function streamModule(pages: number): Uint8Array<ArrayBuffer> {
  const sums = Array.from({ length: CHAINS }, (_, i) => SUM + i);
  const body = [
    ...[1, CHAINS, V128],
    ...[...get(WRITE), 0x04, 0x40, 0x41, 0, 0x41, 1, ...get(END), ...FILL, 0x0b], // if WRITE: ones up to END
    ...[0x03, 0x40], // loop
    ...[...get(END), 0x41, ROUND_BYTES | 0x80, 0, 0x6b, 0x21, END], // end - ROUND_BYTES, a signed LEB128
    ...sums.flatMap((sum, i) => [...get(sum), ...get(END), ...LOAD(16 * i), ...XOR, 0x21, sum]),
    ...[...get(END), 0x0d, 0], // again unless 0
    0x0b,
    ...get(SUM),
    ...sums.slice(1).flatMap((sum) => [...get(sum), ...XOR]),
    ...[...LANE_0, 0x0b],
  ];
  return moduleBytes("stream", [2, I32, I32, 1, I32], section(5, [1, 0, ...leb(pages)]), body);
}

/** Reads `bytes` once per run; if they are more than 256 MB, those several times. */
export function startStream(bytes: number): Load {
  const size = Math.min(MOST_BYTES, ROUND_BYTES * Math.ceil(bytes / ROUND_BYTES));
  const exports = startModule(streamModule(Math.ceil(size / WASM_PAGE)));
  const stream = exports.stream as (end: number, write: number) => number;
  // Pages that were never written are one page of zeros for the system, which stays in the nearest cache.
  stream(size, 1);
  return {
    flops: bytes,
    run() {
      for (let left = bytes; left > 0; left -= size)
        stream(Math.min(size, ROUND_BYTES * Math.ceil(left / ROUND_BYTES)), 0);
    },
  };
}
