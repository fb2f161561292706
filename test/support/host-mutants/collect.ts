// Stands for `vitest` where tests are run again and again in one process: collects them, with the hooks around them.

export { expect, vi } from "vitest";

type Body = (...args: never[]) => unknown;

interface Suite {
  readonly parent: Suite | undefined;
  readonly before: Body[];
  readonly beforeEach: Body[];
  readonly afterEach: Body[];
  /** Whether `before` was run. */
  begun: boolean;
}

export interface Collected {
  readonly title: string;
  readonly run: () => Promise<void>;
  /** What runs once, before the first test of its suites. */
  readonly begin: () => Promise<void>;
}

let tests: Collected[] = [];
let suite: Suite = emptySuite();

function emptySuite(parent?: Suite): Suite {
  return { parent, before: [], beforeEach: [], afterEach: [], begun: false };
}

/** The tests of a file, in their order. */
export async function testsOf(url: string): Promise<Collected[]> {
  tests = [];
  suite = emptySuite();
  await import(url);
  return tests;
}

/** The suites that a test is in, the outermost first. */
function suitesOf(last: Suite | undefined): Suite[] {
  return last ? [...suitesOf(last.parent), last] : [];
}

/** The function among the arguments of `test` and `describe`, which may be before or behind options. */
const bodyOf = (rest: readonly unknown[]) => rest.find((argument) => typeof argument === "function") as Body;

function addTest(title: string, body: Body, args: readonly unknown[]): void {
  const suites = suitesOf(suite);
  tests.push({
    title,
    async begin() {
      for (const each of suites) {
        if (each.begun) continue;
        each.begun = true;
        for (const hook of each.before) await hook();
      }
    },
    async run() {
      for (const each of suites) for (const hook of each.beforeEach) await hook();
      try {
        await body(...(args as never[]));
      } finally {
        for (const each of suites.toReversed()) for (const hook of each.afterEach) await hook();
      }
    },
  });
}

function addSuite(_title: string, body: Body, args: readonly unknown[]): void {
  const parent = suite;
  suite = emptySuite(parent);
  body(...(args as never[]));
  suite = parent;
}

/** `test` or `describe`, and its `each`. */
function adder(add: (title: string, body: Body, args: readonly unknown[]) => void) {
  const each =
    (rows: readonly unknown[]) =>
    (title: string, ...rest: readonly unknown[]) => {
      for (const [i, row] of rows.entries())
        add(`${title} [${i}]`, bodyOf(rest), Array.isArray(row) ? (row as unknown[]) : [row]);
    };
  return Object.assign((title: string, ...rest: readonly unknown[]) => add(title, bodyOf(rest), []), { each });
}

export const test = adder(addTest);
export const describe = adder(addSuite);
export const beforeAll = (hook: Body) => suite.before.push(hook);
export const beforeEach = (hook: Body) => suite.beforeEach.push(hook);
export const afterEach = (hook: Body) => suite.afterEach.push(hook);
/** Processes end when they have run what they are asked for: nothing is to be put back. */
export const afterAll = () => undefined;
