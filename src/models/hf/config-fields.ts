import { describe, HeadwiseError } from "../../util/errors.ts";

/** The public function, for messages. */
export const WHERE = "fromHfConfig";

/** What is wrong with a field of config.json. */
export function refusal(name: string, rule: string, got: unknown): HeadwiseError {
  return new HeadwiseError("BAD_FILE", `${WHERE}: ${name} expected ${rule}, got ${describe(got)}`);
}

/** Typed access to an object of the file. Null counts as absent, as in the library that writes these files. */
export interface Fields {
  raw(name: string): unknown;
  /** Whether the field is present, even if null. */
  has(name: string): boolean;
  /** An integer >= 1; `fallback` if it is absent; throws if that is absent, too. */
  count(name: string, fallback?: number): number;
  /** A finite number > 0, or undefined. */
  number(name: string): number | undefined;
  flag(name: string, fallback: boolean): boolean;
  fields(name: string): Fields | undefined;
}

export function fieldsOf(title: string, value: unknown): Fields {
  if (value === null || typeof value !== "object" || Array.isArray(value)) throw refusal(title, "an object", value);
  const raw = (name: string): unknown =>
    Object.hasOwn(value, name) ? ((value as Readonly<Record<string, unknown>>)[name] ?? undefined) : undefined;
  return {
    raw,
    has: (name) => Object.hasOwn(value, name),
    count: (name, fallback) => {
      const found = raw(name) ?? fallback;
      if (typeof found !== "number" || !Number.isInteger(found) || found < 1)
        throw refusal(name, "an integer >= 1", found);
      return found;
    },
    number: (name) => {
      const found = raw(name);
      if (found === undefined || (typeof found === "number" && Number.isFinite(found) && found > 0)) return found;
      throw refusal(name, "a finite number > 0", found);
    },
    flag: (name, fallback) => {
      const found = raw(name) ?? fallback;
      if (typeof found !== "boolean") throw refusal(name, "true or false", found);
      return found;
    },
    fields: (name) => (raw(name) === undefined ? undefined : fieldsOf(name, raw(name))),
  };
}
