// Layers of latent attention in GGUF files, in both forms of the up-projection.

import { expect, test } from "vitest";
import { attend, HeadwiseError, type Tensor } from "../../../../../src/entries/core.ts";
import { createLatentAttention, type LatentConfig } from "../../../../../src/entries/latent.ts";
import {
  fromHfLatentConfig,
  openGguf,
  readGgufLatentLayer,
  readLatentWeights,
  type StoredTensor,
  toFloats,
  writeSafetensors,
} from "../../../../../src/entries/weights.ts";
import { deepseekTensors, V2, V3 } from "../../../../support/deepseek-layers.ts";
import type { DeepseekJson } from "../../../../support/deepseek-oracle.ts";
import {
  bool,
  bytesOf,
  f32,
  type Typed,
  text,
  toF16,
  toQ8_0,
  u32,
  type Written,
  writeGguf,
} from "../../../../support/gguf-writer.ts";
import { createRandom } from "../../../../support/harness.ts";
import { kernelsOf } from "../../../../support/layers.ts";

const ENCODERS = {
  F32: [0, (data: Float32Array) => bytesOf(data)],
  F16: [1, (data: Float32Array) => new Uint8Array(Uint16Array.from(data, toF16).buffer)],
  Q8_0: [8, toQ8_0],
} as const;
type Encoding = keyof typeof ENCODERS;

const stored = (name: string, { data, shape }: Tensor, encoding: Encoding = "F32"): Written => {
  const [type, encode] = ENCODERS[shape.length === 1 ? "F32" : encoding];
  return { name, type, shape, bytes: encode(data) };
};

/** V2 and V3 in small without biases, with V2's scaling, whose factor on cos and sin is 1 as it is in every such file. */
const bare = (json: DeepseekJson): DeepseekJson => ({ ...json, attention_bias: false, rope_scaling: V2.rope_scaling });
const LITE = bare(V2);
const FULL = bare(V3);

/** The metadata that stands for config.json; "older" is the form with one matrix for both projections. */
function keysOf(json: DeepseekJson, form: "older" | "newer", more: Readonly<Record<string, Typed>> = {}) {
  const [nope, rope, value] = [json.qk_nope_head_dim, json.qk_rope_head_dim, json.v_head_dim];
  const older = { head_count_kv: json.num_attention_heads, key_length: nope + rope, value_length: value };
  const newer = {
    ...{ head_count_kv: 1, key_length: json.kv_lora_rank + rope, value_length: json.kv_lora_rank },
    ...{ key_length_mla: nope + rope, value_length_mla: value },
  };
  const attention = {
    ...{ head_count: json.num_attention_heads, kv_lora_rank: json.kv_lora_rank },
    ...(form === "older" ? older : newer),
    ...(json.q_lora_rank !== null && { q_lora_rank: json.q_lora_rank }),
  };
  const { rope_scaling: yarn } = json;
  const own: Record<string, Typed> = {
    ...{ block_count: u32(2), context_length: u32(512), embedding_length: u32(json.hidden_size) },
    ...Object.fromEntries(Object.entries(attention).map(([key, n]) => [`attention.${key}`, u32(n)])),
    ...{ "attention.layer_norm_rms_epsilon": f32(1e-2), "rope.dimension_count": u32(rope) },
    ...(yarn && {
      "rope.scaling.type": text("yarn"),
      "rope.scaling.factor": f32(yarn.factor),
      "rope.scaling.original_context_length": u32(yarn.original_max_position_embeddings),
      "rope.scaling.yarn_log_multiplier": f32(0.1 * yarn.mscale_all_dim),
    }),
    "rope.freq_base": f32(json.rope_theta),
    ...more,
  };
  const named = Object.entries(own).map(([key, value]) => [`deepseek2.${key}`, value] as const);
  return { "general.architecture": text("deepseek2"), ...Object.fromEntries(named) };
}

