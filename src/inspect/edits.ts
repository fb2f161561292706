// Interventions in a forward pass, as data: what is set, scaled or added at a site.

import type { Model } from "../decoder/model.ts";
import { checkTensor, readTensor, type Tensor } from "../tensor/tensor.ts";
import { expectFloats, expectInt, readFields, readList } from "../util/arguments.ts";
import { describe } from "../util/errors.ts";
import { type CheckedSite, checkSite, SITE_FIELDS, type Site } from "./sites.ts";

/**
 * An intervention at a site: exactly one of `set`, `scale` and `add`. What is given as Float32Array [width] is the same for all
 * tokens, a Tensor [tokens, width] has a row for each; the width is that of the site.
 *
 * - ablate: `set: 0`, or `set` with the mean of other runs (`meanRows`);
 * - patch: `set` with what another run captured;
 * - steer: `add` with a vector.
 */
export interface Edit extends Site {
  /** Which tokens, as indices into `ids`. Default all. */
  readonly tokens?: readonly number[] | undefined;
  /** What the rows become: a number for all of their floats, a row, or a row for each token. */
  readonly set?: number | Float32Array | Tensor | undefined;
  /** What the rows are multiplied by. */
  readonly scale?: number | undefined;
  /** What is added to the rows. */
  readonly add?: Float32Array | Tensor | undefined;
}

const FIELDS: readonly (keyof Edit)[] = [...SITE_FIELDS, "tokens", "set", "scale", "add"];
const KINDS = ["set", "scale", "add"] as const;

/** An edit that was checked: `change` is given the floats of a token at the site. */
export interface CheckedEdit extends CheckedSite {
  /** Which tokens; undefined for all. */
  readonly tokens: ReadonlySet<number> | undefined;
  change(row: Float32Array, token: number): void;
}

/** Checks an edit of a call of `count` tokens. */
export function checkEdit(where: string, name: string, edit: Edit, model: Model, count: number): CheckedEdit {
  const { tokens: given, set, scale, add, ...site } = readFields(where, name, edit, FIELDS);
  const checked = checkSite(where, name, site, model);
  const kinds = KINDS.filter((kind) => ({ set, scale, add })[kind] !== undefined);
  if (kinds.length !== 1)
    throw new TypeError(`${where}: ${name} expected one of set, scale and add, got ${kinds.join(" and ") || "none"}`);
  const tokens = given && readTokens(where, `${name}.tokens`, given, count);
  const { width } = checked;
  const rows = tokens ?? Array.from({ length: count }, (_, token) => token);
  const rowsOf = (field: "set" | "add", value: unknown) => readRows(where, `${name}.${field}`, value, rows, width);
  const at = { ...checked, tokens: tokens && new Set(tokens) };
  if (scale !== undefined) {
    const factor = expectNumber(where, `${name}.scale`, scale);
    return { ...at, change: (row) => replaceFloats(row, (value) => value * factor) };
  }
  if (add !== undefined) {
    const from = rowsOf("add", add);
    return { ...at, change: (row, token) => replaceFloats(row, (value, i) => value + (from(token)[i] as number)) };
  }
  if (typeof set === "number") {
    const value = expectNumber(where, `${name}.set`, set);
    return { ...at, change: (row) => void row.fill(value) };
  }
  const from = rowsOf("set", set);
  return { ...at, change: (row, token) => row.set(from(token)) };
}

function replaceFloats(row: Float32Array, by: (value: number, i: number) => number): void {
  for (const [i, value] of row.entries()) row[i] = by(value, i);
}

function expectNumber(where: string, name: string, value: unknown): number {
  if (typeof value === "number" && Number.isFinite(value)) return value;
  throw new TypeError(`${where}: ${name} expected a finite number, got ${describe(value)}`);
}

/** Indices of a call's tokens, each once. */
export function readTokens(where: string, name: string, tokens: unknown, count: number): number[] {
  const read = Array.from(
    readList(where, name, tokens, count, (token, i) => expectInt(where, `${name}[${i}]`, token, 0, count - 1)),
  );
  if (read.length > 0 && new Set(read).size === read.length) return read;
  const rule = `1 to ${count} tokens, each once`;
  throw new RangeError(
    `${where}: ${name} expected ${rule}, got ${read.length === 0 ? "none" : `[${read.join(", ")}]`}`,
  );
}

/** The row of each token that an edit sets or adds: a copy. */
function readRows(
  where: string,
  name: string,
  value: unknown,
  tokens: readonly number[],
  width: number,
): (token: number) => Float32Array {
  if (ArrayBuffer.isView(value)) {
    const row = Float32Array.from(expectFloats(where, name, value));
    if (row.length !== width) throw new RangeError(`${where}: ${name} expected ${width} floats, got ${row.length}`);
    return () => row;
  }
  const { data, shape } = checkTensor(where, name, readTensor(where, name, value), [2]);
  if (shape[0] !== tokens.length || shape[1] !== width)
    throw new RangeError(
      `${where}: ${name} expected shape [${tokens.length}, ${width}], a row for each token, got [${shape.join(", ")}]`,
    );
  const copy = Float32Array.from(data);
  const rowOf = new Map(tokens.map((token, i) => [token, copy.subarray(i * width, (i + 1) * width)]));
  return (token) => rowOf.get(token) as Float32Array;
}
