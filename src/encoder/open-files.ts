// The files of encoders and of models with two halves. Some encoders were written by programs that name the gains and biases of
// norms differently; models with two halves are not read of GGUF.

import { type ModelFiles, type OpenGguf, openModelFiles } from "../files/model-files.ts";
import type { StoredTensor } from "../tensor/dtypes.ts";
import { HeadwiseError } from "../util/errors.ts";

const newName = (name: string) => name.replace(/\.gamma$/, ".weight").replace(/\.beta$/, ".bias");

const refuseGguf: OpenGguf = async (where) => {
  const rule = "config.json and safetensors";
  throw new HeadwiseError(
    "BAD_FILE",
    `${where}: source expected ${rule}, got a GGUF file, or bytes without config.json`,
  );
};

/** `openModelFiles` for safetensors alone. */
export const openSafetensorsFiles: typeof openModelFiles = (where, source, _openGguf, ...rest) =>
  openModelFiles(where, source, refuseGguf, ...rest);

/** `openModelFiles` with today's names of tensors. */
export async function openEncoderFiles(...given: Parameters<typeof openModelFiles>): Promise<ModelFiles> {
  const folder = await openModelFiles(...given);
  const { file, tensors } = folder;
  const oldNames = new Map(Array.from(tensors.keys(), (name) => [newName(name), name]));
  const oldName = (name: string) => oldNames.get(name) as string;
  return {
    ...folder,
    tensors: new Map(Array.from(tensors, ([name, entry]) => [newName(name), entry])),
    file: {
      readRows: (name, ...rows) => file.readRows(oldName(name), ...rows),
      async readAll(names, ...rest) {
        const wanted = Array.from(names);
        const found = await file.readAll(wanted.map(oldName), ...rest);
        return new Map(wanted.map((name) => [name, found.get(oldName(name)) as StoredTensor]));
      },
    },
  };
}
