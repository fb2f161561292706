// How commands load whole models: what they read of URLs is kept for the next time, and a terminal shows how far they are.

import { homedir } from "node:os";
import { isAbsolute, join } from "node:path";
import { createFolderStore, type ModelStore } from "../files/model-store.ts";
import { createProgress, type ProgressStream } from "./progress.ts";
import { sizeText } from "./text.ts";

/** Options of the library's loaders, and what is called once the model is loaded or refused. */
export interface Loading {
  readonly store: ModelStore | undefined;
  readonly onProgress: (done: number, all: number) => void;
  readonly end: () => void;
}

/** The values of `LOAD_OPTIONS`. */
interface LoadValues {
  readonly "no-store": boolean;
  readonly quiet: boolean;
}

/** How the `model` of a command is loaded. Progress is written to `stderr` if it is a terminal. */
export function readLoading(
  model: string,
  { "no-store": noStore, quiet }: LoadValues,
  stderr: ProgressStream = process.stderr,
): Loading {
  // Without a terminal, lines about a download would stand among the remarks of the command.
  const progress = createProgress(stderr.isTTY && !quiet ? stderr : undefined, () => performance.now());
  return {
    store: storeOf(model, noStore),
    onProgress: (done, all) => progress.at(done / all, `${sizeText(done)} of ${sizeText(all)}  ${model}`),
    end: () => progress.end(),
  };
}

/** The user's store, for a model at a URL. */
export function storeOf(model: string, noStore: boolean): ModelStore | undefined {
  if (noStore || !/^https?:/.test(model)) return undefined;
  return createFolderStore(storeFolder(process.env, process.platform, homedir()));
}

/** The folder of headwise among the caches of a user, by the conventions of the system. */
export function storeFolder(env: Readonly<Record<string, string | undefined>>, platform: string, home: string): string {
  const { LOCALAPPDATA, XDG_CACHE_HOME = "" } = env;
  if (platform === "win32") return join(LOCALAPPDATA || join(home, "AppData", "Local"), "headwise");
  if (platform === "darwin") return join(home, "Library", "Caches", "headwise");
  // The XDG Base Directory Specification says to ignore a relative path.
  return join(isAbsolute(XDG_CACHE_HOME) ? XDG_CACHE_HOME : join(home, ".cache"), "headwise");
}
