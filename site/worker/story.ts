// The story of the start page, of any text: what does not depend on the heads that are off is kept for the next question.

import { loadedModel, onRelease } from "./load.ts";
import { type HeadPlace, type Read, readStory, type Story, tellStory } from "./story-run.ts";

let read: Read | undefined;
onRelease(() => {
  read = undefined;
});

export interface StoryGiven {
  readonly text: string;
  readonly off: readonly HeadPlace[];
}

export async function storyTask({ text, off }: StoryGiven): Promise<Story> {
  const { model, tokenizer } = loadedModel();
  if (read?.text !== text) read = readStory(model, tokenizer, text);
  return tellStory(model, tokenizer, read, off);
}
