import type { Study } from "../study.ts";
import { drawFigures } from "./figures.ts";
import { measure } from "./measure.ts";
import { writePage } from "./page.ts";

export const study = { measure, drawFigures, writePage } satisfies Study;