const NAMES: Readonly<Record<string, string>> = {
  ...{ q_proj: "q", q_a_proj: "q_a", q_a_layernorm: "q_a_norm", q_b_proj: "q_b", kv_a_proj_with_mqa: "kv_a_mqa" },
  ...{ kv_a_layernorm: "kv_a_norm", kv_b_proj: "kv_b", o_proj: "output" },
};

/** The parts of kv_b_proj: [heads, rank, nope], transposed, and [heads, value, rank]. */
function splitUp(json: DeepseekJson, { data }: Tensor): [k: Tensor, v: Tensor] {
  const { num_attention_heads: heads, kv_lora_rank: rank, qk_nope_head_dim: nope, v_head_dim: value } = json;
  const at = (head: number, row: number, r: number) => data[(head * (nope + value) + row) * rank + r] as number;
  const k = Float32Array.from({ length: heads * rank * nope }, (_, i) =>
    at(Math.floor(i / (rank * nope)), i % nope, Math.floor(i / nope) % rank),
  );
  const v = Float32Array.from({ length: heads * value * rank }, (_, i) =>
    at(Math.floor(i / (value * rank)), nope + (Math.floor(i / rank) % value), i % rank),
  );
  return [
    { data: k, shape: [heads, rank, nope] },
    { data: v, shape: [heads, value, rank] },
  ];
}

function writtenOf(
  json: DeepseekJson,
  tensors: Readonly<Record<string, Tensor>>,
  form: "older" | "newer",
  encoding: Encoding = "F32",
): Written[] {
  return Object.entries(tensors).flatMap(([name, tensor]) => {
    const ours = NAMES[name.replace(".weight", "")] as string;
    if (ours !== "kv_b" || form === "older") return [stored(`blk.1.attn_${ours}.weight`, tensor, encoding)];
    const [k, v] = splitUp(json, tensor);
    return [stored("blk.1.attn_k_b.weight", k, encoding), stored("blk.1.attn_v_b.weight", v, encoding)];
  });
}

const around = stored("blk.1.attn_norm.weight", { data: new Float32Array(24), shape: [24] });

test.each([
  ["lite, newer", LITE, "newer"],
  ["lite, older", LITE, "older"],
  ["full, newer", FULL, "newer"],
  ["full, older", FULL, "older"],
  ["full without scaling", { ...FULL, rope_scaling: undefined }, "newer"],
] as const)(
  "%s: y has the bits of the same layer from safetensors, within the rounding of the scale",
  async (_, json, form) => {
    const random = createRandom(8);
    const tensors = deepseekTensors(random, json);
    const x = random.floats(40 * json.hidden_size);
    const metadata = keysOf(json, form);
    const gguf = await openGguf(writeGguf({ metadata, tensors: [around, ...writtenOf(json, tensors, form)] }));
    const { config, weights } = await readGgufLatentLayer(gguf, 1);
    const want = fromHfLatentConfig(json);
    // The multiplier is a float32 in the file, and yarn's factor on cos and sin is stated instead of derived.
    const { scale, rope, ...rest } = config;
    const { scale: wantScale, rope: wantRope, ...wantRest } = want;
    expect(rest).toStrictEqual(wantRest);
    if (wantScale === undefined) expect(scale).toBeUndefined();
    else expect(Math.abs((scale as number) / wantScale - 1)).toBeLessThan(2 ** -24);
    expect(rope).toMatchObject({ theta: wantRope ? wantRope.theta : undefined, pairing: "interleaved" });
    using kernels = await kernelsOf("simd");
    const yOf = (c: LatentConfig, w: typeof weights | ReturnType<typeof readLatentWeights>) =>
      attend(createLatentAttention(kernels, c, w), x);
    expect(yOf({ ...config, scale: wantScale }, weights)).toStrictEqual(
      yOf(want, readLatentWeights(writeSafetensors(tensors))),
    );
  },
);

