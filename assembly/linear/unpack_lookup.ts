import { LONGEST_BLOCK } from "../layout";
import { widen_f16_high, widen_f16_low } from "../math/half";
import { U8Ptr } from "../types";
import { inputs_of, LOOKUP_HEAD, LOOKUP_ROWS, place_of, SCALES } from "./block_layout";

// Weights of 1 and 2 bits as int8, for rows that are too many for tables.

/** The inputs from..from+count of a panel as linear_q8 has them, in blocks of `each`. */
export function unpack_lookup(to: U8Ptr, panel: U8Ptr, from: i32, count: i32, block: i32, each: i32): void {
  const whole = block > LONGEST_BLOCK;
  const inputs = inputs_of(block);
  let at = panel + place_of(from, block);
  for (let i = 0; i < count; i += inputs) {
    if (whole) {
      if (i % each == 0) {
        v128.store(to, v128.load(panel));
        v128.store(to, v128.load(panel, 16), 16);
        to += SCALES;
      }
    } else {
      const scales = v128.load(at);
      v128.store(to, widen_f16_low(scales));
      v128.store(to, widen_f16_high(scales), 16);
      to += SCALES;
      at += LOOKUP_HEAD;
    }
    for (const end = at + LOOKUP_ROWS; at < end; at += 16) {
      const row = v128.load(at);
      // Each byte twice, of outputs in their order.
      const low = i8x16.shuffle(row, row, 0, 0, 2, 2, 4, 4, 6, 6, 1, 1, 3, 3, 5, 5, 7, 7);
      const high = i8x16.shuffle(row, row, 8, 8, 10, 10, 12, 12, 14, 14, 9, 9, 11, 11, 13, 13, 15, 15);
      to = inputs == LONGEST_BLOCK ? unpack_signs(unpack_signs(to, low), high) : unpack_codes(unpack_codes(to, low), high);
    }
  }
}

/** Eight inputs of eight outputs, in pairs. Returns where the next ones begin. */
// @ts-ignore: decorator
@inline
function unpack_signs(to: U8Ptr, bytes: v128): U8Ptr {
  for (let i: i16 = 0; i < 8; i += 2) {
    const bits = i16x8.splat((1 << i) | (512 << i));
    const set = i8x16.eq(v128.and(bytes, bits), bits);
    // -1 where set, else 0: to 1 and -1.
    v128.store(to, i8x16.sub(i8x16.splat(-1), i8x16.add(set, set)));
    to += 16;
  }
  return to;
}

/** Four inputs. */
// @ts-ignore: decorator
@inline
function unpack_codes(to: U8Ptr, bytes: v128): U8Ptr {
  for (let i = 0; i < 8; i += 4) {
    const first = v128.and(i16x8.shr_u(bytes, i), i16x8.splat(0x0003));
    const second = v128.and(i16x8.shr_u(bytes, i + 2), i16x8.splat(0x0300));
    v128.store(to, i8x16.sub(v128.or(first, second), i8x16.splat(1)));
    to += 16;
  }
  return to;
}
