// The tasks of the engine, by the names that pages call them by. What only some pages need is read when its first task is called:
// pages.ts says which of these a page calls at its first visit.

import type { Call } from "./call.ts";
import { unknownTask } from "./inspect-text.ts";
import { loadTask } from "./load.ts";

/** A task of a module that is read with its first call. */
const later =
  <G, R>(read: () => Promise<(given: G, call: Call) => R>) =>
  async (given: G, call: Call): Promise<Awaited<R>> =>
    await (await read())(given, call);

export const TASKS = {
  /** Loads a model in the place of the one before. */
  load: loadTask,
  /** The words of a text that the model does not know. */
  unknown: unknownTask,
  /** Continues a text, or answers in a conversation; goes on with the session of the last visit. */
  write: later(async () => (await import("./write.ts")).writeTask),
  chat: later(async () => (await import("./write.ts")).chatTask),
  restore: later(async () => (await import("./write.ts")).restoreTask),
  /** Vectors of lines, their cosines, and how they join to clusters; the vector of one text. */
  embed: later(async () => (await import("./embed.ts")).embedTask),
  embedOne: later(async () => (await import("./embed.ts")).embedOneTask),
  /** How fast the model is here. */
  speed: later(async () => (await import("./speed.ts")).speedTask),
  /** Examines this engine. */
  diagnose: later(async () => (await import("./diagnose.ts")).diagnoseTask),
  /** Where the heads that answer look, what comes next with and without heads, and what each carries alone. */
  story: later(async () => (await import("./story.ts")).storyTask),
  /** The bytes of the caches of all variants, and their times. */
  variantBytes: later(async () => (await import("./variants.ts")).variantBytesTask),
  variantTimes: later(async () => (await import("./variants.ts")).variantTimesTask),
  /** Sizes of a model for a budget. */
  configure: later(async () => (await import("./configure.ts")).configureTask),
  /** What models cost: a layer that is built and timed, and what files say. */
  measureLayer: later(async () => (await import("./configure.ts")).measureLayerTask),
  describe: later(async () => (await import("./configure.ts")).describeTask),
  /** Attention of all heads for a text, with changes; what each head does there; why it looked at a token. */
  attend: later(async () => (await import("./inspect-page.ts")).attendTask),
  study: later(async () => (await import("./inspect-page.ts")).studyTask),
  why: later(async () => (await import("./inspect-page.ts")).whyTask),
  /** What each head carries of a next token; what the model would say at each layer; the stages of a cell; a figure. */
  effects: later(async () => (await import("./inspect-page.ts")).effectsTask),
  lens: later(async () => (await import("./inspect-page.ts")).lensTask),
  stages: later(async () => (await import("./inspect-page.ts")).stagesTask),
  figure: later(async () => (await import("./inspect-figure.ts")).figureTask),
  /** Statistics of all heads in a long text. */
  measure: later(async () => (await import("./inspect-statistics.ts")).measureTask),
  /** What every head of a model of the site does; the maps of all its heads for a text; the figures of the tutorials. */
  detect: later(async () => (await import("./gallery.ts")).detectTask),
  patterns: later(async () => (await import("./gallery.ts")).patternsTask),
  tutorial: later(async () => (await import("./tutorial.ts")).tutorialTask),
};
