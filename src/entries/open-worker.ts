/**
 * The script of the worker of `openModel` with the option `worker`. The package has it inlined; as a file it is for pages whose content
 * security policy forbids workers made from inlined source.
 */

import { findWorkerPort } from "../base/platform/workers.ts";
import type { FromWorker } from "../open/remote.ts";
import { RemoteServer } from "../open/serve-remote.ts";
import { latent } from "./latent.ts";
import { models } from "./models.ts";
import { quantized } from "./quantized.ts";
import * as reading from "./reading.ts";
import { loadKernels } from "./threads.ts";

const port = findWorkerPort<unknown, FromWorker>();
const host = {
  ...{ loadKernels, models, quantized },
  latent: async () => latent,
  reading: async () => reading,
  fetch: (url: string, init: RequestInit) => fetch(url, init),
};
const server = new RemoteServer(host, (message, transfer) => port.postMessage(message, transfer));
port.onmessage = ({ data }) => server.receive(data);
