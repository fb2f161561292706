import { LONGEST_BLOCK, PANEL } from "../layout";
import { U8Ptr } from "../types";
import { inputs_of, LOOKUP_HEAD, LOOKUP_ROWS, place_of, SCALES } from "./block_layout";

/** Bytes of the codes of a block, the first one in the lowest bits. */
const CODES: usize = 16;

/**
 * Panels begin..end as linear_lookup reads them of a matrix [n, k] in blocks: a scale and 16 bytes of codes. Scales have 16 bits, as
 * in GGUF's Q1_0 and Q2_0; those of a row with one scale, with a block of 1024, have 32, of which the first counts. Rows beyond n are zeros.
 */
export function pack_lookup(out: U8Ptr, from: U8Ptr, n: i32, k: i32, block: i32, begin: i32, end: i32): void {
  assert(k % inputs_of(block) == 0, "pack_lookup: k must be whole blocks");
  assert(begin >= 0 && end <= (n + PANEL - 1) / PANEL, "pack_lookup: begin..end must lie within the panels");
  const whole = block > LONGEST_BLOCK;
  const scaleBytes: usize = whole ? 4 : 2;
  const rowBytes = (scaleBytes + CODES) * <usize>(k / inputs_of(block));
  const panelBytes = place_of(k, block);
  for (let p = begin; p < end; p++) {
    const panel = out + panelBytes * p;
    memory.fill(panel, 0, panelBytes);
    for (let column = 0; column < min(PANEL, n - p * PANEL); column++) {
      let at = from + rowBytes * (p * PANEL + column);
      let to = panel;
      if (whole) {
        store<f32>(to + (<usize>column << 2), load<f32>(at));
        to += SCALES;
      }
      // Outputs 0 to 3 are the even bytes, 4 to 7 the odd ones.
      const lane = <usize>((column & 3) << 1) + <usize>(column >> 2);
      for (const next = at + rowBytes; at < next; at += CODES) {
        if (!whole) {
          store<u16>(to + (<usize>column << 1), load<u16>(at));
          to += LOOKUP_HEAD;
        }
        at += scaleBytes;
        for (let i: usize = 0; i < CODES; i++) store<u8>(to + (i << 3) + lane, load<u8>(at + i));
        to += LOOKUP_ROWS;
      }
    }
  }
}
