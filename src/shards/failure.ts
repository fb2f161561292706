import { HeadwiseError, type HeadwiseErrorCode } from "../util/errors.ts";

/** An error as data, for a message. */
export interface Failure {
  readonly name: string;
  readonly message: string;
  readonly code: HeadwiseErrorCode | undefined;
}

export function failureOf(error: unknown): Failure {
  const { name, message } = error instanceof Error ? error : { name: "Error", message: String(error) };
  return { name, message, code: error instanceof HeadwiseError ? error.code : undefined };
}

/** The error again, of the function that was called: a shard runs others, which its caller does not know. */
export function namedError(
  where: string,
  { name, message, code }: Failure,
  options?: { readonly cause?: unknown },
): Error {
  const text = `${where}: ${message.replace(/^\w+: /, "")}`;
  if (code) return new HeadwiseError(code, text, options);
  const Kind = name === "TypeError" ? TypeError : name === "RangeError" ? RangeError : Error;
  return new Kind(text, options);
}
