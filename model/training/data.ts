import type { Random } from "./random.ts";
import { encode, vocabSize } from "./vocabulary.ts";

/** Tokens of one training or held-out sequence. */
export const seqLen = 96;

/**
 * long   8..48 tokens of the 96, none twice: gives the model no habit to learn but copying.
 * short  4..12 tokens, each any of the 96: many repetitions in one window.
 * words  4..32 tokens of made-up words: few different characters and many spaces, so the
 *        character before does not always tell what follows.
 */
export type Kind = "long" | "short" | "words";

export interface Sequence {
  readonly kind: Kind;
  /** The segment is tokens[0 .. segmentLen); after it the same tokens come again until the end. */
  readonly segmentLen: number;
  readonly tokens: readonly number[];
}

export function drawSequence(random: Random, kind: Kind = drawKind(random), length: number = seqLen): Sequence {
  const segment = drawSegment(random, kind);
  const tokens = Array.from({ length }, (_, i) => segment[i % segment.length]!);
  return { kind, segmentLen: segment.length, tokens };
}

/**
 * The first target that counts. Nothing tells that the segment ends, so tokens[segmentLen] cannot
 * be predicted; every later token can.
 */
export function firstTarget(sequence: Sequence): number {
  return sequence.segmentLen + 1;
}

function drawKind(random: Random): Kind {
  const u = random.uniform();
  return u < 0.7 ? "long" : u < 0.8 ? "short" : "words";
}

function drawSegment(random: Random, kind: Kind): number[] {
  switch (kind) {
    case "long":
      return drawDistinct(random, random.integer(8, 48));
    case "short":
      return Array.from({ length: random.integer(4, 12) }, () => random.integer(0, vocabSize - 1));
    case "words":
      return drawWords(random);
  }
}

function drawDistinct(random: Random, length: number): number[] {
  const segment = new Set<number>();
  while (segment.size < length) segment.add(random.integer(0, vocabSize - 1));
  return [...segment];
}

const letters = encode("abcdefghijklmnopqrstuvwxyz0123456789");
const separators = [encode(" "), encode(" "), encode(" "), encode(", "), encode(". "), encode("\n")];

/** Words of 1..7 letters, each followed by a separator; the segment ends with one, as "qz7 mfk " does. */
function drawWords(random: Random): number[] {
  const length = random.integer(4, 32);
  const segment: number[] = [];
  while (segment.length < length) {
    const wordLen = random.integer(1, 7);
    for (let i = 0; i < wordLen; i++) segment.push(letters[random.integer(0, letters.length - 1)]!);
    segment.push(...separators[random.integer(0, separators.length - 1)]!);
  }
  return segment;
}
