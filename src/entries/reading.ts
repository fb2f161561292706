// What `openModel` imports for models that read texts: vectors, ranks, labels, entities, answers.

export { createRunner } from "../retrieval/run.ts";
export { createLookup, loadLookup } from "../retrieval/static.ts";
export { createTasks } from "../retrieval/tasks.ts";
