// The tasks that the inspector calls at every visit, in one module: they share most of what they are made of.

export { attendTask, studyTask } from "./inspect.ts";
export { effectsTask } from "./inspect-effects.ts";
export { lensTask } from "./inspect-lens.ts";
export { stagesTask } from "./inspect-stages.ts";
export { whyTask } from "./inspect-why.ts";
