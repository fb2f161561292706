// Puts faults into the host code, one at a time, and runs the tests that reach their places until one fails.

import { mkdtempSync, readdirSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { pathToFileURL } from "node:url";
import type { Reply, TestAt } from "./child.ts";
import { type Fault, faultsOf, SOURCES, sourceWith } from "./generate.ts";
import { inTurns, type TestProcess } from "./process.ts";

const DECODER: readonly string[] = [
  ...["unit/models/decoder", "unit/tools/inspect/forward-with.test.ts", "unit/layers/mixer.test.ts"],
  "unit/models/stored-tables.test.ts",
  ...["families", "load-encoder"].map((name) => `unit/models/encoder/${name}.test.ts`),
  ...["hybrids", "models", "model-failures", "model-memory", "rows-on-demand", "seq2seq", "states"].map(
    (name) => `properties/${name}.test.ts`,
  ),
];
const GGUF = [
  "unit/models/weights/gguf",
  "unit/models/encoder/gguf-encoders.test.ts",
  "unit/models/decoder/load-gguf.test.ts",
  "unit/models/decoder/gguf-files.test.ts",
];

/** Folders and files of src/ that get faults, and the files or folders whose tests must find them. */
const TESTS: Readonly<Record<string, readonly string[]>> = {
  "layers/state": [
    ...["unit/layers/state", "unit/models/decoder/session-pages.test.ts", "unit/layers/api/errors.test.ts"],
    ...["cache-aging", "cache-formats", "cache-pages", "cache-window", "hybrids", "kv-cache", "lifetime", "states"].map(
      (name) => `properties/${name}.test.ts`,
    ),
  ],
  "models/blocks": DECODER,
  "models/decoder": DECODER,
  "models/generate": DECODER,
  "models/load": DECODER,
  "models/spec/read-gguf.ts": GGUF,
  "models/weights/gguf-layer.ts": GGUF,
  "models/weights/gguf-latent.ts": GGUF,
  "text/gguf-tokenizer.ts": ["unit/text/gguf-tokenizer.test.ts", "unit/text/vectors.test.ts"],
};

/** What the tests of a fault that is expected to survive may take, without it. */
const SOME_MS = 3000;

/** What a test may take with a fault, beyond 20 times what it takes without. */
const PATIENCE_MS = 10_000;

export interface Verdict {
  readonly fault: Fault;
  /** The test that failed; undefined if the fault survived. */
  readonly by: string | undefined;
}

const testRoot = join(import.meta.dirname, "../..");

/** The share of all faults that `seed` chooses, by what they change: edits elsewhere, and moves, change nothing in the choice. */
export function chooseFaults(seed: number, share: number): Fault[] {
  const files = Object.keys(TESTS).flatMap((path) =>
    path.endsWith(".ts") ? [path] : readdirSync(join(SOURCES, path)).map((name) => `${path}/${name}`),
  );
  return files.flatMap(faultsOf).filter(({ from, to }) => hash(`${seed} ${from} ${to}`) < share);
}

/** FNV-1a, mixed, in [0, 1). */
function hash(text: string): number {
  let h = 0x811c9dc5;
  for (const byte of new TextEncoder().encode(text)) h = Math.imul(h ^ byte, 0x01000193);
  h = Math.imul(h ^ (h >>> 16), 0x85ebca6b);
  return ((h ^ (h >>> 13)) >>> 0) / 2 ** 32;
}

/**
 * The verdict of each fault, in their order; `onVerdict` gets each one when it is known. Of faults that are `expected` to survive,
 * only the shortest tests are run.
 */
export async function tryFaults(
  faults: readonly Fault[],
  processes: number,
  onVerdict: (verdict: Verdict) => void = () => {},
  expected: (fault: Fault) => boolean = () => false,
): Promise<Verdict[]> {
  const folder = mkdtempSync(join(tmpdir(), "host-mutants-"));
  try {
    const sources = join(folder, "sources.json");
    writeFileSync(sources, JSON.stringify(sourcesWith(faults)));
    const reaching = await measure(sources, processes, faults);
    const findOne = async (fault: Fault, process: TestProcess, i: number) => {
      const own = reaching[i] as Reaching;
      const asExpected = expected(fault);
      const some = asExpected ? { tests: shortest(own.tests), before: [] } : own;
      let by = await findFault(process, i + 1, some);
      // What earlier faults left in a process can hide one: it is believed to survive when a new process says so, too.
      if (by === undefined && !asExpected) {
        process.end();
        by = await findFault(process, i + 1, own);
      }
      const verdict = { fault, by };
      onVerdict(verdict);
      return verdict;
    };
    return await inTurns(sources, processes, faults, findOne);
  } finally {
    rmSync(folder, { recursive: true, force: true });
  }
}

/** The first of these tests, as many as take `SOME_MS` together. */
function shortest(tests: readonly Timed[]): Timed[] {
  let sum = 0;
  return tests.filter(({ ms }) => {
    sum += ms;
    return sum <= SOME_MS;
  });
}

function sourcesWith(faults: readonly Fault[]): Record<string, string> {
  const files = [...new Set(faults.map(({ file }) => file))];
  const numbered = faults.map((fault, i) => [i + 1, fault] as const);
  const sourceOf = (file: string) => sourceWith(file, new Map(numbered.filter(([, fault]) => fault.file === file)));
  return Object.fromEntries(files.map((file) => [pathToFileURL(join(SOURCES, file)).href, sourceOf(file)]));
}

interface Timed extends TestAt {
  readonly ms: number;
}

interface Reaching {
  /** The tests that reach the place of a fault, the shortest first. */
  readonly tests: Timed[];
  /** The tests that may depend on it, because it is reached before them: when files are loaded, or in hooks. */
  readonly before: Timed[];
}

/** Runs all tests without a fault, and notes what they reach. */
async function measure(sources: string, processes: number, faults: readonly Fault[]): Promise<Reaching[]> {
  const filesOf = new Map(Object.keys(TESTS).map((folder) => [folder, testFilesOf(folder)]));
  const proves = (file: string, { file: source }: Fault) => filesOf.get(keyOf(source))?.includes(file);
  const files = new Set(faults.flatMap(({ file }) => filesOf.get(keyOf(file)) as string[]));
  const reaching = faults.map((): Reaching => ({ tests: [], before: [] }));
  const all: Timed[] = [];
  const early = new Set<number>();
  await inTurns(sources, processes, [...files], async (file, process) => {
    const reply = await process.ask({ kind: "measure", file });
    if (typeof reply === "string" || reply.kind !== "measured") throw new Error(`${file}: ${JSON.stringify(reply)}`);
    const timed = reply.tests.map(({ ms }, index) => ({ file, index, ms }));
    all.push(...timed);
    for (const [index, { title, reached, error }] of reply.tests.entries()) {
      if (error !== undefined) throw new Error(`${file}: "${title}" fails without a fault: ${error}`);
      for (const n of reached)
        if (proves(file, faults[n - 1] as Fault)) (reaching[n - 1] as Reaching).tests.push(timed[index] as Timed);
    }
    for (const n of reply.before) {
      early.add(n);
      if (proves(file, faults[n - 1] as Fault)) (reaching[n - 1] as Reaching).before.push(...timed);
    }
  });
  for (const [i, { tests, before }] of reaching.entries()) {
    // Modules are loaded once in a process: any test may depend on what only their loading reaches.
    if (tests.length === 0 && early.has(i + 1))
      before.splice(0, before.length, ...all.filter(({ file }) => proves(file, faults[i] as Fault)));
    for (const list of [tests, before]) list.sort((a, b) => a.ms - b.ms);
  }
  return reaching;
}

/** The folder or file of `TESTS` that a source is in. */
const keyOf = (source: string) => (source in TESTS ? source : source.slice(0, source.lastIndexOf("/")));

function testFilesOf(key: string): string[] {
  return (TESTS[key] as readonly string[]).flatMap((path) =>
    path.endsWith(".ts")
      ? [`test/${path}`]
      : readdirSync(join(testRoot, path), { encoding: "utf8" })
          .filter((name) => name.endsWith(".test.ts"))
          .map((name) => `test/${path}/${name}`),
  );
}

/** What finds a fault: the error of a test, or how its process ended; undefined if nothing does. */
async function findFault(
  process: TestProcess,
  fault: number,
  { tests, before }: Reaching,
): Promise<string | undefined> {
  let rest = tests;
  while (rest.length > 0) {
    const { by, at = 0, broken } = await attempt(process, fault, rest, false);
    if (by === undefined) break;
    if (!broken) return by;
    // The test fails without the fault too, perhaps because of what this or another fault left: new processes tell.
    const only = [rest[at] as Timed];
    process.end();
    const without = await attempt(process, 0, only, false);
    process.end();
    const again = await attempt(process, fault, only, false);
    process.end();
    if (without.by === undefined && again.by !== undefined) return again.by;
    rest = rest.slice(at + 1);
  }
  if (before.length === 0) return undefined;
  process.end();
  const { by } = await attempt(process, fault, before, true);
  process.end();
  return by;
}

/** Runs tests with a fault until one fails; `fromLoad`: in a new process, with the fault from its beginning. */
async function attempt(
  process: TestProcess,
  fault: number,
  tests: readonly Timed[],
  fromLoad: boolean,
): Promise<Reply & { kind: "tried" }> {
  const asked = tests.map(({ file, index }) => ({ file, index }));
  const patience = (at: number) => PATIENCE_MS + 20 * (tests[at] as Timed).ms;
  const reply = await process.ask({ kind: "try", fault, tests: asked, fromLoad }, patience);
  if (typeof reply === "string") {
    // A process may end by what an earlier fault left behind: then the test is repeated.
    const [, at] = /^the process ends in test (\d+)/.exec(reply) ?? [];
    return { kind: "tried", by: reply, at: Number(at ?? 0), broken: at !== undefined };
  }
  if (reply.kind !== "tried") throw new Error(`expected the end of a try, got ${reply.kind}`);
  return reply;
}
