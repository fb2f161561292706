// A file of weights that is read in ranges: from a server, and from a Blob as a file input gives one. URLs may be relative to
// the page.

import { run } from "./harness.mjs";
import { headwise, models, weights } from "./package-files.mjs";

const { openSafetensors, readSafetensors, toFloats, urlSource } = weights;

/** Types of the model of this repository, by its URL relative to the page. */
async function loadRelative(...urls) {
  const kernels = await headwise.loadKernels({ models: models.models });
  const types = [];
  for (const url of urls) types.push((await models.loadModel(kernels, url)).type);
  kernels.release();
  return types;
}

run(async () => {
  const url = new URL("model/model.safetensors", import.meta.url);
  const bytes = new Uint8Array(await (await fetch(url)).arrayBuffer());
  const { tensors: whole } = readSafetensors(bytes);
  const same = (read) =>
    [...whole].filter(([name, tensor]) => {
      const expected = toFloats(tensor);
      return toFloats(read.get(name)).every((value, i) => Object.is(value, expected[i]));
    }).length;
  const ofServer = await openSafetensors(await urlSource(url));
  const ofBlob = await openSafetensors(new Blob([bytes]));
  const { pathname } = new URL("model/", location.href);
  return {
    relative: await loadRelative("model", "./model/", pathname),
    relativeFile: same(await (await openSafetensors(await urlSource("model/model.safetensors"))).readAll(whole.keys())),
    tensors: whole.size,
    server: same(await ofServer.readAll(whole.keys())),
    blob: same(await ofBlob.readAll(whole.keys())),
  };
});
