// What `openModel` of the default entry imports when it is called: kernels with threads, and all that models need.

import { findHost, type Scope } from "../base/platform/workers.ts";
import type { OpenedModel } from "../open/model.ts";
import { type OpenHost, type OpenModelOptions, openOn } from "../open/open-model.ts";
import type { OpenSource } from "../open/source.ts";
import { models } from "./models.ts";
import { quantized } from "./quantized.ts";
import { loadKernels } from "./threads.ts";

const host: OpenHost = {
  ...{ loadKernels, models, quantized },
  latent: async () => (await import("./latent.ts")).latent,
  reading: () => import("./reading.ts"),
  fetch: (url, init) => fetch(url, init),
  async workers(createWorker) {
    const source = createWorker ? "" : (await import("./open-worker-text.ts")).workerSource;
    return findHost(globalThis as Scope, source, createWorker);
  },
};

/** Opens a model on this host. */
export const open = (source: OpenSource, options: OpenModelOptions): Promise<OpenedModel> =>
  openOn(host, source, options);
