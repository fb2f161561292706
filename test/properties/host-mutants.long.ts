// Tests of the host code are worth what they catch: faults in caches, decoders, and the reading of GGUF, one at a time.

import { expect, test } from "vitest";
import type { Fault } from "../support/host-mutants/generate.ts";
import { chooseFaults, tryFaults } from "../support/host-mutants/run.ts";
import { UNSEEN } from "../support/host-mutants/unseen.ts";

/** Which faults are tried, and what share of all: `MUTANTS_SHARE=1` tries some 4000, for hours. */
const SEED = Number(process.env.MUTANTS_SEED || 1);
const SHARE = Number(process.env.MUTANTS_SHARE || 0.065);

const listed = ({ file, from, to }: Fault) =>
  UNSEEN.some((each) => each.file === file && each.from === from && each.to === to);
const describeFault = ({ file, line, from, to }: Fault) => `src/${file}:${line}: ${from} -> ${to || "dropped"}`;

test("tests find every fault of a sample of 200 or more, but those that are listed with the reason", async () => {
  const faults = chooseFaults(SEED, SHARE);
  console.log(`${faults.length} faults: MUTANTS_SEED=${SEED} MUTANTS_SHARE=${SHARE}`);
  expect(faults.length).toBeGreaterThanOrEqual(SHARE >= 0.065 ? 200 : 1);
  const verdicts = await tryFaults(
    faults,
    2,
    ({ fault, by }) => {
      if (by === undefined && !listed(fault)) console.log(`survives: ${describeFault(fault)}`);
    },
    listed,
  );
  const survivors = verdicts.filter(({ by }) => by === undefined).map(({ fault }) => fault);
  const unseen = survivors.filter(listed).length;
  console.log(`${faults.length - survivors.length} found, ${unseen} are listed`);
  expect(survivors.filter((fault) => !listed(fault)).map(describeFault)).toEqual([]);
  // The list is true: nothing finds its faults, and each of them is a fault of today's code.
  const found = verdicts.filter(({ fault, by }) => by !== undefined && listed(fault));
  expect(found.map(({ fault, by }) => `${describeFault(fault)} is found by ${by}`)).toEqual([]);
  const all = chooseFaults(SEED, 1).filter(listed);
  expect(all.length).toBe(UNSEEN.length);
  // Of the sample, tests find 19 of 20.
  expect(unseen).toBeLessThan(SHARE >= 0.065 ? faults.length / 20 : faults.length);
}, 36_000_000);
