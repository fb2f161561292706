// What models cost on this device: measured layers, and costs read from files of models.

import {
  type Configuration,
  type ConfigureOptions,
  configure,
  describeFiles,
  describeModel,
  type LayerMeasurement,
  type ModelCost,
  measureLayer,
} from "headwise/configure";
import { latent } from "headwise/latent";
import { models } from "headwise/models";
import { quantized } from "headwise/quantized";
import { loadKernels } from "headwise/threads";
import type { Call } from "./call.ts";

/** The sizes of a model for a budget; large budgets take some hundred ms. */
export function configureTask(given: ConfigureOptions): Configuration {
  return configure(given);
}

/** Builds one layer of a configuration and times it beside the roofline of one thread. */
export async function measureLayerTask({
  configuration,
}: {
  readonly configuration: Configuration;
}): Promise<LayerMeasurement> {
  const kernels = await loadKernels({ threads: 1, models, quantized, latent });
  try {
    return await measureLayer(kernels, configuration);
  } finally {
    kernels.release();
  }
}

/** What a model costs: of a URL only the header of a GGUF file, or config.json, is read. */
export async function describeTask(
  { source, seqLen }: { readonly source: string | File; readonly seqLen: number },
  { signal }: Call,
): Promise<ModelCost> {
  const options = { seqLen, format: "f16" } as const;
  if (typeof source !== "string") {
    if (source.name.endsWith(".json")) return describeModel(await source.text(), options);
    return await describeFiles(source, { ...options, signal });
  }
  const url = filesOf(source);
  if (!/\.json($|\?)/.test(url)) return await describeFiles(url, { ...options, signal });
  const answer = await fetch(url, { signal }).catch((error: unknown) => {
    throw signal.aborted ? error : new Error(`${url} expected an answer, got ${error}`);
  });
  if (!answer.ok) throw new Error(`${url} answered ${answer.status}`, { cause: { status: answer.status } });
  return describeModel(await answer.text(), options);
}

/** The URL of the files of a model, of that of its page on Hugging Face; any other is given back. */
export function filesOf(url: string): string {
  const [, model, revision = "main/"] =
    /^(https:\/\/huggingface\.co\/[\w.-]+\/[\w.-]+)\/?(?:(?:tree|blob)\/([^?#]*))?$/.exec(url) ?? [];
  return model === undefined ? url : `${model}/resolve/${revision}`;
}
