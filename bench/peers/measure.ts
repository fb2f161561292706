// Peers are timed by turns in one process (A B C, B C A, ...), and the arithmetic peak in every round: a machine that
// changes its speed changes it for all of them. The ratios within a round are compared.

import { setTimeout as sleep } from "node:timers/promises";
import { loadBuild } from "../lib/builds.ts";
import { arithmeticPeak } from "../lib/limits.ts";
import { type Spread, spreadOf } from "../lib/measure.ts";
import type { Peer, Prepared, Way } from "./peer.ts";
import { type Answer, expectAnswer } from "./reference.ts";

export interface Effort {
  readonly minRounds: number;
  readonly maxRounds: number;
  /** No further round begins after this long, if `minRounds` are done. */
  readonly roundsMs: number;
  readonly warmupMs: number;
  /** A sample repeats its work until it takes about this long. */
  readonly sampleMs: number;
}

export const full: Effort = { minRounds: 5, maxRounds: 31, roundsMs: 20_000, warmupMs: 400, sampleMs: 5 };
export const quick: Effort = { minRounds: 3, maxRounds: 7, roundsMs: 3_000, warmupMs: 150, sampleMs: 3 };

export interface Timing {
  readonly peer: string;
  readonly way: string;
  /** Milliseconds of a run. */
  readonly ms: Spread;
  readonly best: number;
  /** Its time over that of the first contender in the same round. */
  readonly ratio: Spread;
  /** Largest error against float64, relative to the largest value of its row. */
  readonly error: number;
  /** Another way of the same peer, which is not compared. */
  readonly aside: boolean;
}

/** The reason why a peer has no time. */
export interface Absence {
  readonly peer: string;
  readonly way: string;
  readonly reason: string;
}

interface Contender {
  readonly peer: string;
  readonly way: Way;
  readonly prepared: Prepared;
  readonly error: number;
  /** Milliseconds of a run, estimated during the warm-up. */
  readonly about: number;
}

/** Runs `repeats` times. Returns milliseconds a run. */
async function time(prepared: Prepared, repeats: number): Promise<number> {
  const start = performance.now();
  for (let i = 0; i < repeats; i++) {
    const pending = prepared.run();
    if (pending) await pending;
  }
  return (performance.now() - start) / repeats;
}

/** Until the engine has compiled with its best compiler, which runs on another thread: hence the pauses. */
async function warmUp(prepared: Prepared, ms: number): Promise<number> {
  const times: number[] = [];
  const end = performance.now() + ms;
  do {
    times.push(await time(prepared, 1));
    await sleep(1);
  } while (performance.now() < end);
  return Math.min(...times);
}

/** Every way that gives a right answer, warmed up, and the reasons why the others do not. */
async function prepareWays(
  peer: Peer,
  ways: readonly Way[],
  answer: Answer,
  effort: Effort,
): Promise<(Contender | Absence)[]> {
  const all: (Contender | Absence)[] = [];
  let fastest: Contender | undefined;
  for (const way of ways) {
    try {
      const prepared = await way.prepare();
      await prepared.run();
      const error = expectAnswer(peer.name, prepared.output(), answer);
      const one = { peer: peer.name, way, prepared, error, about: await warmUp(prepared, effort.warmupMs) };
      if (way.aside) all.push(one);
      else {
        const slower = fastest && fastest.about <= one.about ? one : fastest;
        fastest = slower === one ? fastest : one;
        await slower?.prepared.release();
      }
    } catch (error) {
      all.push({ peer: peer.name, way: way.name, reason: reasonOf(error) });
    }
  }
  return fastest ? [fastest, ...all] : all;
}

/** The first line of an error, without paths. An exception of C++ may be a number. */
export function reasonOf(error: unknown): string {
  const text = error instanceof Error ? error.message : `threw ${String(error)}`;
  return text.split("\n")[0]!.replaceAll(/(?:\/[\w.-]+){2,}(?::\d+)? ?/g, "");
}

const PEAK_ROUNDS = 100_000;

/** A function that runs the loop of multiply-adds and returns its GFLOP/s. */
export async function createPeak(): Promise<() => number> {
  const { work, run } = arithmeticPeak(await loadBuild("relaxed"), PEAK_ROUNDS);
  const gflops = () => {
    const start = performance.now();
    run();
    return work / (performance.now() - start) / 1e6;
  };
  for (const end = performance.now() + 300; performance.now() < end; ) {
    gflops();
    await sleep(1);
  }
  return gflops;
}

export interface Measured {
  readonly timings: readonly Timing[];
  readonly absences: readonly Absence[];
  readonly peakGflops: number;
  readonly rounds: number;
}

/** Times all peers on a work. The others are compared with the first one that works. */
export async function measure(
  given: readonly { readonly peer: Peer; readonly ways: readonly Way[] | string }[],
  answer: Answer,
  peak: () => number,
  effort: Effort,
): Promise<Measured> {
  const contenders: Contender[] = [];
  const absences: Absence[] = [];
  for (const { peer, ways } of given) {
    if (typeof ways === "string") absences.push({ peer: peer.name, way: "", reason: ways });
    else
      for (const one of await prepareWays(peer, ways, answer, effort))
        if ("reason" in one) absences.push(one);
        else contenders.push(one);
  }

  const times: number[][] = contenders.map(() => []);
  const failed = new Set<Contender>();
  const peaks: number[] = [];
  const end = performance.now() + effort.roundsMs;
  let round = 0;
  while (round < effort.minRounds || (round < effort.maxRounds && performance.now() < end)) {
    peaks.push(peak());
    for (let turn = 0; turn < contenders.length; turn++) {
      const i = (round + turn) % contenders.length;
      const one = contenders[i]!;
      if (failed.has(one)) continue;
      try {
        times[i]!.push(await time(one.prepared, Math.max(1, Math.round(effort.sampleMs / one.about))));
      } catch (error) {
        if (i === 0) throw error;
        failed.add(one);
        absences.push({ peer: one.peer, way: one.way.name, reason: reasonOf(error) });
      }
    }
    round++;
  }
  const timings = contenders.flatMap((one, i) => {
    if (failed.has(one)) return [];
    const { peer, way, error } = one;
    const ratio = spreadOf(times[i]!.map((ms, r) => ms / times[0]![r]!));
    const { name, aside = false } = way;
    return [{ peer, way: name, ms: spreadOf(times[i]!), best: Math.min(...times[i]!), ratio, error, aside }];
  });
  for (const { prepared } of contenders) await prepared.release();
  return { timings, absences, peakGflops: spreadOf(peaks).median, rounds: round };
}
