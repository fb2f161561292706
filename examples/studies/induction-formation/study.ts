import type { Study } from "../study.ts";
import { measureInductionFormation } from "./measure.ts";
import { writeInductionFormation } from "./page.ts";

export const study = { run: measureInductionFormation, write: writeInductionFormation } satisfies Study;
