import { isLocal } from "../platform/local-files.ts";
import { describe, HeadwiseError } from "../util/errors.ts";

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
