// The tensors of a GGUF file that divide the frequencies of RoPE.

import type { GgufFile } from "../../files/gguf/gguf.ts";
import { shapeText } from "../../tensor/dtypes.ts";
import { toFloats } from "../../tensor/to-floats.ts";
import { ATTENTION_FACTOR, keysOf } from "./keys.ts";
import { FACTORS, LONG_FACTORS, refusal, SHORT_FACTORS } from "./layer-tensors.ts";

/** Divisors of the frequencies, one for each pair, and in longrope the factor on cos and sin. */
export interface RopeFactors {
  readonly factors: Float32Array;
  readonly attentionFactor?: number;
}

const MOST_FACTORS = 2 ** 15;

/** Those of all layers (Llama 3); undefined if the file has none. */
export async function readRopeFactors(
  where: string,
  file: Pick<GgufFile, "tensors" | "read">,
): Promise<RopeFactors | undefined> {
  return file.tensors.has(FACTORS) ? { factors: await readFactors(where, file, FACTORS) } : undefined;
}

/**
 * Those of longrope (Phi-3): the long ones if a sequence of `maxSeqLen` tokens is longer than the model was trained with; undefined
 * if the file has none.
 */
export async function readLongFactors(
  where: string,
  file: Pick<GgufFile, "metadata" | "tensors" | "read">,
  architecture: string,
  maxSeqLen: number,
): Promise<RopeFactors | undefined> {
  const { tensors, metadata } = file;
  if (!tensors.has(LONG_FACTORS) && !tensors.has(SHORT_FACTORS)) return undefined;
  for (const name of [LONG_FACTORS, SHORT_FACTORS])
    if (!tensors.has(name)) throw refusal(where, name, "in a file with the other factors of longrope", "none");
  const keys = keysOf(where, metadata, architecture, 0);
  const trained = keys.count("rope.scaling.original_context_length", keys.count("context_length"));
  const factors = await readFactors(where, file, maxSeqLen > trained ? LONG_FACTORS : SHORT_FACTORS);
  return { factors, attentionFactor: keys.factor(ATTENTION_FACTOR) ?? 1 };
}

async function readFactors(
  where: string,
  file: Pick<GgufFile, "tensors" | "read">,
  name: string,
): Promise<Float32Array> {
  const { shape = [] } = file.tensors.get(name) ?? {};
  if (shape.length !== 1 || (shape[0] as number) > MOST_FACTORS)
    throw refusal(where, name, `one dimension of at most ${MOST_FACTORS}`, shapeText(shape));
  const factors = toFloats(await file.read(name, where), where).slice();
  const odd = factors.find((factor) => !(factor >= 1 && factor < Infinity));
  if (odd !== undefined) throw refusal(where, name, "finite factors >= 1", String(odd));
  return factors;
}
