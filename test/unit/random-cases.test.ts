// Properties that fast-check tries have seeds that are known, so that a failure can be repeated.

import { readdirSync, readFileSync } from "node:fs";
import { join } from "node:path";
import { assert, nat, property } from "fast-check";
import { afterEach, expect, test, vi } from "vitest";
import { randomCases } from "../support/random-cases.ts";

afterEach(() => {
  vi.unstubAllEnvs();
});

/** The cases that are tried until one is 500 or more, and the message of the failure. */
function failing(): { readonly cases: readonly number[]; readonly message: string } {
  const cases: number[] = [];
  const each = property(nat(1000), (value) => {
    cases.push(value);
    return value < 500;
  });
  try {
    assert(each, randomCases(100, 7));
  } catch (error) {
    return { cases, message: (error as Error).message };
  }
  throw new Error("expected a failure");
}

test("a property that fails says its seed, and has the same cases again with that seed, others with PROPERTY_SEED", () => {
  const first = failing();
  expect(first.message).toContain("{ seed: 7, path: ");
  expect(failing()).toEqual(first);
  vi.stubEnv("PROPERTY_SEED", "8");
  const other = failing();
  expect(other.message).toContain("{ seed: 8, path: ");
  expect(other.cases).not.toEqual(first.cases);
  vi.stubEnv("PROPERTY_SEED", "7");
  expect(failing()).toEqual(first);
});

test("every property has its cases from randomCases", () => {
  const root = join(import.meta.dirname, "..");
  const files = readdirSync(root, { recursive: true, encoding: "utf8" }).filter(
    (name) => /\.(?:test|long)\.ts$/.test(name) && !name.includes("node_modules"),
  );
  const using = files
    .map((name) => ({ name, text: readFileSync(join(root, name), "utf8") }))
    .filter(({ text }) => /from "fast-check"/.test(text));
  expect(using.length).toBeGreaterThanOrEqual(8);
  // An `assert` each, and its cases.
  const count = (text: string, what: RegExp) => Array.from(text.matchAll(what)).length;
  const without = using.filter(({ text }) => count(text, /\bassert\(/g) !== count(text, /\brandomCases\(/g));
  expect(without.map(({ name }) => name)).toEqual([]);
});
