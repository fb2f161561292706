// Where the heads of the model of stories look, and what is lost without them.

import { loadStudyKernels, withModel } from "../evaluate.ts";
import { lookAt } from "./look-at.ts";
import { describeLook, LOOKS, type Look, MODEL, readStories, type Story } from "./looks.ts";
import type { LookResult, StoriesResult } from "./result.ts";
import { askFor, withoutHeads } from "./without.ts";

export async function measure(_cache: URL, report: (line: string) => void): Promise<StoriesResult> {
  const kernels = await loadStudyKernels();
  const stories = readStories();
  const [looked, tested] = [stories.slice(0, stories.length / 2), stories.slice(stories.length / 2)];
  const found = await withModel(kernels, MODEL, (session) => {
    report(`${looked.length} stories: where heads look`);
    const seen = lookAt(session, looked);
    const looks = LOOKS.map((look, i): LookResult => {
      report(`${tested.length} other stories: ${look.name}`);
      const { name, probes } = look;
      const lost = withoutHeads(session, askFor(look, tested), seen.looks[i]!.weights, seen.meanOf);
      return { name, probes, example: exampleOf(look, looked), ...seen.looks[i]!, ...lost };
    });
    return { kinds: seen.kinds, looks };
  });
  kernels.release();
  return { stories: { looked: looked.length, tested: tested.length }, ...found };
}

function exampleOf(look: Look, stories: readonly Story[]): string {
  const found = stories.flatMap((story) =>
    story.probes.filter(({ name }) => look.probes.includes(name)).map(({ at }) => describeLook(look, story, at)),
  );
  return found.reduce((short, text) => (text.length < short.length ? text : short));
}
