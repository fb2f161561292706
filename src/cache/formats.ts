import { FORMAT_F16, FORMAT_F32, FORMAT_Q4, FORMAT_Q8, PAGE, PANEL, QUAD } from "../../assembly/layout.ts";
import { refuseFormat } from "../attention/weight-options.ts";
import { describe, expectFields, expectInt, expectOneOf } from "../util/errors.ts";

/** Floats of 32 or 16 bits, or integers of 8 or 4 bits with one scale for each token and head. */
export type CacheFormat = "f32" | "f16" | "q8" | "q4";

/** The formats of a cache's keys and of its values. */
export interface CacheFormats {
  /** Format of keys. "q8" and "q4" need a headDim of at most 2048. */
  readonly keys: CacheFormat;
  /** Format of values. */
  readonly values: CacheFormat;
}

/** One of the stages that the tokens of a cache go through as they age. */
export interface CacheStage extends CacheFormats {
  /** How many tokens the stage covers, a multiple of 128. The last stage covers all older tokens and has no number. */
  readonly tokens?: number;
}

/** Formats of a page as the kernels take them, and for how many pages they hold. */
export interface Stage {
  readonly formats: number;
  readonly pages: number;
}

/** From the bits to the name. */
const NAMES: readonly CacheFormat[] = ["f32", "f16", "q8", "q4"];

/** Components of keys up to which products of 14 and 8 bits cannot leave 32. */
const MOST_INTEGER_DIM = 2048;

/** The formats of one page: keys in bits 0 and 1, values in bits 2 and 3. */
function formatsOf({ keys, values }: CacheFormats): number {
  return NAMES.indexOf(keys) | (NAMES.indexOf(values) << 2);
}

/** Checks what `createCache` was told at `path`: the stages that a page goes through, from new to old. */
export function checkFormat(where: string, path: string, format: unknown, headDim: number): readonly Stage[] {
  if (format === undefined) return [{ formats: FORMAT_F32, pages: Number.POSITIVE_INFINITY }];
  if (typeof format === "string") {
    const name = expectOneOf(where, path, format, NAMES);
    return checkFormat(where, path, { keys: name, values: name }, headDim);
  }
  if (format === null || typeof format !== "object" || ArrayBuffer.isView(format)) {
    const rule = "a format's name, { keys, values } or an array of stages";
    throw new TypeError(`${where}: ${path} expected ${rule}, got ${describe(format)}`);
  }
  if (!Array.isArray(format)) return [checkStage(where, path, format as CacheStage, headDim, ["keys", "values"])];
  if (format.length === 0) throw new RangeError(`${where}: ${path} expected one stage or more, got none`);
  // Also those of holes.
  const stages = Array.from(format, (stage, i) => {
    const fields = i === format.length - 1 ? ["keys", "values"] : ["keys", "values", "tokens"];
    return checkStage(where, `${path}[${i}]`, stage, headDim, fields);
  });
  for (const [i, { formats }] of stages.slice(1).entries()) {
    const before = stages[i] as Stage;
    if (before.formats === formats)
      throw new RangeError(`${where}: ${path}[${i + 1}] expected other formats than the stage before, got the same`);
    for (const [name, shift] of [
      ["keys", 0],
      ["values", 2],
    ] as const) {
      const [was, is] = [(before.formats >> shift) & 3, (formats >> shift) & 3];
      if (is < was)
        throw new RangeError(
          `${where}: ${path}[${i + 1}].${name} expected no more bits than before ("${NAMES[was]}"), got "${NAMES[is]}"`,
        );
    }
  }
  return stages;
}

