import { study as copyTask } from "./copy-task/study.ts";
import { study as latentRanks } from "./latent-ranks/study.ts";
import type { Study } from "./study.ts";

/** The studies by the names of their folders. */
export const STUDIES: Readonly<Record<string, Study>> = { "copy-task": copyTask, "latent-ranks": latentRanks };
