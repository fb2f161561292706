import { HeadwiseError } from "../util/errors.ts";
import { builtinModule } from "./builtin.ts";

/** An open file of the host. */
export interface LocalFile {
  stat(): Promise<{ readonly size: number }>;
  read(into: Uint8Array, at: number, length: number, position: number): Promise<{ readonly bytesRead: number }>;
  close(): Promise<void>;
}

interface FileSystem {
  open(path: string | URL): Promise<LocalFile>;
  stat(path: string): Promise<object>;
}

/** Whether the host has something at this path. */
export async function isLocal(path: string): Promise<boolean> {
  const system = builtinModule<FileSystem>("node:fs/promises");
  return Boolean(await system?.stat(path).catch(() => undefined));
}

/** Opens a file of a folder on the host's file system; undefined if there is none of this name. Throws on hosts without one. */
export async function openLocal(where: string, folder: string | URL, name: string): Promise<LocalFile | undefined> {
  const system = builtinModule<FileSystem>("node:fs/promises");
  if (system === undefined)
    throw new HeadwiseError("BAD_FILE", `${where}: source expected a URL or files, since this host has no file system`);
  const path = typeof folder === "string" ? `${folder.replace(/[/\\]?$/, "/")}${name}` : new URL(name, folder);
  try {
    return await system.open(path);
  } catch (cause) {
    if ((cause as { readonly code?: unknown }).code === "ENOENT") return undefined;
    throw new HeadwiseError("BAD_FILE", `${where}: ${String(path)} cannot be opened`, { cause });
  }
}
