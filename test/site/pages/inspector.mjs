// The inspector, by concern.

import { scenarios as answers } from "../inspector/answers.mjs";
import { scenarios as changes } from "../inspector/changes.mjs";
import { scenarios as files } from "../inspector/files.mjs";
import { scenarios as heads } from "../inspector/heads.mjs";
import { scenarios as rules } from "../inspector/rules.mjs";
import { scenarios as views } from "../inspector/views.mjs";
import { scenarios as weights } from "../inspector/weights.mjs";

export const scenarios = { ...weights, ...changes, ...rules, ...answers, ...heads, ...views, ...files };
export { timed } from "../inspector/typing.mjs";
