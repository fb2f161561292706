// A decoder that copies from its own context, with weights that were written by hand: a head that looks at the previous token, and
// an induction head that finds what the first one wrote (Elhage et al. 2021, Olsson et al. 2022). Two layers of one head, no MLP.

import type { Tensor } from "headwise/core";
import { writeSafetensors } from "headwise/weights";

/** Tokens. 0 begins every text; the others have no meaning. */
export const VOCABULARY = 21;

const DIM = 3 * VOCABULARY + 1;

// What the numbers of the residual mean: the token, the one before it, what comes next, each as one of 21 numbers that is 1, and a 1.
const [TOKEN, PREVIOUS, NEXT, ONE] = [0, VOCABULARY, 2 * VOCABULARY, 3 * VOCABULARY];

// With this base, RoPE rotates the pair of components i and i + 32 by 10^-i a position: the first three pairs distinguish positions, and
// from the eighth on, pairs do not turn visibly.
const THETA = 1e32;
const POSITIONS = [0, 1, 2];
const STILL = 8;

/** Factor on scores. What a head looks for is at least a fifth of it above all else, and e^-80 is nothing beside 1 in float32. */
const SHARP = 400;

const CONFIG = {
  ...{ model_type: "llama", hidden_size: DIM, num_attention_heads: 1, num_key_value_heads: 1, head_dim: DIM },
  ...{ num_hidden_layers: 2, intermediate_size: 0, vocab_size: VOCABULARY, max_position_embeddings: 512 },
  ...{ rope_theta: THETA, rms_norm_eps: 1e-12, tie_word_embeddings: false },
};

/** A matrix [rows, DIM] of zeros but for some entries. */
function matrix(rows: number, entries: readonly (readonly [row: number, column: number, value: number])[]): Tensor {
  const data = new Float32Array(rows * DIM);
  for (const [row, column, value] of entries) data[row * DIM + column] = value;
  return { data, shape: [rows, DIM] };
}

/** 1 at each of `VOCABULARY` places: copies the numbers of `from` to `to`. */
const copies = (to: number, from: number, value = 1) =>
  Array.from({ length: VOCABULARY }, (_, token) => [to + token, from + token, value] as const);

/** The files of the model, as `loadModel` takes them. */
export function inductionByHand(): (name: string) => Uint8Array | undefined {
  // Norms divide by the root of the mean square. Rows have a 1 for the token and the ONE, in layer 1 one for the previous token, and
  // gains take the division back.
  const gain = (ones: number): Tensor => ({ data: new Float32Array(DIM).fill(Math.sqrt(ones / DIM)), shape: [DIM] });
  // Scores are divided by the root of the head's size.
  const strong = Math.sqrt(SHARP * Math.sqrt(DIM));
  const layers = {
    // The score of key j, seen from i, is SHARP·Σ cos((i - j - 1)·10^-p) over the pairs p of POSITIONS. It is largest for the
    // previous token; for all others up to 512 tokens away the sum is at least 0.2 less.
    0: {
      q: matrix(DIM, [
        ...POSITIONS.map((p) => [p, ONE, strong * Math.cos(10 ** -p)] as const),
        ...POSITIONS.map((p) => [p + DIM / 2, ONE, -strong * Math.sin(10 ** -p)] as const),
      ]),
      k: matrix(
        DIM,
        POSITIONS.map((p) => [p, ONE, strong] as const),
      ),
      v: matrix(DIM, copies(0, TOKEN)),
      o: matrix(DIM, copies(PREVIOUS, 0)),
    },
    // Queries hold the token, keys the previous one: behind an earlier place of the same token they match, with a score of 2·SHARP.
    // Token 0 has SHARP for all, and gets the attention where nothing matches.
    1: {
      q: matrix(DIM, [...copies(STILL, TOKEN, 2 * strong), [STILL + VOCABULARY, ONE, strong]]),
      k: matrix(DIM, [...copies(STILL, PREVIOUS, strong), [STILL + VOCABULARY, TOKEN, strong]]),
      v: matrix(DIM, copies(0, TOKEN)),
      o: matrix(DIM, copies(NEXT, 0)),
    },
  };
  const tensors: Record<string, Tensor> = {
    "model.embed_tokens.weight": matrix(
      VOCABULARY,
      Array.from({ length: VOCABULARY }, (_, token) => [
        [token, TOKEN + token, 1],
        [token, ONE, 1],
      ]).flat() as [number, number, number][],
    ),
    "model.norm.weight": gain(4),
    "lm_head.weight": matrix(VOCABULARY, copies(0, NEXT, SHARP)),
  };
  for (const [layer, projections] of Object.entries(layers)) {
    tensors[`model.layers.${layer}.input_layernorm.weight`] = gain(2 + Number(layer));
    for (const [name, tensor] of Object.entries(projections))
      tensors[`model.layers.${layer}.self_attn.${name}_proj.weight`] = tensor;
  }
  const files = new Map([
    ["config.json", new TextEncoder().encode(JSON.stringify(CONFIG))],
    ["model.safetensors", writeSafetensors(tensors)],
  ]);
  return (name) => files.get(name);
}
