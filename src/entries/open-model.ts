import type { ModelTask, OpenedModel } from "../open/model.ts";
import type { OpenModelOptions } from "../open/open-model.ts";
import type { OpenSource } from "../open/source.ts";

/**
 * Opens a model: finds its files and what they are, loads kernels, weights, tokenizer and template, and chooses formats and threads
 * that suit the model, this host and its memory (`choices`). GGUF files and folders of safetensors are read, of decoders, encoders
 * (folders of sentence-transformers among them) and models with two halves. Tokenizers need the package `@huggingface/tokenizers`,
 * conversations also `@huggingface/jinja`. What it needs besides is imported when it is called: programs that do not call it do not
 * load it.
 * @param source A URL of a GGUF file or of a folder; a path, on hosts with files; "owner/name" of a model on a hub, or
 * "owner/name:Q4_K_M" for one of its quantisations; `File`s, a `Blob` or bytes; or what opens files by name.
 * @throws TypeError or RangeError naming the argument. HeadwiseError `BAD_FILE` for files that are not found, not read or of a model
 * that is not known, `OUT_OF_MEMORY` with what would fit, `NO_LIBRARY` with the package to install; those of `loadKernels`. The
 * signal's reason.
 * @example
 * import { openModel } from "headwise";
 * using model = await openModel("model/stories/stories.gguf");
 * const text = await model.text("the cat sat on the mat because it was", { maxTokens: 1 }).text;
 * console.log(text.trim(), model.can.join(), model.choices.weights.value); // soft text stored
 */
export async function openModel<Task extends ModelTask = ModelTask>(
  source: OpenSource,
  options: OpenModelOptions<Task> = {},
): Promise<OpenedModel<Task>> {
  const { open } = await import("./open.ts");
  return open(source, options);
}
