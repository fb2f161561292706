import { MOST_SEQUENCES } from "../attention/limits.ts";
import { type GivenMasks, type MaskOptions, readMasks } from "../attention/mask.ts";
import { expectFloats, readFields, readList } from "../util/arguments.ts";

/** The options of a call that are arrays or lists. */
interface CallArrays extends MaskOptions {
  readonly keys?: Float32Array;
  readonly values?: Float32Array;
  readonly positions?: ArrayLike<number>;
  readonly kvLengths?: ArrayLike<number>;
  readonly out?: Float32Array;
}

/** A call whose options, arrays and lists are plain: reading them runs no code of the caller's. */
export interface GivenCall<Options extends CallArrays> {
  readonly x: Float32Array;
  readonly options: Options & GivenMasks;
  /** The array that was given as `out`, of which that of the options is a view. */
  readonly out: Float32Array | undefined;
}

/**
 * Reads the arguments of a call, each once, and throws if `options` has other fields than `known`; x may be a field of the
 * options. It is the only step that may run code of the caller's (getters, Proxies), which may release, detach or shrink what
 * was read before: checks follow.
 */
export function readCall<Options extends CallArrays & { readonly x?: Float32Array }>(
  where: string,
  ownX: Float32Array | undefined,
  options: Options,
  known: readonly string[],
): GivenCall<Options> {
  const given = readFields(where, "options", options, known);
  const { x = ownX } = given;
  const floats = expectFloats(where, "x", x);
  const { keys, values, positions, kvLengths, out } = given;
  const read: { -readonly [Name in keyof CallArrays]: CallArrays[Name] } = given;
  // What was the same array stays the same.
  if (keys !== undefined) read.keys = keys === x ? floats : expectFloats(where, "keys", keys);
  if (values !== undefined) read.values = values === keys ? read.keys : expectFloats(where, "values", values);
  if (out !== undefined) read.out = expectFloats(where, "out", out);
  // There are no more positions than rows of x.
  if (positions !== undefined) read.positions = readNumbers(where, "positions", positions, floats.length);
  if (kvLengths !== undefined) read.kvLengths = readNumbers(where, "kvLengths", kvLengths, MOST_SEQUENCES);
  if (given.keep !== undefined || given.drop !== undefined || given.bias !== undefined)
    Object.assign(read, readMasks(where, given));
  return { x: floats, options: given as Options & GivenMasks, out };
}

const readNumbers = readList as typeof readList<number>;

/** The arrays of a call, by name. */
export function arraysOf({ x, options }: GivenCall<CallArrays>): Record<string, ArrayLike<unknown> | undefined> {
  const { keys, values, keep, drop, bias, out } = options;
  return { x, keys, values, keep: keep?.data, drop: drop?.data, bias: bias?.data, out };
}

/**
 * A function that throws if one of the arrays has been detached or resized since, during an asynchronous call: what is
 * computed from it would be wrong.
 */
export function expectKeptArrays(
  where: string,
  arrays: Readonly<Record<string, ArrayLike<unknown> | undefined>>,
): () => void {
  const lengths = Object.entries(arrays).map(([name, array]) => [name, array, array?.length] as const);
  return () => {
    for (const [name, array, length] of lengths)
      if (array?.length !== length)
        throw new RangeError(
          `${where}: ${name} expected to keep its ${length} elements until the promise settles, got ${array?.length}`,
        );
  };
}
