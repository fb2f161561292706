// Where the heads of the model of stories look, and what is lost without them.

import { loadKernels } from "headwise";
import { createSession, loadModel, models } from "headwise/models";
import { lookAt } from "./look-at.ts";
import { describeLook, LOOKS, type Look, MODEL, readStories, type Story } from "./looks.ts";
import type { StoriesHeads } from "./result.ts";
import { askFor, withoutHeads } from "./without.ts";

export async function measureStoriesHeads(_cache: URL, report: (line: string) => void): Promise<StoriesHeads> {
  const kernels = await loadKernels({ deterministic: true, models });
  const session = createSession(await loadModel(kernels, MODEL), { maxSeqLen: 192 });
  const stories = readStories();
  const [looked, tested] = [stories.slice(0, stories.length / 2), stories.slice(stories.length / 2)];
  report(`${looked.length} stories: where heads look`);
  const seen = lookAt(session, looked);
  const looks = LOOKS.map((look, i) => {
    report(`${tested.length} other stories: ${look.name}`);
    const example = exampleOf(look, looked);
    return {
      name: look.name,
      probes: look.probes,
      example,
      ...seen.looks[i]!,
      ...withoutHeads(session, askFor(look, tested), seen.looks[i]!.weights, seen.meanOf),
    };
  });
  kernels.release();
  return { stories: { looked: looked.length, tested: tested.length }, kinds: seen.kinds, looks };
}

function exampleOf(look: Look, stories: readonly Story[]): string {
  const found = stories.flatMap((story) =>
    story.probes.filter(({ name }) => look.probes.includes(name)).map(({ at }) => describeLook(look, story, at)),
  );
  return found.reduce((short, text) => (text.length < short.length ? text : short));
}
