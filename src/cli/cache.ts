// `headwise cache`: what is kept of URLs.

import { createFolderStore, defaultStoreFolder, type KeptUrl, listStore } from "../entries/models.ts";
import { readArguments, UsageError } from "./args.ts";
import { plainText, print, sizeText } from "./terminal.ts";

const HELP = `headwise cache
headwise cache check
headwise cache remove TEXT...
headwise cache remove --all

Lists what is kept of the URLs of models, in the folder of headwise among the user's caches. check reads all of it and compares it with
its SHA-256: what has changed is requested again by the next reader, and the exit code is 1. remove forgets the URLs that contain one of
the TEXTs, such as the name of a model.

  --all               remove all
  --json              print JSON`;

const OPTIONS = {
  all: { type: "boolean", default: false },
  json: { type: "boolean", default: false },
  help: { type: "boolean", short: "h", default: false },
} as const;

/** `headwise cache`. */
export async function cache(args: string[]): Promise<void> {
  const { values, positionals } = readArguments("cache", args, OPTIONS);
  if (values.help) return print(HELP);
  const [action = "list", ...texts] = positionals;
  if (!["list", "check", "remove"].includes(action))
    throw new UsageError(`cache: expected list, check or remove, got ${action}`);
  if (action === "remove" ? values.all === texts.length > 0 : values.all || texts.length > 0) {
    const rule = action === "remove" ? "parts of URLs, or --all" : "nothing";
    const got = values.all ? ["--all", ...texts].join(" ") : texts.join(" ");
    throw new UsageError(`cache: ${action} expected ${rule}, got ${got || "neither"}`);
  }
  const folder = defaultStoreFolder();
  if (folder === undefined) throw new Error("cache: expected a host with a home folder and files, got another");
  const all = await listStore(folder, { check: action === "check" });
  const isWanted = ({ url }: KeptUrl) => values.all || action !== "remove" || texts.some((text) => url.includes(text));
  const found = all.filter(isWanted);
  const store = createFolderStore(folder);
  if (action === "remove") for (const { url } of found) await store.remove(url);
  if (action === "check" && found.some(({ damaged }) => damaged)) process.exitCode = 1;
  if (values.json) return print(JSON.stringify({ folder, action, files: found }, null, 2));
  // What servers do not have takes no room, and nobody asks for it.
  const files = found.filter(({ size }) => size > 0);
  for (const file of files) print(lineOf(file));
  const bytes = files.reduce((sum, file) => sum + file.bytes, 0);
  const done = { list: "in", check: "in", remove: "removed from" }[action as "list"];
  console.error(`${files.length} ${files.length === 1 ? "file" : "files"}, ${sizeText(bytes)}, ${done} ${folder}`);
}

function lineOf({ url, size, bytes, damaged }: KeptUrl): string {
  const part = bytes === size ? "" : ` of ${sizeText(size)}`;
  const state = damaged === undefined ? "" : damaged === 0 ? "  whole" : `  ${damaged} pieces have changed`;
  return `${sizeText(bytes)}${part}${state}  ${plainText(url)}`;
}
