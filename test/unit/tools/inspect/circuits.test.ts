import { expect, test } from "vitest";
import { inductionByHand } from "../../../../examples/induction/by-hand.ts";
import { eigenvaluesOf } from "../../../../src/base/util/linear-algebra.ts";
import { loadKernels, type Tensor } from "../../../../src/entries/index.ts";
import { copyingScores } from "../../../../src/entries/inspect.ts";
import { latent } from "../../../../src/entries/latent.ts";
import { loadModel, models } from "../../../../src/entries/models.ts";
import { quantized } from "../../../../src/entries/quantized.ts";
import { TINY, tinyFolder, tinyTensors } from "../../../support/tiny-models.ts";

const kernels = await loadKernels({ models, quantized, latent });

type Tensors = ReadonlyMap<string, Tensor>;

/** Matrices as functions on vectors, in float64. */
type Step = (x: readonly number[]) => number[];

const rowsOf = ({ data, shape }: Tensor) =>
  Array.from({ length: shape[0]! }, (_, r) => Array.from(data.subarray(r * shape[1]!, (r + 1) * shape[1]!)));
const dot = (a: readonly number[], b: readonly number[]) => a.reduce((sum, x, i) => sum + x * b[i]!, 0);
const transpose = (rows: readonly (readonly number[])[]) => rows[0]!.map((_, c) => rows.map((row) => row[c]!));
const product =
  (rows: readonly (readonly number[])[]): Step =>
  (x) =>
    rows.map((row) => dot(row, x));
const gain =
  (tensors: Tensors, name: string, plus = 0): Step =>
  (x) =>
    x.map((value, i) => value * (plus + tensors.get(`${name}.weight`)!.data[i]!));
const centre: Step = (x) =>
  x.map(
    (value) =>
      value -
      dot(
        x,
        x.map(() => 1 / x.length),
      ),
  );

/** Σ λ / Σ |λ| of what leads from a token to logits, a matrix as large as the vocabulary. */
function wholeScore(tokens: readonly (readonly number[])[], steps: readonly Step[]): number {
  const columns = tokens.map((row) => steps.reduce((x, step) => step(x), [...row]));
  const { real, imaginary } = eigenvaluesOf(columns.flat(), tokens.length);
  const size = real.reduce((sum, a, i) => sum + Math.hypot(a, imaginary[i]!), 0);
  return real.reduce((sum, a) => sum + a, 0) / size;
}

/** What differs between families: names, and steps around the head. */
interface Family {
  readonly config: object;
  /** For a head of a layer: from the residual to values, and from these to the residual, and norms around. */
  readonly steps: (tensors: Tensors, layer: number, head: number) => Step[];
  readonly tokens: string;
}

const HEAD = 12;
const part = (rows: readonly (readonly number[])[], at: number, width: number) =>
  rows.slice(at * width, (at + 1) * width);
const columnsOf = (rows: readonly (readonly number[])[], at: number, width: number) =>
  rows.map((row) => row.slice(at * width, (at + 1) * width));

const llama =
  (plus: number, post: boolean): Family["steps"] =>
  (tensors, layer, head) => {
    const name = `model.layers.${layer}`;
    const matrix = (projection: string) => rowsOf(tensors.get(`${name}.self_attn.${projection}_proj.weight`)!);
    return [
      gain(tensors, `${name}.input_layernorm`, plus),
      product(part(matrix("v"), head >> 1, HEAD)),
      product(columnsOf(matrix("o"), head, HEAD)),
      ...(post ? [gain(tensors, `${name}.post_attention_layernorm`, plus)] : []),
      gain(tensors, "model.norm", plus),
      product(rowsOf(tensors.get("model.embed_tokens.weight")!)),
    ];
  };

