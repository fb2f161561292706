// A file of weights that is read in ranges: from a server, and from a Blob as a file input gives one.

import { run } from "./harness.mjs";
import { weights } from "./package-files.mjs";

const { openSafetensors, readSafetensors, toFloats, urlSource } = weights;

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
  return {
    tensors: whole.size,
    server: same(await ofServer.readAll(whole.keys())),
    blob: same(await ofBlob.readAll(whole.keys())),
  };
});
