/// <reference lib="esnext.disposable" preserve="true" />

import { describe, HeadwiseError, tagOf } from "./errors.ts";

/** Symbol.dispose, or on engines that lack it the symbol that compiled `using` declarations look up. */
export const DISPOSE: typeof Symbol.dispose = Symbol.dispose ?? (Symbol.for("Symbol.dispose") as typeof Symbol.dispose);

/**
 * An object that holds memory or workers until `release()`. It works with `using`. Kernels, attentions, linear layers and
 * caches are also frozen, and functions take no copy of one.
 */
export interface Releasable {
  /** Frees what the object holds. Using the object afterwards throws; releasing it again does nothing. */
  release(): void;
  /** `release()`, for `using`. */
  [Symbol.dispose](): void;
}

/**
 * What the types of handles extend, so that TypeScript takes neither a copy nor a literal for one. At run time, handles are
 * the objects that `makeHandle` gave.
 */
declare abstract class Handle {
  private readonly made: true;
}

export type { Handle };

/** The handles that exist, and the public function that made each. */
const MAKERS = new WeakMap<object, string>();

/** Frees what dropped handles held; undefined in engines that lack it. */
const DROPPED =
  typeof FinalizationRegistry === "function" ? new FinalizationRegistry<() => void>((free) => free()) : undefined;

/** The method that Node, Deno and Bun print an object by. */
const INSPECT = Symbol.for("nodejs.util.inspect.custom");

/**
 * Makes a handle of `parts`: frozen, and known to `expectMade` as what `maker` gives, so that copies, forged ones and
 * Proxies are refused. Listed, printed and copied are its facts only: not its functions, and not the fields in `internal`.
 * @param kind The name of its type.
 * @param dropped Frees what the handle holds once it was collected unreleased. It must not refer to the handle, nor must any
 * function that shares variables with it.
 */
export function makeHandle<T extends Releasable>(
  kind: string,
  maker: string,
  parts: Pick<T, keyof T>,
  internal: readonly (keyof T)[] = [],
  dropped?: () => void,
): T {
  // A new object instead of changed fields, which would make access slower.
  const fields = Object.getOwnPropertyDescriptors(parts) as Record<PropertyKey, PropertyDescriptor>;
  for (const key of Reflect.ownKeys(fields)) {
    const field = fields[key] as PropertyDescriptor;
    field.enumerable = typeof field.value !== "function" && !internal.includes(key as keyof T);
  }
  fields[Symbol.toStringTag] = { value: kind };
  fields[INSPECT] = { value: () => factsOf(handle) };
  const handle = Object.freeze(Object.defineProperties({}, fields)) as T;
  MAKERS.set(handle, maker);
  if (dropped) DROPPED?.register(handle, dropped);
  return handle;
}

/** The facts of a handle, as they are now; of a released one, little is left. */
function factsOf(handle: Releasable): object {
  const facts = "released" in handle && handle.released ? { released: true } : { ...handle };
  return Object.defineProperty(facts, Symbol.toStringTag, { value: tagOf(handle) });
}

/** Throws unless `thing` is a handle that one of `makers` gave, and is not released. */
export function expectMade(
  where: string,
  name: string,
  thing: { readonly released: boolean },
  ...makers: readonly string[]
): void {
  const maker = MAKERS.get(thing);
  if (maker === undefined || !makers.includes(maker)) {
    const isCopy = maker === undefined && thing !== null && typeof thing === "object" && "released" in thing;
    const got = isCopy ? "a copy" : describe(thing);
    throw new TypeError(`${where}: ${name} expected what ${makers.join(" or ")} gives, got ${got}`);
  }
  expectAlive(where, name, thing);
}

/** Throws RELEASED if the thing was released. */
export function expectAlive(where: string, name: string, thing: { readonly released: boolean }): void {
  if (thing.released) throw new HeadwiseError("RELEASED", `${where}: ${name} was released`);
}

/** Freezes an object and the plain objects in it. The elements of arrays of numbers cannot be frozen. */
export function freezeDeep<T extends object>(value: T): T {
  for (const inner of Object.values(value))
    if (inner !== null && typeof inner === "object" && !ArrayBuffer.isView(inner)) freezeDeep(inner);
  return Object.freeze(value);
}
