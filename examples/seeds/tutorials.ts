// The five tutorials, by number.

import { run as run000 } from "./000.ts";
import { run as run001 } from "./001.ts";
import { run as run002 } from "./002.ts";
import { run as run003 } from "./003.ts";
import { run as run004 } from "./004.ts";
import type { Tutorial } from "./layers.ts";

export const TUTORIALS: Readonly<Record<string, { readonly title: string; readonly run: Tutorial }>> = {
  "000": { title: "Build Your First LLM from Scratch, part 4, section 5: multi-head attention", run: run000 },
  "001": { title: "tiny-llm, step 06 of 16: multi-head attention", run: run001 },
  "002": { title: "Multi-head attention, a component of transformers", run: run002 },
  "003": { title: "L04: multi-head attention", run: run003 },
  "004": { title: "Multi-head attention, phase 7: build it", run: run004 },
};
