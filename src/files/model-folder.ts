// The files of a model in a folder: config.json, and safetensors in one file or several.

import { type ByteSource, type BytesOrSource, readRange, toSource } from "./byte-source.ts";
import { joinFiles } from "./join-files.ts";
import { openSafetensorsIndex } from "./safetensors/model-index.ts";
import { openSafetensors } from "./safetensors/safetensors.ts";
import type { TensorEntry, TensorFile } from "./tensor-file.ts";

/** Opens a file by name; undefined if there is none. A server may forbid or not find one that is `optional`. */
export type FindFile = (name: string, optional?: boolean) => Promise<BytesOrSource | undefined>;
export type OpenFile = (name: string) => Promise<ByteSource>;

/** An opened folder: the text of config.json, and the tensors of all files. */
interface OpenedFolder {
  readonly description: string;
  readonly file: ReturnType<typeof joinFiles<string>>;
  readonly tensors: ReadonlyMap<string, TensorEntry>;
}

const CONFIG = "config.json";
const WHOLE = "model.safetensors";
const INDEX = "model.safetensors.index.json";

/** Opens config.json and the safetensors files beside it, of which there may be none with `configAlone`. */
export async function openFolder(
  where: string,
  find: FindFile,
  open: OpenFile,
  configAlone: boolean,
): Promise<OpenedFolder> {
  const text = async (name: string, from: ByteSource) =>
    new TextDecoder().decode(await readRange(`${where}: ${name}`, from, 0, from.size));
  const config = await text(CONFIG, await open(CONFIG));
  const indexed = await find(INDEX, true);
  if (indexed === undefined) {
    const whole = configAlone ? await find(WHOLE, true) : await open(WHOLE);
    if (whole === undefined) return { description: config, file: joinFiles(new Map(), new Map()), tensors: new Map() };
    const file = await openSafetensors(toSource(where, whole));
    return { description: config, file, tensors: file.tensors };
  }
  const index = await openSafetensorsIndex(await text(INDEX, toSource(where, indexed)), open);
  const files = new Map<string, TensorFile<string>>();
  for (const name of new Set(index.tensors.values())) files.set(name, await openSafetensors(await open(name)));
  const tensors = new Map<string, TensorEntry>();
  for (const [name, fileName] of index.tensors) {
    const entry = files.get(fileName)?.tensors.get(name);
    if (entry !== undefined) tensors.set(name, entry);
  }
  return { description: config, file: joinFiles(index.tensors, files), tensors };
}
