/// <reference lib="esnext.disposable" preserve="true" />

import { describe, HeadwiseError, tagOf } from "./errors.ts";

/** Symbol.dispose, or on engines that lack it the symbol that compiled `using` declarations look up. */
const DISPOSE: typeof Symbol.dispose = Symbol.dispose ?? (Symbol.for("Symbol.dispose") as typeof Symbol.dispose);

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
 * What the types of handles (kernels, layers and caches), and of what only this package makes, extend, so that TypeScript takes
 * neither a copy nor a literal for one. At run time, handles are the objects that functions of this package made. Handles with the
 * same fields differ by `Kind`.
 */
declare abstract class Handle<Kind extends string = string> {
  /** The kind of handle. In types alone: no object has it. Protected, because declarations have no types of private fields. */
  protected readonly made: Kind;
}

export type { Handle };

/** The handles that exist, and the public function that made each. */
const MAKERS = new WeakMap<object, string>();

/** Frees what dropped handles held; undefined in engines that lack it. */
const DROPPED =
  typeof FinalizationRegistry === "function" ? new FinalizationRegistry<() => void>((free) => free()) : undefined;

/** The method that Node, Deno and Bun print an object by. */
const INSPECT = Symbol.for("nodejs.util.inspect.custom");

/** The fields of every handle. */
interface Owner extends Releasable {
  readonly released: boolean;
}

/**
 * Makes a handle of `parts`, and of the fields that release it: frozen, and known to `expectMade` as what `maker` gives, so
 * that copies, forged ones and Proxies are refused. Functions and the fields in `internal` are not enumerable: they are
 * neither listed nor printed nor copied.
 * @param kind The name of its type.
 * @param free Frees what the handle holds: called once, by `release()` or, with `whenDropped`, after the handle was
 * collected. It must not refer to the handle, nor must any function that shares variables with it.
 */
export function makeHandle<T extends Owner>(
  kind: string,
  maker: string,
  parts: Omit<T, keyof Owner>,
  internal: readonly (keyof T)[],
  free: () => void,
  whenDropped = true,
): T {
  const owner = ownerOf(free);
  // A new object instead of changed fields, which would make access slower.
  const fields: Record<PropertyKey, PropertyDescriptor> = {
    ...Object.getOwnPropertyDescriptors(parts),
    ...Object.getOwnPropertyDescriptors(owner),
  };
  for (const key of Reflect.ownKeys(fields)) {
    const field = fields[key] as PropertyDescriptor;
    field.enumerable = typeof field.value !== "function" && !internal.includes(key as keyof T);
  }
  fields[Symbol.toStringTag] = { value: kind };
  fields[INSPECT] = { value: () => factsOf(handle) };
  const handle = Object.freeze(Object.defineProperties({}, fields)) as T;
  MAKERS.set(handle, maker);
  if (whenDropped) DROPPED?.register(handle, owner.release);
  return handle;
}

/** A function of its own, because it must share no variable with the function of `makeHandle` that refers to the handle. */
function ownerOf(free: () => void): Owner {
  let released = false;
  const release = () => {
    if (released) return;
    released = true;
    free();
  };
  return {
    get released() {
      return released;
    },
    release,
    [DISPOSE]: release,
  };
}

/** What a handle is printed as: its enumerable fields, or only that it was released. */
function factsOf(handle: Owner): object {
  const facts = handle.released ? { released: true } : { ...handle };
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
