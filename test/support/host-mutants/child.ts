// A process that runs tests on sources with faults, as run.ts asks.

import { join } from "node:path";
import { pathToFileURL } from "node:url";
import { type Collected, testsOf, vi } from "./collect.ts";

/** Tests of one file, by their index in it. */
export interface TestAt {
  readonly file: string;
  readonly index: number;
}

export type Request =
  | { readonly kind: "measure"; readonly file: string }
  /** Runs tests with a fault until one fails; `fromLoad`: the fault is there also while their files are loaded. */
  | { readonly kind: "try"; readonly fault: number; readonly tests: readonly TestAt[]; readonly fromLoad: boolean };

export interface Measured {
  readonly title: string;
  readonly ms: number;
  /** Faults whose place it reached. */
  readonly reached: readonly number[];
  readonly error?: string | undefined;
}

export type Reply =
  | { readonly kind: "measured"; readonly before: readonly number[]; readonly tests: readonly Measured[] }
  /** Before the file of each test is loaded, and before the test, so that one that does not end is noticed. */
  | { readonly kind: "loads" | "begins"; readonly at: number }
  /** `by`: the error of the test that failed, test `at`. `broken`: it fails without the fault too by now. */
  | { readonly kind: "tried"; readonly by?: string; readonly at?: number; readonly broken: boolean };

declare global {
  var faults: { active: number; reached: Set<number> };
}

const root = join(import.meta.dirname, "../../..");
const loaded = new Map<string, Collected[]>();

async function load(file: string): Promise<Collected[]> {
  const tests = loaded.get(file) ?? (await testsOf(pathToFileURL(join(root, file)).href));
  loaded.set(file, tests);
  return tests;
}

/** The error of a test, or undefined. */
async function errorOf(test: Collected): Promise<string | undefined> {
  try {
    await test.run();
  } catch (error) {
    return String(error);
  } finally {
    vi.restoreAllMocks();
    vi.unstubAllGlobals();
  }
}

async function measure(file: string): Promise<Reply> {
  const { reached } = globalThis.faults;
  const before = new Set<number>();
  const move = () => {
    for (const n of reached) before.add(n);
    reached.clear();
  };
  const tests: Measured[] = [];
  for (const test of await load(file)) {
    await test.begin();
    move();
    const begin = performance.now();
    const error = await errorOf(test);
    tests.push({ title: test.title, ms: performance.now() - begin, reached: [...reached], error });
    reached.clear();
  }
  return { kind: "measured", before: [...before], tests };
}

async function tryFault({ fault, tests, fromLoad }: Request & { kind: "try" }): Promise<Reply> {
  const { faults } = globalThis;
  for (const [at, { file, index }] of tests.entries()) {
    process.send?.({ kind: "loads", at } satisfies Reply);
    faults.active = fromLoad ? fault : 0;
    let error: string | undefined;
    let test: Collected | undefined;
    try {
      test = (await load(file))[index] as Collected;
      await test.begin();
    } catch (cause) {
      error = String(cause);
    }
    faults.active = fault;
    process.send?.({ kind: "begins", at } satisfies Reply);
    error ??= await errorOf(test as Collected);
    faults.active = 0;
    if (error !== undefined) {
      const broken = !fromLoad && (await errorOf(test as Collected)) !== undefined;
      return { kind: "tried", by: `${file}: ${test?.title}: ${error.slice(0, 300)}`, at, broken };
    }
  }
  return { kind: "tried", broken: false };
}

process.on("message", async (request: Request) => {
  process.send?.(request.kind === "measure" ? await measure(request.file) : await tryFault(request));
});
