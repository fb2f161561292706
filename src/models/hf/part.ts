/** An attention of an encoder-decoder model: self-attention of the encoder or decoder, or the decoder's cross-attention. */
export type HfPart = "encoder" | "decoder" | "cross";

export const PARTS = ["encoder", "decoder", "cross"] as const;

/** Modules of cross-attention, as models name them. */
const CROSS =
  /^(encoder_attn|encoder_attention|EncDecAttention|crossattention|cross_attn|cross_attention|encoder_decoder_attention|multihead_attn)$/;

/** The part that the names of tensors with this prefix belong to, if the prefix names one. */
export function partOfPrefix(prefix: string): HfPart | undefined {
  const modules = prefix.split(".");
  if (modules.some((name) => CROSS.test(name))) return "cross";
  return modules.find((name): name is "encoder" | "decoder" => name === "encoder" || name === "decoder");
}

/** The index of the layer in a prefix: its first number, as in "decoder.block.3.layer.1.". */
export function layerOfPrefix(prefix: string): number | undefined {
  const number = prefix.split(".").find((name) => /^\d+$/.test(name));
  return number === undefined ? undefined : Number(number);
}

/** The tower of a model of several modalities that a prefix names. */
export function towerOfPrefix(prefix: string): "text" | "vision" | undefined {
  for (const name of prefix.split(".")) {
    if (/^(text|language)(_model)?$/.test(name)) return "text";
    if (/^(vision|visual|image)(_|$)/.test(name)) return "vision";
  }
  return undefined;
}
