import { PAGE } from "../../../assembly/layout.ts";
import { expectInt, expectOneOf, readFields } from "../../base/util/arguments.ts";
import { describe } from "../../base/util/errors.ts";
import { expectFormatLoaded } from "../linear/formats/formats.ts";
import {
  CACHE_FORMATS,
  type CacheFormat,
  type CacheFormats,
  decodeFormats,
  encodeFormats,
  type PageCode,
  type PageKind,
  type PageShape,
  type Stage,
} from "./pages.ts";

/** One of the stages that the tokens of a cache go through as they age. */
export interface CacheStage extends CacheFormats {
  /** How many tokens the stage covers, a multiple of 128. The last stage covers all older tokens and has no number. */
  readonly tokens?: number | undefined;
}

/** The most components of a key for which sums of 14-bit by 8-bit products fit in 32 bits. */
const MOST_INTEGER_DIM = 2048;

/** Throws for an integer format of keys of `dim` components, which the caller knows as `of`, if these are too many. */
export function expectIntegerDim(where: string, path: string, of: string, dim: number, format: CacheFormat): void {
  if (dim > MOST_INTEGER_DIM && (format === "q8" || format === "q4"))
    throw new RangeError(
      `${where}: ${path} expected "f32" or "f16" for ${of} above ${MOST_INTEGER_DIM}, got "${format}"`,
    );
}

/**
 * Checks the option `format` of a cache, named `path` in errors, and returns the stages of its pages, from new to old.
 */
export function checkCacheFormat(where: string, path: string, format: unknown, shape: PageShape): readonly Stage[] {
  if (format === undefined) return checkCacheFormat(where, path, "f32", shape);
  if (typeof format === "string") {
    const name = expectOneOf(where, path, format, CACHE_FORMATS);
    return checkCacheFormat(where, path, { keys: name, values: name }, shape);
  }
  if (format === null || typeof format !== "object" || ArrayBuffer.isView(format)) {
    const rule = "a format's name, { keys, values } or an array of stages";
    throw new TypeError(`${where}: ${path} expected ${rule}, got ${describe(format)}`);
  }
  if (!Array.isArray(format)) return [checkStage(where, path, format as CacheStage, shape, ["keys", "values"])];
  const { length } = format;
  (shape.kind as PageKind | undefined)?.checkStages(where, path);
  if (length === 0) throw new RangeError(`${where}: ${path} expected one stage or more, got none`);
  const stages: Stage[] = [];
  for (let i = 0; i < length; i++) {
    const fields = i === length - 1 ? (["keys", "values"] as const) : (["keys", "values", "tokens"] as const);
    stages.push(checkStage(where, `${path}[${i}]`, format[i], shape, fields));
  }
  for (const [i, { code }] of stages.slice(1).entries()) {
    const before = (stages[i] as Stage).code;
    if (before === code)
      throw new RangeError(`${where}: ${path}[${i + 1}] expected other formats than the stage before, got the same`);
    const [was, is] = [decodeFormats(before), decodeFormats(code)];
    for (const name of ["keys", "values"] as const)
      if (CACHE_FORMATS.indexOf(is[name]) < CACHE_FORMATS.indexOf(was[name]))
        throw new RangeError(
          `${where}: ${path}[${i + 1}].${name} expected no more bits than before ("${was[name]}"), got "${is[name]}"`,
        );
  }
  return stages;
}

function checkStage(
  where: string,
  name: string,
  given: CacheStage,
  shape: PageShape,
  fields: readonly (keyof CacheStage)[],
): Stage {
  const stage = readFields(where, name, given, fields);
  const keys = expectOneOf(where, `${name}.keys`, stage.keys, CACHE_FORMATS);
  const values = expectOneOf(where, `${name}.values`, stage.values, CACHE_FORMATS);
  const kind = shape.kind as PageKind | undefined;
  if (kind) kind.checkFormats(where, name, { keys, values }, shape);
  else expectIntegerDim(where, `${name}.keys`, "headDim", shape.headDim, keys);
  const code = encodeFormats({ keys, values });
  if (!fields.includes("tokens")) return { code, pages: Number.POSITIVE_INFINITY };
  const tokens = expectInt(where, `${name}.tokens`, stage.tokens, PAGE);
  if (tokens % PAGE !== 0)
    throw new RangeError(`${where}: ${name}.tokens expected a multiple of ${PAGE}, got ${describe(tokens)}`);
  return { code, pages: tokens / PAGE };
}

/** Throws NO_QUANTIZED for formats other than float32 if their kernels are not loaded. */
export function expectStagesLoaded(where: string, quantized: boolean, stages: readonly Stage[]): void {
  for (const { code } of stages)
    for (const [name, format] of Object.entries(decodeFormats(code)))
      expectFormatLoaded(where, quantized, name, format);
}

/** The stages in the form of CacheOptions, frozen. */
export function describeStages(stages: readonly Stage[]): readonly CacheStage[] {
  return Object.freeze(
    stages.map(({ code, pages }) =>
      Object.freeze({
        ...decodeFormats(code),
        ...(pages === Number.POSITIVE_INFINITY ? {} : { tokens: pages * PAGE }),
      }),
    ),
  );
}

/** The formats of a page as text. */
export function describeFormats(code: PageCode): string {
  const { keys, values } = decodeFormats(code);
  return `keys "${keys}" and values "${values}"`;
}
