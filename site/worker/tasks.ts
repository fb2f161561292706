// The tasks of the engine, by the names that pages call them by.

import { configureTask, describeTask, measureLayerTask } from "./configure.ts";
import { diagnoseTask } from "./diagnose.ts";
import { embedOneTask, embedTask } from "./embed.ts";
import { detectTask, patternsTask } from "./gallery.ts";
import { attendTask, studyTask } from "./inspect.ts";
import { figureTask } from "./inspect-figure.ts";
import { stagesTask } from "./inspect-stages.ts";
import { measureTask } from "./inspect-statistics.ts";
import { unknownTask } from "./inspect-text.ts";
import { whyTask } from "./inspect-why.ts";
import { loadTask } from "./load.ts";
import type { StoryGiven } from "./story.ts";
import type { tutorialTask } from "./tutorial.ts";
import { variantBytesTask, variantTimesTask } from "./variants.ts";
import { chatTask, restoreTask, writeTask } from "./write.ts";

export const TASKS = {
  /** Loads a model in the place of the one before. */
  load: loadTask,
  /** Continues a text, or answers in a conversation; goes on with the session of the last visit. */
  write: writeTask,
  chat: chatTask,
  restore: restoreTask,
  /** The words of a text that the model does not know. */
  unknown: unknownTask,
  /** Vectors of lines, their cosines, and how they join to clusters; the vector of one text. */
  embed: embedTask,
  embedOne: embedOneTask,
  /** Examines this engine. */
  diagnose: diagnoseTask,
  /** Where the heads that answer look, what comes next with and without heads, and what each carries alone. */
  story: async (given: StoryGiven) => (await import("./story.ts")).storyTask(given), // of the first page alone
  /** The bytes of the caches of all variants, and their times. */
  variantBytes: variantBytesTask,
  variantTimes: variantTimesTask,
  /** Sizes of a model for a budget. */
  configure: configureTask,
  /** What models cost: a layer that is built and timed, and what files say. */
  measureLayer: measureLayerTask,
  describe: describeTask,
  /** Attention of all heads for a text, with changes; what each head does there; why it looked at a token, and in which steps; a figure. */
  attend: attendTask,
  study: studyTask,
  why: whyTask,
  stages: stagesTask,
  figure: figureTask,
  /** Statistics of all heads in a long text. */
  measure: measureTask,
  /** What every head of a model of the site does; the maps of all its heads for a text; the figures of the tutorials. */
  detect: detectTask,
  patterns: patternsTask,
  tutorial: async (given: Parameters<typeof tutorialTask>[0]) => (await import("./tutorial.ts")).tutorialTask(given),
};
