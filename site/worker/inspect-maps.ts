// Weights of all heads for a text that goes on. Maps have room for more tokens, so that one that is typed moves none of the others.

import type { Tensor } from "headwise/inspect";

/** The maps of a layer's heads. */
export interface HeadMaps {
  readonly heads: number;
  /** Tokens that there is room for: `data` is [heads, room, room], of which the first tokens of both are used. */
  readonly room: number;
  readonly data: Float32Array;
}

/** Room is made for as many tokens at a time. */
const ROOM = 64;

/** Adds weights [heads, rows, tokens] below the first `same` rows of maps that are known; these are changed, if they have room. */
export function addRows(known: HeadMaps | undefined, { data, shape }: Tensor, same: number): HeadMaps {
  const [heads, rows, n] = shape as [number, number, number];
  const fits = known !== undefined && n <= known.room;
  const room = fits ? known.room : ROOM * Math.ceil(n / ROOM);
  const maps = fits ? known.data : new Float32Array(heads * room * room);
  for (let head = 0; head < heads; head++) {
    for (let i = 0; known && !fits && i < same; i++) {
      const at = (head * known.room + i) * known.room;
      maps.set(known.data.subarray(at, at + same), (head * room + i) * room);
    }
    for (let i = 0; i < rows; i++) {
      const from = (head * rows + i) * n;
      maps.set(data.subarray(from, from + n), (head * room + same + i) * room);
    }
  }
  return { heads, room, data: maps };
}

/** The map of a head, [n, n]. */
export function mapOf({ room, data }: HeadMaps, head: number, n: number): Float32Array {
  const map = new Float32Array(n * n);
  for (let i = 0; i < n; i++) {
    const from = (head * room + i) * room;
    map.set(data.subarray(from, from + n), i * n);
  }
  return map;
}

/** The largest weight in each field of a raster of side · side, of all heads. There are as many tokens as fields, or more. */
export function shrink(layers: readonly HeadMaps[], n: number, side: number): Float32Array {
  const small = new Float32Array(layers.reduce((sum, { heads }) => sum + heads, 0) * side * side);
  const firsts = Uint32Array.from({ length: side + 1 }, (_, field) => Math.ceil((field * n) / side));
  let at = 0;
  for (const { heads, room, data } of layers)
    for (let head = 0; head < heads; head++)
      for (let row = 0; row < side; row++, at += side)
        for (let i = firsts[row] as number; i < (firsts[row + 1] as number); i++) {
          const from = (head * room + i) * room;
          for (let column = 0; column < side; column++) {
            const end = from + (firsts[column + 1] as number);
            let most = small[at + column] as number;
            for (let j = from + (firsts[column] as number); j < end; j++) {
              const weight = data[j] as number;
              if (weight > most) most = weight;
            }
            small[at + column] = most;
          }
        }
  return small;
}
