import type { Study } from "./study.ts";

/** The studies by the names of their folders. */
export const STUDIES: Readonly<Record<string, Study>> = {};
