import { isLocal } from "../base/platform/host.ts";
import { describe, HeadwiseError } from "../base/util/errors.ts";
import { type ByteSource, type BytesOrSource, readRange, toSource } from "./byte-source.ts";
import { openSafetensorsIndex } from "./safetensors/model-index.ts";
import { openSafetensors } from "./safetensors/safetensors.ts";
import type { TensorEntry, TensorFile } from "./tensor-file.ts";

/** Reads tensors of several files as those of one. */
export function joinFiles<Value>(
  owners: ReadonlyMap<string, string>,
  files: ReadonlyMap<string, TensorFile<Value>>,
): Pick<TensorFile<Value>, "readAll" | "readRows"> {
  const fileOf = (name: string) => files.get(owners.get(name) as string) as TensorFile<Value>;
  return {
    readRows: (name, ...rows) => fileOf(name).readRows(name, ...rows),
    async readAll(names, where) {
      const wanted = new Map<string, string[]>();
      for (const name of names) {
        const owner = owners.get(name) as string;
        const own = wanted.get(owner);
        if (own) own.push(name);
        else wanted.set(owner, [name]);
      }
      const read = Array.from(wanted, ([owner, own]) => files.get(owner)?.readAll(own, where));
      return new Map((await Promise.all(read)).flatMap((tensors) => [...(tensors ?? [])]));
    },
  };
}

// The files of a model in a folder: config.json, and safetensors in one file or several.

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

/** The name of a model on Hugging Face, or the address of its page. */
const HUB = /^(?:https:\/\/huggingface\.co\/)?([\w-][\w.-]*\/[\w.-]+?)\/?$/;
const FILE = /\.(gguf|json|safetensors)$/i;

/** Where the files of a model with this name would be, as the end of an error; nothing if the text is no such name. */
function hintOf(text: string): string {
  const name = FILE.test(text) ? undefined : HUB.exec(text)?.[1];
  const url = `https://huggingface.co/${name}/resolve/main/`;
  return name ? `: a model of that name on Hugging Face would have the URL ${url}` : "";
}

/** `hintOf`, unless the text is a path in a folder of the host, where a mistake in it is likelier. */
export async function hubHint(text: string): Promise<string> {
  const hint = hintOf(text);
  return hint && (await isLocal(text.replace(/\/.*/s, ""))) ? "" : hint;
}

/** Throws if a URL is that of a model's page, which has no files. */
export function refuseHubPage(where: string, url: string): void {
  const hint = hintOf(url);
  if (hint) throw new HeadwiseError("BAD_FILE", `${where}: source expected files, got ${describe(url)}, a page${hint}`);
}
