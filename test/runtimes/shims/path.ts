// node:path of the conformance runner.

export const join = (...parts: readonly string[]): string => parts.join("/");
