// npm run bench [-- OPTIONS]: bench/README.md

import { COMPARED_PARTS, compareWith } from "./compare/compare.ts";
import { kernels } from "./kernels/cases.ts";
import { decoders } from "./layers/decoders.ts";
import { host } from "./layers/host.ts";
import { latents } from "./layers/latent.ts";
import { layers } from "./layers/layers.ts";
import { linears } from "./layers/linear.ts";
import { long } from "./layers/long-prompt.ts";
import { masks, ragged } from "./layers/masks.ts";
import { outside } from "./layers/outside.ts";
import { predictions } from "./layers/predictions.ts";
import { products } from "./layers/products.ts";
import { recurrent } from "./layers/recurrent.ts";
import { search } from "./layers/search.ts";
import { statistics } from "./layers/statistics.ts";
import { threads } from "./layers/threads.ts";
import { readCommand, runParts } from "./lib/command.ts";
import { peaks } from "./peaks/machine-peaks.ts";
import { inputsOfLayers } from "./startup/inputs-of-layers.ts";
import { loading } from "./startup/loading.ts";
import { startup } from "./startup/startup.ts";

const parts = [
  startup,
  loading,
  peaks,
  kernels,
  linears,
  products,
  decoders,
  outside,
  predictions,
  host,
  latents,
  recurrent,
  layers,
  masks,
  ragged,
  statistics,
  search,
  threads,
  inputsOfLayers,
  long,
];

const command = readCommand({
  alone: {
    parts: parts.map(({ name }) => name),
    full: { samples: 101, sampleMs: 4, warmupMs: 200, mostMs: 6000 },
    quick: { samples: 21, sampleMs: 3, warmupMs: 80, mostMs: 1000 },
  },
  // Short samples, so that many of them are not interrupted even on a busy machine.
  against: {
    parts: COMPARED_PARTS,
    full: { samples: 301, sampleMs: 1, warmupMs: 200, mostMs: 6000 },
    quick: { samples: 61, sampleMs: 1, warmupMs: 80, mostMs: 1000 },
  },
});
if (command.against === undefined) await runParts(parts, command);
else await compareWith(command.against, command);
