import { study as copyTask } from "./copy-task/study.ts";
import { study as gqaConversion } from "./gqa-conversion/study.ts";
import { study as inductionFormation } from "./induction-formation/study.ts";
import { study as latentRanks } from "./latent-ranks/study.ts";
import { study as storiesHeads } from "./stories-heads/study.ts";
import type { Study } from "./study.ts";

/** The studies by the names of their folders. */
export const STUDIES: Readonly<Record<string, Study>> = {
  "copy-task": copyTask,
  "latent-ranks": latentRanks,
  "stories-heads": storiesHeads,
  "induction-formation": inductionFormation,
  "gqa-conversion": gqaConversion,
};
