import { describe } from "./errors.ts";

/** Throws `TypeError` unless `signal` is an AbortSignal (of any realm). */
export function expectSignal(where: string, signal: AbortSignal): void {
  if (typeof signal !== "object" || signal === null || typeof signal.throwIfAborted !== "function")
    throw new TypeError(`${where}: signal expected an AbortSignal, got ${describe(signal)}`);
}