const FAMILIES: Readonly<Record<string, Family>> = {
  "llama, with grouped heads": {
    config: TINY.llama,
    tokens: "model.embed_tokens.weight",
    steps: llama(0, false),
  },
  "gemma2, with norms of outputs": {
    config: TINY.gemma2,
    tokens: "model.embed_tokens.weight",
    steps: llama(1, true),
  },
  "gpt2, with layer norms": {
    config: TINY.gpt2,
    tokens: "transformer.wte.weight",
    steps: (tensors, layer, head) => {
      const name = `transformer.h.${layer}`;
      const all = transpose(rowsOf(tensors.get(`${name}.attn.c_attn.weight`)!));
      return [
        centre,
        gain(tensors, `${name}.ln_1`),
        product(part(all.slice(72), head, 12)),
        product(columnsOf(transpose(rowsOf(tensors.get(`${name}.attn.c_proj.weight`)!)), head, 12)),
        centre,
        gain(tensors, "transformer.ln_f"),
        product(rowsOf(tensors.get("transformer.wte.weight")!)),
      ];
    },
  },
  "opt, whose table is narrower": {
    config: {
      ...{ model_type: "opt", hidden_size: 40, word_embed_proj_dim: 24, num_attention_heads: 4, num_hidden_layers: 2 },
      ...{ ffn_dim: 48, vocab_size: 67, max_position_embeddings: 64, do_layer_norm_before: true },
    },
    tokens: "model.decoder.embed_tokens.weight",
    steps: (tensors, layer, head) => {
      const name = `model.decoder.layers.${layer}`;
      const matrix = (each: string) => rowsOf(tensors.get(`${each}.weight`)!);
      return [
        product(matrix("model.decoder.project_in")),
        centre,
        gain(tensors, `${name}.self_attn_layer_norm`),
        product(part(matrix(`${name}.self_attn.v_proj`), head, 10)),
        product(columnsOf(matrix(`${name}.self_attn.out_proj`), head, 10)),
        centre,
        gain(tensors, "model.decoder.final_layer_norm"),
        product(matrix("model.decoder.project_out")),
        product(matrix("model.decoder.embed_tokens")),
      ];
    },
  },
  "deepseek_v3, with latents": {
    config: TINY.deepseek_v3,
    tokens: "model.embed_tokens.weight",
    steps: (tensors, layer, head) => {
      const name = `model.layers.${layer}`;
      const matrix = (each: string) => rowsOf(tensors.get(`${name}.self_attn.${each}.weight`)!);
      return [
        gain(tensors, `${name}.input_layernorm`),
        product(matrix("kv_a_proj_with_mqa").slice(0, 16)),
        gain(tensors, `${name}.self_attn.kv_a_layernorm`),
        // Each head has 12 rows of keys, and 10 of values.
        product(part(matrix("kv_b_proj"), head, 22).slice(12)),
        product(columnsOf(matrix("o_proj"), head, 10)),
        gain(tensors, "model.norm"),
        product(rowsOf(tensors.get("lm_head.weight")!)),
      ];
    },
  },
};

test.each(Object.entries(FAMILIES))(
  "%s: scores are those of the whole circuit in float64 within 1e-5",
  async (_, family) => {
    const { config, steps, tokens } = family;
    const tensors = tinyTensors(config);
    const scores = copyingScores(await loadModel(kernels, tinyFolder(config, tensors)));
    expect(scores.length).toBe(2);
    for (const [layer, heads] of scores.entries())
      for (const [head, score] of heads.entries())
        expect(score).toBeCloseTo(wholeScore(rowsOf(tensors.get(tokens)!), steps(tensors, layer, head)), 5);
  },
);

test.each([
  ["f16", 0.01],
  ["bf16", 0.05],
  ["q8", 0.05],
  ["q4", 0.3],
] as const)(
  "weights in %s are read as they are packed: scores within %f of those of float32",
  async (weights, within) => {
    const folder = tinyFolder(TINY.llama);
    const exact = copyingScores(await loadModel(kernels, folder)).flat();
    const scores = copyingScores(await loadModel(kernels, folder, { weights })).flat();
    expect(scores).not.toEqual(exact);
    for (const [i, score] of scores.entries()) expect(Math.abs(score - exact[i]!)).toBeLessThan(within);
  },
);

test("a head that copies scores 1, one that writes what no logit reads 0", async () => {
  expect(copyingScores(await loadModel(kernels, inductionByHand()))).toEqual([[0], [1]]);
});

/** Scores of random models, with values as they are or reversed. */
async function randomScores(seed: number, sign = 1): Promise<number[]> {
  const tensors = new Map(
    Array.from(tinyTensors(TINY.llama, seed), ([name, { data, shape }]): [string, Tensor] => {
      return [name, { data: name.includes("v_proj") ? data.map((x) => sign * x) : data, shape }];
    }),
  );
  return copyingScores(await loadModel(kernels, tinyFolder(TINY.llama, tensors))).flat();
}

test("values that are reversed reverse the scores, so that random heads have 0 on average: within 4 standard errors", async () => {
  const seeds = Array.from({ length: 16 }, (_, seed) => seed + 1);
  const scores: number[] = [];
  for (const seed of seeds) scores.push(...(await randomScores(seed)));
  const reversed = await randomScores(1, -1);
  expect(reversed.map((x) => x.toFixed(5))).toEqual(scores.slice(0, 8).map((x) => (-x).toFixed(5)));
  const mean = scores.reduce((sum, x) => sum + x, 0) / scores.length;
  const deviation = Math.sqrt(scores.reduce((sum, x) => sum + (x - mean) ** 2, 0) / scores.length);
  expect(Math.abs(mean)).toBeLessThan((4 * deviation) / Math.sqrt(scores.length));
  expect(deviation).toBeGreaterThan(0.05);
});

test("a model that was released is refused", async () => {
  const model = await loadModel(kernels, inductionByHand());
  model.release();
  expect(() => copyingScores(model)).toThrow("copyingScores: model");
});
