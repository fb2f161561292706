// What checks say of values. Each throws an Error that names what was expected and what was there.

import { HeadwiseError } from "../given.ts";

const show = (value: unknown): string => (typeof value === "string" ? JSON.stringify(value) : String(value));

export function expectEqual(what: string, got: unknown, want: unknown): void {
  if (!Object.is(got, want)) throw new Error(`${what} expected ${show(want)}, got ${show(got)}`);
}

export function expectTrue(what: string, holds: boolean): void {
  if (!holds) throw new Error(`${what} expected to hold`);
}

/** Both ends count. NaN lies nowhere. */
export function expectWithin(what: string, got: number, least: number, most: number): void {
  if (!(got >= least && got <= most)) throw new Error(`${what} expected ${least} to ${most}, got ${got}`);
}

/** The same length and in every place the same bits; any NaN is as good as another. */
export function expectSameBits(what: string, got: ArrayLike<number>, want: ArrayLike<number>): void {
  expectEqual(`${what}: length`, got.length, want.length);
  for (let i = 0; i < want.length; i++)
    if (!Object.is(got[i], want[i])) throw new Error(`${what}[${i}] expected ${want[i]}, got ${got[i]}`);
}

/** What an error must be: TypeError, RangeError or the code of a HeadwiseError; and its whole message, or a part of it. */
export interface Expected {
  readonly kind: "TypeError" | "RangeError" | (string & {});
  readonly text: string | RegExp;
}

/** Throws unless `call` throws, or rejects, as expected. */
export async function expectThrown(call: () => unknown, { kind, text }: Expected): Promise<void> {
  const error = await thrownBy(call);
  if (!(error instanceof Error)) throw new Error(`expected an Error, got ${show(error)}`);
  const got = error instanceof HeadwiseError ? error.code : error.constructor.name;
  const fits = typeof text === "string" ? error.message === text : text.test(error.message);
  if (got !== kind || !fits) throw new Error(`expected ${kind} ${text}, got ${got} ${error.message}`);
}

/** What `call` throws, or rejects with. Throws when it does neither. */
export async function thrownBy(call: () => unknown): Promise<unknown> {
  try {
    await call();
  } catch (error) {
    return error;
  }
  throw new Error("expected an error, got none");
}
