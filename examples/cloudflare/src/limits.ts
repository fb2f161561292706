import type { Conversation } from "./conversation.ts";

/** The variables, and the least that each may be. */
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

/** What wrangler.jsonc binds: the variables are numbers, or text where they come from a command line. */
export interface Env extends Readonly<Record<keyof Limits, number | string>> {
  readonly CONVERSATIONS: DurableObjectNamespace<Conversation>;
}

/** Throws for a variable that is no integer, or too small: a limit that does not hold is worse than none. */
export function readLimits(env: Env): Limits {
  const entries = Object.entries(LEAST).map(([name, least]) => {
    const value = Number(env[name as keyof Limits]);
    if (!Number.isInteger(value) || value < least)
      throw new Error(`${name} expected an integer >= ${least}, got ${env[name as keyof Limits]}`);
    return [name, value] as const;
  });
  return Object.fromEntries(entries) as Record<keyof Limits, number>;
}