test("matrices keep their encoding; the joined up-projection is exact, in 16 bits where both parts are", async () => {
  const json = { ...LITE, hidden_size: 64, kv_lora_rank: 32, qk_nope_head_dim: 32, v_head_dim: 64 };
  const tensors = deepseekTensors(createRandom(9), json);
  const read = async (written: Written[], form: "older" | "newer") =>
    (await readGgufLatentLayer(await openGguf(writeGguf({ metadata: keysOf(json, form), tensors: written })), 1))
      .weights;
  for (const encoding of ["F16", "Q8_0"] as const) {
    const older = await read(writtenOf(json, tensors, "older", encoding), "older");
    expect([older.wq?.dtype, older.wkvDown.dtype, older.wkvUp.dtype, older.wo.dtype]).toEqual(Array(4).fill(encoding));
    const written = writtenOf(json, tensors, "newer", encoding);
    const { wq, wkvUp } = await read(written, "newer");
    expect([wq?.dtype, wkvUp.dtype]).toEqual([encoding, encoding === "F16" ? "F16" : "F32"]);
    // Decoded, then split again, it has the decoded floats of both parts.
    const parts = splitUp(json, { data: toFloats(wkvUp), shape: wkvUp.shape });
    for (const [i, name] of ["k_b", "v_b"].entries()) {
      const { shape, bytes } = written.find((each) => each.name === `blk.1.attn_${name}.weight`) as Written;
      const part: StoredTensor = { name, dtype: encoding, shape, bytes };
      expect(parts[i]?.data).toStrictEqual(toFloats(part));
    }
  }
  const mixed = writtenOf(json, tensors, "newer", "F16").map((each) =>
    each.name.includes("k_b")
      ? { ...stored(each.name, splitUp(json, tensors["kv_b_proj.weight"] as Tensor)[0]) }
      : each,
  );
  expect((await read(mixed, "newer")).wkvUp.dtype).toBe("F32");
});

test("only the bytes of the layer are read, in one go", async () => {
  const written = writtenOf(FULL, deepseekTensors(createRandom(9), FULL), "newer");
  const gguf = await openGguf(writeGguf({ metadata: keysOf(FULL, "newer"), tensors: [around, ...written] }));
  const asked: (readonly string[])[] = [];
  await readGgufLatentLayer(
    {
      ...gguf,
      readAll: (names, where) => {
        asked.push([...(names ?? [])]);
        return gguf.readAll(names, where);
      },
    },
    1,
  );
  expect(asked).toEqual([written.map(({ name }) => name)]);
});

const zeros = (...shape: number[]): Tensor => ({ data: new Float32Array(shape.reduce((a, b) => a * b)), shape });
const lite = () => writtenOf(LITE, deepseekTensors(createRandom(9), LITE), "newer");
const but = (name: string, ...others: Written[]) => [
  ...lite().filter((each) => each.name !== `blk.1.attn_${name}`),
  ...others,
];
const newer = (more: Readonly<Record<string, Typed>> = {}) => keysOf(LITE, "newer", more);

