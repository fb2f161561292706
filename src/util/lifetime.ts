/// <reference lib="esnext.disposable" preserve="true" />

import { describe, HeadwiseError } from "./errors.ts";

/** Symbol.dispose, or on engines that lack it the symbol that compiled `using` declarations look up. */
export const DISPOSE: typeof Symbol.dispose = Symbol.dispose ?? (Symbol.for("Symbol.dispose") as typeof Symbol.dispose);

/** An object that holds memory or workers until `release()`. It works with `using`. */
export interface Releasable {
  /** Frees what the object holds. Using the object afterwards throws; releasing it again does nothing. */
  release(): void;
  /** `release()`, for `using`. */
  [Symbol.dispose](): void;
}

/** Throws unless `thing` was made by `maker`, which the property `part` shows, and is not released. */
export function expectMade(
  where: string,
  name: string,
  thing: { readonly released: boolean },
  part: string,
  maker: string,
): void {
  if (thing === null || typeof thing !== "object" || !(part in thing))
    throw new TypeError(`${where}: ${name} expected what ${maker} gives, got ${describe(thing)}`);
  expectAlive(where, name, thing);
}

/** Throws RELEASED if the thing was released. */
export function expectAlive(where: string, name: string, thing: { readonly released: boolean }): void {
  if (thing.released) throw new HeadwiseError("RELEASED", `${where}: ${name} was released`);
}
