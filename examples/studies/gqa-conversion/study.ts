import type { Study } from "../study.ts";
import { measureGqaConversion } from "./measure.ts";
import { writeGqaConversion } from "./page.ts";

export const study = { run: measureGqaConversion, write: writeGqaConversion } satisfies Study;
