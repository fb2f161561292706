// Lines, their cosines, clusters and vectors, as files.

import { clustersAt } from "../worker/clusters.ts";
import type { Embedded } from "../worker/embed.ts";
import { csvOf, saveFile } from "./save.ts";

/** Lines, and the cosine of each with what they are compared with. */
export interface Ranked {
  readonly lines: readonly string[];
  readonly found: Embedded;
  readonly scores: Float32Array;
}

interface Row {
  readonly line: string;
  readonly cosine: number;
  /** From 1. */
  readonly cluster: number;
  readonly at: number;
}

/** The most alike first. */
function rowsOf({ lines, found, scores }: Ranked, threshold: number): Row[] {
  const clusters = clustersAt(found.joins, lines.length, threshold);
  const clusterOf = (at: number) => clusters.findIndex((members) => members.includes(at)) + 1;
  const rows = lines.map((line, at) => ({ line, cosine: scores[at] as number, cluster: clusterOf(at), at }));
  return rows.sort((a, b) => b.cosine - a.cosine);
}

export function saveCsv(ranked: Ranked, threshold: number): void {
  const rows = rowsOf(ranked, threshold).map(({ line, cosine, cluster }) => [cosine, cluster, line]);
  saveFile("lines.csv", "text/csv;charset=utf-8", csvOf([["cosine", "cluster", "line"], ...rows]));
}

/** `head` is what the lines were made by, and compared with. */
export function saveJson(ranked: Ranked, head: { readonly threshold: number; readonly [name: string]: unknown }): void {
  const { vectors, dimensions, digest } = ranked.found;
  const lines = rowsOf(ranked, head.threshold).map(({ at, ...rest }) => {
    return { ...rest, vector: Array.from(vectors.subarray(at * dimensions, (at + 1) * dimensions)) };
  });
  saveFile("lines.json", "application/json", JSON.stringify({ ...head, digest, lines }));
}
