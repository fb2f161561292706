// npm run bench [-- OPTIONS]: bench/README.md

import { kernels } from "./kernels/cases.ts";
import { host } from "./layers/host.ts";
import { latents } from "./layers/latent.ts";
import { layers } from "./layers/layers.ts";
import { linears } from "./layers/linear.ts";
import { long } from "./layers/long-prompt.ts";
import { threads } from "./layers/threads.ts";
import { readCommand, runParts } from "./lib/command.ts";
import { peaks } from "./peaks/machine-peaks.ts";
import { startup } from "./startup/startup.ts";

const parts = [startup, peaks, kernels, linears, host, latents, layers, threads, long];

const command = readCommand(
  parts.map(({ name }) => name),
  {
    full: { samples: 101, sampleMs: 4, warmupMs: 200, mostMs: 6000 },
    quick: { samples: 21, sampleMs: 3, warmupMs: 80, mostMs: 1000 },
  },
);
if (command.positionals.length > 0) throw new TypeError(`bench: options expected, got ${command.positionals[0]}`);
await runParts(parts, command);
