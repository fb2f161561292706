// Replays a link on the model of a folder, in a process of its own: prints whether all bits are the same.

import { loadKernels } from "../../../../src/entries/index.ts";
import { decodeRecord, replay } from "../../../../src/entries/inspect.ts";
import { loadModel, models } from "../../../../src/entries/models.ts";

const [folder, link] = process.argv.slice(2) as [string, string];
const kernels = await loadKernels({ models, deterministic: true });
const { same, record } = await replay(await loadModel(kernels, folder), decodeRecord(link));
console.log(same, record.results);
