import { measureGqaConversion } from "./gqa-conversion/measure.ts";
import { writeGqaConversion } from "./gqa-conversion/page.ts";
import { measureInductionFormation } from "./induction-formation/measure.ts";
import { writeInductionFormation } from "./induction-formation/page.ts";
import { measureStoriesHeads } from "./stories-heads/measure.ts";
import { writeStoriesHeads } from "./stories-heads/page.ts";
import type { Study } from "./study.ts";

/** The studies by the names of their folders. */
export const STUDIES: Readonly<Record<string, Study>> = {
  "gqa-conversion": { run: measureGqaConversion, write: writeGqaConversion },
  "induction-formation": { run: measureInductionFormation, write: writeInductionFormation },
  "stories-heads": { run: measureStoriesHeads, write: writeStoriesHeads },
};
