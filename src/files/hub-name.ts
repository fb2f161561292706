import { describe, HeadwiseError } from "../util/errors.ts";

/** The name of a model on Hugging Face, or the address of its page. */
const HUB = /^(?:https:\/\/huggingface\.co\/)?([\w-][\w.-]*\/[\w.-]+?)\/?$/;
const FILE = /\.(gguf|json|safetensors)$/i;

/** Where the files of a model with this name are, as the end of an error; nothing if the text is no such name. */
export function hubHint(text: string): string {
  const name = FILE.test(text) ? undefined : HUB.exec(text)?.[1];
  return name ? `: a model of that name on Hugging Face has the URL https://huggingface.co/${name}/resolve/main/` : "";
}

/** Throws if a URL is that of a model's page, which has no files. */
export function refuseHubPage(where: string, url: string): void {
  const hint = hubHint(url);
  if (hint) throw new HeadwiseError("BAD_FILE", `${where}: source expected files, got ${describe(url)}, a page${hint}`);
}
