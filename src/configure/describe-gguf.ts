// A GGUF file's model, of any architecture: parameters from the shapes of its tensors, and what its layers keep of a sequence from
// its metadata and from which tensors they have.

import type { GgufFile } from "../files/gguf/gguf.ts";
import { type Keys, keysOf } from "../models/gguf/keys.ts";
import { describe, HeadwiseError } from "../util/errors.ts";
import { groupLayers, type LayerMemory, layerOf } from "./layer-memory.ts";

type Header = Pick<GgufFile, "metadata" | "tensors">;

/** What a header says of a model. */
export interface GgufFacts {
  readonly type: string;
  readonly parameters: number;
  /** Without the experts that a token does not take. */
  readonly active: number;
  readonly layers: readonly LayerMemory[];
  /** Tokens that the file states. */
  readonly length: number | undefined;
}

/** Tensors of numbers that were computed from the configuration. */
const COMPUTED = /^rope_(freqs|factors_(long|short))\.weight$/;
/** Tensors that hold one matrix for each expert. */
const EXPERTS = /_exps\.(weight|bias)$/;
const MOST_LAYERS = 10_000;

/** Reads the facts for the public function `where`. */
export function readGgufFacts(where: string, { metadata, tensors }: Header): GgufFacts {
  const type = metadata.get("general.architecture");
  if (typeof type !== "string") {
    const text = `${where}: key "general.architecture" expected the name of one, got ${describe(type)}`;
    throw new HeadwiseError("BAD_FILE", text);
  }
  const keys = keysOf(where, metadata, type, 0);
  const experts = keys.countOrNone("expert_count");
  const taken = experts > 0 ? keys.count("expert_used_count") / experts : 1;
  let [parameters, active] = [0, 0];
  for (const [name, { shape }] of tensors) {
    if (COMPUTED.test(name)) continue;
    const size = shape.reduce((a, b) => a * b, 1);
    parameters += size;
    active += EXPERTS.test(name) ? size * taken : size;
  }
  const count = keys.count("block_count");
  if (count > MOST_LAYERS) keys.fail("block_count", `at most ${MOST_LAYERS}`, count);
  const shared = keys.countOrNone("attention.shared_kv_layers");
  const layers = Array.from({ length: count }, (_, i) =>
    i >= count - shared
      ? { ...layerOf(0, 0), kind: "shared" as const }
      : readLayer(keysOf(where, metadata, type, i), i, tensors),
  );
  const length = keys.countOrNone("context_length") || undefined;
  return { type, parameters, active: Math.round(active), layers: groupLayers(layers), length };
}

/** What layer `i` keeps. A window is known where the file says which layers have it. */
function readLayer(keys: Keys, i: number, tensors: Header["tensors"]) {
  const shapeOf = (name: string) => tensors.get(`blk.${i}.${name}.weight`)?.shape;
  const latent = keys.countOrNone("attention.kv_lora_rank");
  if (latent > 0 && shapeOf("attn_kv_a_mqa"))
    return { ...layerOf(latent + keys.countOrNone("rope.dimension_count"), 0), kind: "latent" as const };
  const attends = shapeOf("attn_k") ?? shapeOf("attn_qkv");
  const slides = keys.raw("attention.sliding_window_pattern");
  const isWindowed = Array.isArray(slides) && Boolean(slides[i]);
  const window = isWindowed ? keys.count("attention.sliding_window") : undefined;
  return layerOf(attends ? keyValueNumbers(keys) : 0, stateOf(keys, shapeOf), window);
}

/** Numbers of keys and values of a token. */
function keyValueNumbers(keys: Keys): number {
  const heads = keys.count("attention.head_count");
  const headDim = keys.countOrNone("attention.key_length") || keys.count("embedding_length") / heads;
  const valueDim = keys.countOrNone("attention.value_length") || headDim;
  return keys.countOrNone("attention.head_count_kv", heads) * (headDim + valueDim);
}

/** Numbers of the states of Mamba and DeltaNet, of short convolutions, and of RWKV; 0 without any of them. */
function stateOf(keys: Keys, shapeOf: (name: string) => readonly number[] | undefined): number {
  const before = ([channels = 0, kernel = 1]: readonly number[] = []) => channels * (kernel - 1);
  const conv = shapeOf("ssm_conv1d");
  if (conv) return before(conv) + keys.count("ssm.inner_size") * keys.count("ssm.state_size");
  if (shapeOf("time_mix_receptance")) return keys.count("embedding_length") * (keys.count("wkv.head_size") + 2);
  return before(shapeOf("shortconv.conv"));
}
