// The pictures that other sites show of a link to a page: the story's run as arcs over its words, and the maps of all heads of that run.

import { crc32, deflateSync } from "node:zlib";
import type { Colour } from "../src/tools/inspect/colours.ts";
import { weightColour } from "./src/ramps.ts";
import { targetOf } from "./src/story/say.ts";
import type { Story } from "./worker/story-run.ts";

/** Pixels, as most sites crop to. */
export const CARD = { width: 1200, height: 630 } as const;

/** Ground, ink and a faint line of a light page, and the hues of heads: styles/base.css. */
const [GROUND, INK, FAINT]: readonly Colour[] = [
  [252, 251, 248],
  [28, 27, 25],
  [208, 203, 192],
];
const ANSWER: Colour = [201, 162, 39];
const HUES: readonly Colour[] = [
  [0, 114, 178],
  [213, 94, 0],
  [0, 158, 115],
  [184, 134, 11],
  [204, 95, 160],
  [63, 143, 197],
  [122, 79, 181],
  [107, 107, 107],
];

/** The maps of all heads in a text of so many tokens, by layer and head. */
export interface Maps {
  readonly tokens: number;
  readonly heads: readonly (readonly Float32Array[])[];
}

type Pixels = Uint8Array;

function blank(): Pixels {
  const pixels = new Uint8Array(CARD.width * CARD.height * 3);
  for (let i = 0; i < pixels.length; i++) pixels[i] = (GROUND as Colour)[i % 3] as number;
  return pixels;
}

/** Lays a colour over a pixel; `share` is how much of the pixel it covers. */
function lay(pixels: Pixels, x: number, y: number, colour: Colour, share = 1): void {
  if (x < 0 || y < 0 || x >= CARD.width || y >= CARD.height) return;
  const at = 3 * (y * CARD.width + x);
  for (let i = 0; i < 3; i++)
    pixels[at + i] = Math.round((pixels[at + i] as number) * (1 - share) + (colour[i] as number) * share);
}

function rectangle(pixels: Pixels, x: number, y: number, width: number, height: number, colour: Colour): void {
  for (let j = Math.round(y); j < Math.round(y + height); j++)
    for (let i = Math.round(x); i < Math.round(x + width); i++) lay(pixels, i, j, colour);
}

/** The upper half of an ellipse, as a line of some thickness: a pixel is covered by its distance to the nearest point of the line. */
function arc(
  pixels: Pixels,
  [from, to]: readonly [number, number],
  y: number,
  rise: number,
  thick: number,
  colour: Colour,
): void {
  const [centre, radius] = [(from + to) / 2, Math.abs(to - from) / 2];
  const steps = Math.ceil(4 * (radius + rise));
  const nearest = new Map<number, number>();
  for (let step = 0; step <= steps; step++) {
    const angle = (Math.PI * step) / steps;
    const [px, py] = [centre + radius * Math.cos(angle), y - rise * Math.sin(angle)];
    const reach = Math.ceil(thick / 2 + 1);
    for (let j = Math.floor(py) - reach; j <= py + reach; j++)
      for (let i = Math.floor(px) - reach; i <= px + reach; i++) {
        const distance = Math.hypot(i + 0.5 - px, j + 0.5 - py);
        const at = j * CARD.width + i;
        if (distance < (nearest.get(at) ?? Number.POSITIVE_INFINITY)) nearest.set(at, distance);
      }
  }
  for (const [at, distance] of nearest)
    lay(
      pixels,
      at % CARD.width,
      Math.floor(at / CARD.width),
      colour,
      Math.min(1, Math.max(0, thick / 2 + 0.5 - distance)),
    );
}

/** Words as bars of their length, and an arc of each head from the last one to the word that it looks at. */
export function storyCard({ words, looks }: Story): Buffer {
  const pixels = blank();
  const [gap, baseline] = [14, 470];
  const letters = words.reduce((sum, { word }) => sum + word.length, 0);
  const letter = (CARD.width - 120 - gap * (words.length - 1)) / letters;
  const targets = looks.map(targetOf);
  let x = 60;
  const middles = words.map(({ word }, i) => {
    const width = letter * word.length;
    const isLast = i === words.length - 1;
    rectangle(
      pixels,
      x,
      baseline,
      width,
      26,
      targets.includes(i) ? ANSWER : isLast ? (INK as Colour) : (FAINT as Colour),
    );
    const middle = x + width / 2;
    x += width + gap;
    return middle;
  });
  for (const [head, target] of targets.entries()) {
    if (target === undefined) continue;
    const weight = looks[head]?.[target] as number;
    const ends = [middles[target] as number, middles.at(-1) as number] as const;
    arc(pixels, ends, baseline - 8, 90 + 46 * head, 3 + 5 * weight, HUES[head % HUES.length] as Colour);
  }
  return png(pixels);
}

/** The maps of all heads, a row a layer. */
export function headsCard({ tokens, heads }: Maps): Buffer {
  const pixels = blank();
  const columns = Math.max(...heads.map(({ length }) => length));
  const gap = 16;
  const side = Math.floor(Math.min((CARD.width - gap) / columns, (CARD.height - gap) / heads.length) - gap);
  const left = (CARD.width - columns * (side + gap) + gap) / 2;
  const top = (CARD.height - heads.length * (side + gap) + gap) / 2;
  for (const [layer, row] of heads.entries())
    for (const [head, weights] of row.entries()) {
      const [x, y] = [left + head * (side + gap), top + layer * (side + gap)];
      const cell = side / tokens;
      for (let query = 0; query < tokens; query++)
        for (let key = 0; key <= query; key++) {
          const colour = weightColour(Math.sqrt(weights[query * tokens + key] as number), false);
          rectangle(pixels, x + key * cell, y + query * cell, cell, cell, colour);
        }
    }
  return png(pixels);
}

/** Pixels as a PNG file: a header, the rows behind a filter byte each, and the end. */
function png(pixels: Pixels): Buffer {
  const chunk = (name: string, data: Uint8Array): Buffer => {
    const body = Buffer.concat([Buffer.from(name, "latin1"), data]);
    const ends = [Buffer.alloc(4), Buffer.alloc(4)] as const;
    ends[0].writeUInt32BE(data.length);
    ends[1].writeUInt32BE(crc32(body));
    return Buffer.concat([ends[0], body, ends[1]]);
  };
  const header = Buffer.alloc(13);
  header.writeUInt32BE(CARD.width, 0);
  header.writeUInt32BE(CARD.height, 4);
  header.set([8, 2], 8); // 8 bits of red, green and blue
  const stride = 3 * CARD.width;
  const rows = Buffer.alloc((stride + 1) * CARD.height);
  for (let y = 0; y < CARD.height; y++) rows.set(pixels.subarray(y * stride, (y + 1) * stride), y * (stride + 1) + 1);
  const signature = Buffer.from("\x89PNG\r\n\x1a\n", "latin1");
  return Buffer.concat([
    signature,
    chunk("IHDR", header),
    chunk("IDAT", deflateSync(rows, { level: 9 })),
    chunk("IEND", Buffer.alloc(0)),
  ]);
}