test.each<[what: string, metadata: Record<string, Typed>, tensors: Written[], message: string]>([
  [
    "another architecture",
    { ...newer(), "general.architecture": text("llama") },
    lite(),
    'key "general.architecture" expected "deepseek2", got "llama"',
  ],
  [
    "an indexer",
    { ...newer(), "general.architecture": text("deepseek32") },
    lite(),
    'key "general.architecture" expected attention that this package computes, got "deepseek32", which has latent attention (MLA) of another kind',
  ],
  [
    "no output",
    newer(),
    but("output.weight"),
    'tensor "blk.1.attn_output.weight" expected shape [24, 15], got no such tensor',
  ],
  [
    "no values",
    newer(),
    but("v_b.weight"),
    'tensor "blk.1.attn_v_b.weight" expected shape [3, 5, 10], got no such tensor',
  ],
  [
    "keys that are not transposed",
    newer(),
    but("k_b.weight", stored("blk.1.attn_k_b.weight", zeros(3, 7, 10))),
    'tensor "blk.1.attn_k_b.weight" expected shape [3, 10, 7], got [3, 7, 10]',
  ],
  [
    "both forms",
    newer(),
    but("none", stored("blk.1.attn_kv_b.weight", zeros(36, 10))),
    'tensor "blk.1.attn_k_b.weight" expected to be absent, since the layer would be read without it, got it',
  ],
  [
    "a bias",
    newer(),
    but("none", stored("blk.1.attn_q.bias", zeros(45))),
    'tensor "blk.1.attn_q.bias" expected to be absent, since the layer would be read without it, got it',
  ],
  [
    "frequencies of its own",
    newer(),
    but("none", stored("rope_freqs.weight", zeros(4))),
    'tensor "rope_freqs.weight" expected to be absent, since latent attention has none, got it',
  ],
  [
    "longrope",
    newer(),
    but("none", stored("rope_factors_long.weight", zeros(4))),
    'tensor "rope_factors_long.weight" expected to be absent, since longrope is unsupported, got it',
  ],
  [
    "no rank",
    newer({ "attention.kv_lora_rank": u32(0) }),
    lite(),
    'key "deepseek2.attention.kv_lora_rank" expected an integer >= 1, got 0',
  ],
  [
    "rotation of a whole key",
    newer({ "rope.dimension_count": u32(15) }),
    lite(),
    'key "deepseek2.rope.dimension_count" expected less than the 15 of a key, got 15',
  ],
  [
    "an odd rotation",
    newer({ "rope.dimension_count": u32(7) }),
    lite(),
    'key "deepseek2.rope.dimension_count" (ropeDim) expected an even integer, got 7',
  ],
  [
    "shared heads",
    newer({ "attention.head_count_kv": u32(2) }),
    lite(),
    'key "deepseek2.attention.head_count_kv" expected 1 or 3, got 2',
  ],
  [
    "a temperature",
    newer({ "attention.temperature_scale": f32(0.1) }),
    lite(),
    `key "deepseek2.attention.temperature_scale" expected absent, since it is unsupported, got ${Math.fround(0.1)}`,
  ],
  [
    "a window",
    newer({ "attention.sliding_window": u32(128) }),
    lite(),
    'key "deepseek2.attention.sliding_window" expected absent, since it is unsupported, got 128',
  ],
  [
    "both directions",
    newer({ "attention.causal": bool(false) }),
    lite(),
    'key "deepseek2.attention.causal" expected absent, since it is unsupported, got false',
  ],
  [
    "a multiplier without yarn",
    newer({ "rope.scaling.type": text("linear") }),
    lite(),
    `key "deepseek2.rope.scaling.yarn_log_multiplier" expected absent, since it is unsupported, got ${Math.fround(0.07)}`,
  ],
  [
    "a multiplier that float32 cannot square",
    newer({ "rope.scaling.yarn_log_multiplier": f32(1e30) }),
    lite(),
    'key "deepseek2.rope.scaling.yarn_log_multiplier" expected a number from 1e-6 to 1e6, got ',
  ],
  [
    "a theta below 1",
    newer({ "rope.freq_base": f32(0.5) }),
    lite(),
    'key "deepseek2.rope.freq_base" (rope.theta) expected a finite number >= 1, got 0.5',
  ],
])("%s is refused", async (_, metadata, tensors, message) => {
  const reading = readGgufLatentLayer(await openGguf(writeGguf({ metadata, tensors })), 1);
  await expect(reading).rejects.toThrow(HeadwiseError);
  await expect(reading).rejects.toThrow(`readGgufLatentLayer: ${message}`);
});

test("arguments are checked", async () => {
  const gguf = await openGguf(writeGguf({ metadata: newer(), tensors: lite() }));
  await expect(readGgufLatentLayer(gguf, 2)).rejects.toThrow(
    new RangeError("readGgufLatentLayer: layer expected an integer from 0 to 1, got 2"),
  );
  await expect(readGgufLatentLayer(gguf, -1)).rejects.toThrow(
    new RangeError("readGgufLatentLayer: layer expected an integer >= 0, got -1"),
  );
  await expect(readGgufLatentLayer({} as never, 0)).rejects.toThrow(
    new TypeError(
      "readGgufLatentLayer: file expected metadata, tensors, read and readAll, as openGguf gives them, got Object",
    ),
  );
});
