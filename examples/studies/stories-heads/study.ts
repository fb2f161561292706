import type { Study } from "../study.ts";
import { measureStoriesHeads } from "./measure.ts";
import { writeStoriesHeads } from "./page.ts";

export const study = { run: measureStoriesHeads, write: writeStoriesHeads } satisfies Study;
