// The tasks of the engine, by the names that pages call them by.

import { loadTask } from "./load.ts";

export const TASKS = {
  /** Loads a model in the place of the one before. */
  load: loadTask,
};