function checkStage(where: string, name: string, stage: CacheStage, headDim: number, fields: readonly string[]): Stage {
  expectFields(where, name, stage, fields);
  const keys = expectOneOf(where, `${name}.keys`, stage.keys, NAMES);
  const values = expectOneOf(where, `${name}.values`, stage.values, NAMES);
  if (headDim > MOST_INTEGER_DIM && (keys === "q8" || keys === "q4"))
    throw new RangeError(
      `${where}: ${name}.keys expected "f32" or "f16" for headDim above ${MOST_INTEGER_DIM}, got "${keys}"`,
    );
  const formats = formatsOf({ keys, values });
  if (!fields.includes("tokens")) return { formats, pages: Number.POSITIVE_INFINITY };
  const tokens = expectInt(where, `${name}.tokens`, stage.tokens, PAGE);
  if (tokens % PAGE !== 0)
    throw new RangeError(`${where}: ${name}.tokens expected a multiple of ${PAGE}, got ${describe(tokens)}`);
  return { formats, pages: tokens / PAGE };
}

/** Throws NO_QUANTIZED for stages that kernels of floats do not know. */
export function expectKnownStages(where: string, quantized: boolean, stages: readonly Stage[]): void {
  if (quantized) return;
  for (const { formats } of stages)
    for (const [name, format] of [
      ["keys", formats & 3],
      ["values", formats >> 2],
    ] as const)
      if (format !== FORMAT_F32) refuseFormat(where, name, NAMES[format] as string);
}

/** Whether pages of these formats are float32 alone, which the kernels of floats know. */
export function onlyFloats(bits: number): boolean {
  return (bits & ~((1 << FORMAT_F32) | (16 << FORMAT_F32))) === 0;
}

/** The stages as `createCache` takes them, which nobody can change. */
export function describeStages(stages: readonly Stage[]): readonly CacheStage[] {
  return Object.freeze(
    stages.map(({ formats, pages }) =>
      Object.freeze({
        keys: NAMES[formats & 3] as CacheFormat,
        values: NAMES[formats >> 2] as CacheFormat,
        ...(pages === Number.POSITIVE_INFINITY ? {} : { tokens: pages * PAGE }),
      }),
    ),
  );
}

/** The formats of one page in words. */
export function describeFormats(formats: number): string {
  return `keys "${NAMES[formats & 3]}" and values "${NAMES[(formats >> 2) & 3]}"`;
}

/** All formats of the stages as an AttentionShape has them: bit f for keys, bit 4 + f for values. */
export function formatBits(stages: readonly Stage[]): number {
  return stages.reduce((bits, { formats }) => bits | (1 << (formats & 3)) | (16 << (formats >> 2)), 0);
}

const isInteger = (format: number) => format === FORMAT_Q8 || format === FORMAT_Q4;
const wholeQuads = (components: number) => QUAD * Math.ceil(components / QUAD);

function partBytes(format: number, components: number): number {
  if (!isInteger(format)) return PAGE * components * (format === FORMAT_F32 ? 4 : 2);
  return (PAGE * wholeQuads(components)) / (format === FORMAT_Q8 ? 1 : 2) + 4 * PAGE;
}

/** Bytes of the keys and of the values of one kv head in a page: whole blocks of 64. */
export function headBytes(formats: number, headDim: number, valueDim: number): { keys: number; values: number } {
  const columns = PANEL * Math.ceil(valueDim / PANEL);
  return { keys: partBytes(formats & 3, headDim), values: partBytes(formats >> 2, columns) };
}

/** Bytes of attention_f32's scratch for pages of these formats, beside those it always takes. */
export function formatScratch(bits: number, headDim: number, valueDim: number): Record<"query" | "page", number> {
  const columns = PANEL * Math.ceil(valueDim / PANEL);
  const has = (format: number) => (bits & (1 << format)) !== 0;
  const wide = (shift: number, components: number) => {
    if (has(shift + FORMAT_F16)) return 4 * PAGE * components;
    return has(shift + FORMAT_Q4) ? PAGE * wholeQuads(components) : 0;
  };
  return {
    query: has(FORMAT_Q8) || has(FORMAT_Q4) ? 2 * wholeQuads(headDim) : 0,
    page: wide(0, headDim) + wide(4, columns),
  };
}
