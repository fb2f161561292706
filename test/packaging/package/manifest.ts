// The parts of package.json and jsr.json that are looked at.

import { readFileSync } from "node:fs";
import { join } from "node:path";

export interface Manifest {
  readonly name: string;
  readonly version: string;
  readonly type?: string;
  readonly sideEffects?: readonly string[];
  readonly publishConfig: { readonly provenance?: boolean };
  readonly main: string;
  readonly types: string;
  readonly bin: Readonly<Record<string, string>>;
  /** What Parcel resolves subpaths by, which ignores `exports` by default. */
  readonly alias?: Readonly<Record<string, string>>;
  readonly exports: Readonly<Record<string, string | Readonly<Record<string, string>>>>;
  readonly dependencies?: unknown;
  readonly peerDependencies?: Readonly<Record<string, string>>;
  readonly peerDependenciesMeta?: Readonly<Record<string, { readonly optional?: boolean }>>;
  readonly optionalDependencies?: unknown;
  readonly scripts: Readonly<Record<string, string>>;
}

export interface JsrManifest {
  readonly name: string;
  readonly version: string;
  readonly exports: Readonly<Record<string, string>>;
}

export function readManifest(folder: string): Manifest {
  return JSON.parse(readFileSync(join(folder, "package.json"), "utf8"));
}

/** An entry of JavaScript: its subpath, its declarations, and the file of each condition, as package.json names them. */
export interface Entry {
  readonly subpath: string;
  readonly types: string;
  readonly files: Readonly<Record<string, string>>;
}

export function entriesOf({ exports }: Manifest): Entry[] {
  return Object.entries(exports).flatMap(([subpath, target]) => {
    if (typeof target === "string") return [];
    const { types = "", ...files } = target;
    return [{ subpath, types, files }];
  });
}
