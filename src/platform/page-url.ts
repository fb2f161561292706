import { builtinModule } from "./builtin.ts";

/** What a page or a worker has, and what Node, Deno and Bun have. */
interface PageScope {
  readonly document?: { readonly baseURI: string };
  readonly location?: { readonly href: string };
  readonly process?: { getBuiltinModule?(name: string): unknown };
}

const SCHEME = /^[a-z][a-z\d+.-]*:/i;

/**
 * A place as it is, unless it is a string without a scheme in a page or a worker: that is relative to the address of the document or
 * worker, as for `fetch`. On hosts with a file system it is a path, also if they have `location`.
 */
export function resolvePlace(place: string | URL, scope: PageScope = globalThis as PageScope): string | URL {
  if (typeof place !== "string" || SCHEME.test(place) || builtinModule("node:fs/promises", scope)) return place;
  try {
    return new URL(place, scope.document?.baseURI ?? scope.location?.href);
  } catch {
    // There is no address, or as in a worker of a blob one that nothing is relative to.
    return place;
  }
}
