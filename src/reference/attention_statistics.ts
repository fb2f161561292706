import { STATISTICS } from "../../assembly/layout.ts";
import type { Reference } from "../wasm/abi.ts";
import { attendedBy, attention_pages } from "./attention.ts";

/** Where the keys have less of the weight, what is of w / W is 0. */
const LEAST = 2 ** -40;

/**
 * attention_pages, and statistics of the weights w[j] = e^(score[j] - lse) of its rows on their keys: rows[h, t] = lse, W = Σ w, that
 * over keys [0, first), that over the last `last` keys of the row's range; of p = w / W the entropy -Σ p ln p, the mean distance
 * Σ p |position - j| and the effective number 1 / Σ p²; 0; the topK largest w, of equal ones the first, and their keys, 0 and -1
 * where there are fewer. received[h, j] += Σ w over the rows.
 */
export const attention_statistics: Reference["attention_statistics"] = (
  out,
  q,
  pages,
  scratch,
  shape,
  statistics,
  begin,
  end,
) => {
  attention_pages(out, q, pages, scratch, shape, begin, end);
  const { qLen, numHeads, numKvHeads } = shape;
  const { topK, first, last, rows, received, receivedStride } = statistics;
  const group = numHeads / numKvHeads;
  const size = STATISTICS + 2 * topK;
  const ids = new Int32Array(rows.buffer, rows.byteOffset, rows.length);
  for (let row = begin; row < end; row++) {
    const kvHead = Math.floor(row / (qLen * group));
    const token = Math.floor((row % (qLen * group)) / group);
    const head = kvHead * group + (row % group);
    const position = shape.qStart + token;
    const high = Math.min(shape.kvLen, position + shape.right + 1);
    const attended = attendedBy(shape, q, pages, token, head, kvHead);

    let top = Number.NEGATIVE_INFINITY;
    for (const { score } of attended) top = Math.max(top, score);
    const shift = top === Number.NEGATIVE_INFINITY ? 0 : top;
    let sum = 0;
    for (const { score } of attended) sum += Math.exp(score - shift);
    const keys = attended.flatMap(({ key, score }) => {
      return key === undefined ? [] : { key, weight: sum === 0 ? 0 : Math.exp(score - shift) / sum };
    });

    const total = (of: (one: (typeof keys)[number]) => number) => keys.reduce((all, one) => all + of(one), 0);
    const mass = total(({ weight }) => weight);
    const part = mass <= LEAST ? 0 : 1 / mass;
    const squares = total(({ weight }) => (weight * part) ** 2);
    const at = (head * qLen + token) * size;
    rows[at] = sum === 0 ? Number.NEGATIVE_INFINITY : shift + Math.log(sum);
    rows[at + 1] = mass;
    rows[at + 2] = total(({ key, weight }) => (key < first ? weight : 0));
    rows[at + 3] = total(({ key, weight }) => (key >= high - last ? weight : 0));
    rows[at + 4] = -total(({ weight }) => (weight * part === 0 ? 0 : weight * part * Math.log(weight * part)));
    rows[at + 5] = total(({ key, weight }) => weight * part * Math.abs(position - key));
    rows[at + 6] = squares === 0 ? 0 : 1 / squares;
    rows[at + 7] = 0;
    // Equal ones keep their order.
    const best = [...keys].sort((a, b) => b.weight - a.weight);
    for (let i = 0; i < topK; i++) {
      rows[at + STATISTICS + i] = best[i]?.weight ?? 0;
      ids[at + STATISTICS + topK + i] = best[i]?.key ?? -1;
    }
    if (received) for (const { key, weight } of keys) received[head * receivedStride + key]! += weight;
  }
};
