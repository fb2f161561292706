// node:fs of the conformance runner, where the only files are fixtures.

import { fixtures } from "suite:fixtures";

export function readFileSync(path: string): Uint8Array {
  const bytes = fixtures.files[path];
  if (!bytes) throw new RangeError(`readFileSync: path expected a fixture, got ${path}`);
  return bytes;
}

export const existsSync = (path: string): boolean => path in fixtures.files;
