// What is wrong with the MODEL of a command, before anything is started.

import { stat } from "node:fs/promises";
import { dirname } from "node:path";
import { readGgufMetadata } from "../files/gguf/gguf.ts";
import { hubHint } from "../files/hub-name.ts";
import { readTexts } from "../files/model-files.ts";
import { ENCODER_FAMILIES } from "../models/encoder/families.ts";
import { GGUF_ENCODERS } from "../models/gguf/encoders.ts";
import { parseJson } from "../util/json.ts";
import { FileError } from "./args.ts";
import { aboutFile, faultOf } from "./files.ts";
import type { Loading } from "./loading.ts";

const URL_OF_HOST = /^https?:/;
const ENCODERS = new Set([ENCODER_FAMILIES, GGUF_ENCODERS].flatMap((types) => Object.keys(types)));

/** Throws unless `model` is a folder or a GGUF file that exists, or a URL. */
export async function expectModelPath(command: string, model: string): Promise<void> {
  const fail = (got: string, remedy = "") =>
    new FileError(`${command}: MODEL expected a folder, a GGUF file or the URL of one, got ${model}, ${got}${remedy}`);
  const hub = await hubHint(model);
  if (/^(https?|file):/.test(model)) {
    if (hub) throw fail("a page", hub);
    return;
  }
  const found = await stat(model).catch((error: unknown) => {
    throw fail(faultOf(error), hub);
  });
  if (found.isFile() && !/\.gguf$/i.test(model)) throw fail("another file", `: give its folder, ${dirname(model)}`);
}

/**
 * Throws if the model is an encoder, which no command for decoders runs, whatever else is missing. `remedy` is the end of the
 * message. The header of a GGUF file at a URL, which may be large, is not read for that.
 */
export async function refuseEncoder(
  command: string,
  model: string,
  { store }: Pick<Loading, "store">,
  remedy = ": use headwise embed",
): Promise<void> {
  const readGguf = URL_OF_HOST.test(model) ? async () => ({ metadata: new Map() }) : readGgufMetadata;
  let type: unknown;
  try {
    const found = await readTexts(command, model, ["config.json"], readGguf, undefined, store);
    if ("metadata" in found) type = found.metadata.get("general.architecture");
    else type = Object(parseJson(command, "config.json", found.get("config.json") ?? "{}")).model_type;
  } catch (error) {
    throw aboutFile(command, model, error);
  }
  if (typeof type === "string" && ENCODERS.has(type))
    throw new FileError(`${command}: MODEL expected a decoder, got ${model}, an encoder (${type})${remedy}`);
}
