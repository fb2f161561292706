import { readSafetensors, type SafetensorsFile } from "../../files/safetensors/safetensors.ts";
import { describe, tagOf } from "../../util/errors.ts";

/**
 * The file that a reader of weights was given: bytes, or a file whose tensors are read. `where` is the reader, and `ofGguf`
 * the one for opened GGUF files.
 */
export function readSource(
  where: string,
  source: Uint8Array | ArrayBuffer | SafetensorsFile,
  ofGguf: string,
): SafetensorsFile {
  const { tensors, metadata, readAll } = Object(source) as Partial<SafetensorsFile> & { readonly readAll?: unknown };
  if (tagOf(tensors) !== "Map") return readSafetensors(source as Uint8Array, where);
  if (readAll !== undefined)
    throw new TypeError(
      `${where}: source expected { metadata, tensors } with the tensors that readAll resolves with, got an opened file ` +
        `(of one that openGguf opened, ${ofGguf} reads a layer)`,
    );
  if (tagOf(metadata) !== "Map")
    throw new TypeError(`${where}: source.metadata expected a Map, got ${describe(metadata)}`);
  return { tensors, metadata } as SafetensorsFile;
}
