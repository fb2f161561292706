/** The variables and their smallest values. */
const LEAST = {
  MAX_PROMPT: 1,
  MAX_ANSWER: 1,
  MAX_CONTEXT: 1,
  MAX_ACTIVE: 1,
  MEMORY_MIB: 1,
  SLICE_TOKENS: 1,
  CHECKPOINT_TOKENS: 1,
  IDLE_SECONDS: 1,
  KEEP_DAYS: 0,
  DEBUG: 0,
} as const;

export type Limits = Readonly<Record<keyof typeof LEAST, number>>;

/** The variables of wrangler.jsonc: numbers, or text if they come from a command line. */
export type Variables = Readonly<Record<keyof Limits, number | string>>;

/** Throws for a variable that is not an integer, or too small. */
export function readLimits(env: Variables): Limits {
  const entries = Object.entries(LEAST).map(([name, least]) => {
    const value = Number(env[name as keyof Limits]);
    if (!Number.isInteger(value) || value < least)
      throw new Error(`${name} expected an integer >= ${least}, got ${env[name as keyof Limits]}`);
    return [name, value] as const;
  });
  return Object.fromEntries(entries) as Record<keyof Limits, number>;
}
