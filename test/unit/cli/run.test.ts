// `headwise run`: layers of files of each kind.

import { copyFileSync, mkdirSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { attend, createAttention, type Tensor } from "../../../src/entries/core.ts";
import { createLatentAttention, type LatentConfig, type LatentWeights } from "../../../src/entries/latent.ts";
import {
  fromHfConfig,
  fromHfLatentConfig,
  quantizeTensor,
  readAttentionWeights,
  readLatentWeights,
  writeSafetensors,
} from "../../../src/entries/weights.ts";
import { createRandom } from "../../../src/tools/diagnostics/random.ts";
import { FloatDigest } from "../../../src/tools/diagnostics/self-test.ts";
import { runCli } from "../../support/cli.ts";
import { deepseekTensors, under, V2, V3 } from "../../support/deepseek-layers.ts";
import { bytesOf, text, u32, writeGguf } from "../../support/gguf-writer.ts";
import { floats } from "../../support/harness.ts";
import { kernelsOf } from "../../support/layers.ts";

/** Runs `headwise run ...args`. */
const run = (...args: string[]) => runCli(["run", ...args]);

let folder: string;
beforeAll(() => {
  folder = mkdtempSync(join(tmpdir(), "headwise-run-"));
});
afterAll(() => rmSync(folder, { recursive: true, force: true }));

const write = (name: string, bytes: Uint8Array | string) => {
  writeFileSync(join(folder, name), bytes);
  return join(folder, name);
};

/** The parts of the JSON that tests look at. */
interface Result {
  readonly prefix: string;
  readonly config: { readonly causal: boolean; readonly window: { readonly left: number | null } };
  readonly cacheFormat: string;
  readonly formats: Record<string, string>;
  readonly kernels: { readonly build: string; readonly threads: { readonly used: number } };
  readonly prefill: { readonly tokens: number; readonly ms: number; readonly bestMs: number };
  readonly decode?: { readonly tokens: number; readonly past: number; readonly same: boolean; readonly ms: number };
  readonly keys?: number;
  readonly y: { readonly shape: number[]; readonly digest: string; readonly first: number[] };
}

function runJson(...args: string[]): Result {
  const { status, stdout, stderr } = run(...args, "--json");
  expect([status, stderr]).toEqual([0, ""]);
  return JSON.parse(stdout) as Result;
}

const random = createRandom(5);

const tensor = (rows: number, columns: number): Tensor => ({
  data: floats(random, rows * columns).map((w) => w / Math.sqrt(columns)),
  shape: [rows, columns],
});

const config = {
  ...{ model_type: "llama", hidden_size: 64, num_attention_heads: 4, num_key_value_heads: 2, num_hidden_layers: 2 },
  rope_theta: 10_000,
};

const weights = { wq: tensor(64, 64), wk: tensor(32, 64), wv: tensor(32, 64), wo: tensor(64, 64) };

const named = (prefix: string) => ({
  [`${prefix}q_proj.weight`]: weights.wq,
  [`${prefix}k_proj.weight`]: weights.wk,
  [`${prefix}v_proj.weight`]: weights.wv,
  [`${prefix}o_proj.weight`]: weights.wo,
});

const other = Object.fromEntries(
  Object.keys(named("model.layers.1.self_attn.")).map((name, i) => [
    name,
    [tensor(64, 64), tensor(32, 64)][+(i === 1 || i === 2)]!,
  ]),
);

const model = { ...named("model.layers.0.self_attn."), ...other };

const prepare = () => {
  write("config.json", JSON.stringify(config));
  return write("model.safetensors", writeSafetensors(model));
};

/** The digest of y for the rows x, on the build that is the same everywhere. */
async function expectedDigest(x: Float32Array, layer = fromHfConfig(config)): Promise<string> {
  using kernels = await kernelsOf("simd");
  const digest = new FloatDigest();
  digest.add(attend(createAttention(kernels, layer, weights), x));
  return digest.toString();
}

describe("a layer of a safetensors file", () => {
  test("is found with its config, and its y has the bits that attend gives", async () => {
    const path = prepare();
    const result = runJson(path, "--deterministic");
    expect(result).toMatchObject({
      prefix: "model.layers.0.self_attn.",
      cacheFormat: "f32",
      formats: { q: "f32", k: "f32", v: "f32", o: "f32" },
      kernels: { build: "simd", threads: { used: 1 } },
      prefill: { tokens: 128 },
      decode: { tokens: 32, past: 96, same: true },
      y: { shape: [128, 64], digest: await expectedDigest(createRandom(1).floats(128 * 64)) },
    });
    expect(result.prefill.bestMs).toBeLessThanOrEqual(result.prefill.ms);
    expect(runJson(path, "--deterministic", "--layer", "1").y.digest).not.toBe(result.y.digest);
    expect(runJson(path, "--deterministic", "--threads", "2")).toMatchObject({
      kernels: { threads: { used: 2 } },
      y: result.y,
    });
  });

  test("is run in every format, on all tokens one by one", () => {
    const path = prepare();
    for (const [weightFormat, cache] of [
      ["f16", "f16"],
      ["bf16", "q8"],
      ["q8", "q4"],
      ["q8-row", "f32"],
      ["q4", "q8"],
    ] as const) {
      const args = ["--tokens", "9", "--decode", "9", "--weights", weightFormat, "--cache", cache];
      expect(runJson(path, ...args)).toMatchObject({
        cacheFormat: cache,
        formats: { q: weightFormat, o: weightFormat },
        decode: { tokens: 9, past: 0, same: true },
        y: { shape: [9, 64] },
      });
    }
  });

  test("takes rows from a file: raw float32, .npy of float32 and float64", async () => {
    const path = prepare();
    const x = floats(random, 5 * 64);
    const digest = await expectedDigest(x);
    const files = [
      write("x.bin", bytesOf(x)),
      write("x4.npy", npy("<f4", "(5, 64)", bytesOf(x))),
      write("x3.npy", npy("<f4", "(1, 5, 64)", bytesOf(x))),
      write("x8.npy", npy("<f8", "(5, 64)", new Uint8Array(Float64Array.from(x).buffer))),
    ];
    for (const input of files)
      expect(runJson(path, "--deterministic", "--input", input)).toMatchObject({
        decode: { tokens: 5, past: 0 },
        y: { shape: [5, 64], digest },
      });
    const fewer = runJson(path, "--deterministic", "--input", files[0]!, "--tokens", "3", "--decode", "0");
    expect(fewer.decode).toBeUndefined();
    expect(fewer.y.digest).toBe(await expectedDigest(x.subarray(0, 3 * 64)));
  });

  test("as text", () => {
    const { status, stdout } = run(prepare());
    expect(status).toBe(0);
    expect(stdout).toContain("layer     model.layers.0.self_attn. of model.safetensors, read in ");
    expect(stdout).toContain("\nshape     dModel 64, 4 heads of 16, 2 kv heads, causal, RoPE 10000 half\n");
    expect(stdout).toContain("\nidentity  prefill = decode: 32 rows have the same bits\n");
    expect(stdout).toMatch(/\ny {9}\[128, 64\], digest [0-9a-f]{16}\n/);
  });

  test("without causality has no decode", () => {
    const bert = { model_type: "bert", hidden_size: 64, num_attention_heads: 4 };
    const names = ["self.query", "self.key", "self.value", "output.dense"];
    const square = Object.fromEntries(
      names.map((name) => [`encoder.layer.0.attention.${name}.weight`, tensor(64, 64)]),
    );
    mkdirSync(join(folder, "bert"), { recursive: true });
    write("bert/config.json", JSON.stringify(bert));
    const path = write("bert/model.safetensors", writeSafetensors(square));
    expect(runJson(path).decode).toBeUndefined();
    expect(run(path).stdout).toContain("\ndecode    none: the layer is not causal");
  });
});

describe("an encoder-decoder model", () => {
  const square = (name: string) =>
    Object.fromEntries(["q", "k", "v", "out"].map((part) => [`${name}${part}_proj.weight`, tensor(64, 64)]));
  const layers = ["encoder.layers.0.self_attn.", "decoder.layers.0.self_attn.", "decoder.layers.0.encoder_attn."];
  const whisper = {
    ...{ model_type: "whisper", d_model: 64, encoder_layers: 1, decoder_layers: 1 },
    ...{ encoder_attention_heads: 4, decoder_attention_heads: 4 },
  };
  const prepareWhisper = () => {
    mkdirSync(join(folder, "whisper"), { recursive: true });
    write("whisper/config.json", JSON.stringify(whisper));
    const tensors = Object.assign({}, ...layers.map((name) => square(`model.${name}`))) as Record<string, Tensor>;
    return write("whisper/model.safetensors", writeSafetensors(tensors));
  };

  test("is causal in its decoder, by the prefix or by --part, and not in its encoder", () => {
    const path = prepareWhisper();
    const decoder = runJson(path, "--prefix", "model.decoder.layers.0.self_attn.");
    expect(decoder).toMatchObject({ config: { causal: true }, decode: { same: true } });
    expect(runJson(path, "--part", "decoder")).toMatchObject({ prefix: decoder.prefix, y: decoder.y });
    const encoder = runJson(path, "--part", "encoder");
    expect(encoder).toMatchObject({ prefix: "model.encoder.layers.0.self_attn.", config: { causal: false } });
    expect(encoder.decode).toBeUndefined();
  });

  test("runs its cross-attention on the rows of --keys, in prefill and with cached keys", async () => {
    const path = prepareWhisper();
    const [x, keys] = [floats(random, 5 * 64), floats(random, 7 * 64)];
    const files = [
      write("whisper/x.bin", bytesOf(x)),
      write("whisper/keys.npy", npy("<f4", "(1, 7, 64)", bytesOf(keys))),
    ];
    const args = ["--deterministic", "--input", files[0]!, "--keys", files[1]!];
    const prefix = "model.decoder.layers.0.encoder_attn.";
    const result = runJson(path, "--part", "cross", ...args);
    const stored = readAttentionWeights(readFileSync(path), prefix);
    using kernels = await kernelsOf("simd");
    const digest = new FloatDigest();
    digest.add(attend(createAttention(kernels, fromHfConfig(whisper, { prefix }), stored), x, { keys }));
    expect(result).toMatchObject({ prefix, keys: 7, y: { shape: [5, 64], digest: digest.toString() } });
    expect(result.decode).toMatchObject({ tokens: 5, past: 0, same: true });
    expect(runJson(path, "--prefix", prefix, ...args, "--decode", "2")).toMatchObject({
      decode: { tokens: 2, past: 3, same: true },
      y: result.y,
    });
    expect(run(path, "--part", "cross", ...args).stdout).toContain(" kv heads, cross-attention to 7 keys\n");
  });

  test("is refused without a part, and in its cross-attention without --keys", () => {
    const path = prepareWhisper();
    const config = join(folder, "whisper/config.json");
    const cross =
      "headwise run: --keys expected a file with the encoder's rows for model.decoder.layers.0.encoder_attn., cross-attention, got none (see headwise run --help)\n";
    const rows: [args: string[], status: number, stderr: string][] = [
      [
        [],
        2,
        `headwise run: ${config}: part expected "encoder", "decoder" or "cross" (or a prefix that names one), since "whisper" has all three, got undefined\n`,
      ],
      [["--prefix", "model.decoder.layers.0.encoder_attn."], 2, cross],
      [["--part", "cross"], 2, cross],
      [
        ["--part", "decoder", "--keys", "rows.npy"],
        2,
        "headwise run: --keys expected none for model.decoder.layers.0.self_attn., self-attention, got rows.npy (see headwise run --help)\n",
      ],
      [
        ["--part", "both"],
        2,
        "headwise run: --part expected encoder, decoder, cross, got both (see headwise run --help)\n",
      ],
      [
        ["--layer", "1", "--prefix", "model.decoder.layers.0.self_attn."],
        2,
        "headwise run: --layer expected 0, as in prefix model.decoder.layers.0.self_attn., got 1 (see headwise run --help)\n",
      ],
    ];
    for (const [args, status, stderr] of rows) expect(run(path, ...args)).toMatchObject({ status, stdout: "", stderr });
  });

  test("with relative positions is refused", () => {
    mkdirSync(join(folder, "t5"), { recursive: true });
    write("t5/config.json", JSON.stringify({ model_type: "t5", d_model: 64, num_heads: 4, d_kv: 16, num_layers: 1 }));
    const names = ["q", "k", "v", "o"].map((part) => `encoder.block.0.layer.0.SelfAttention.${part}.weight`);
    const path = write(
      "t5/model.safetensors",
      writeSafetensors(Object.fromEntries(names.map((name) => [name, tensor(64, 64)]))),
    );
    expect(run(path).stderr).toContain("model_type expected attention without relative positions");
  });
});

test("attention of another kind is refused by name, not as a missing prefix", () => {
  mkdirSync(join(folder, "latent"), { recursive: true });
  const names = ["q_proj", "kv_a_proj_with_mqa", "kv_b_proj", "o_proj"];
  const latent = Object.fromEntries(names.map((name) => [`model.layers.0.self_attn.${name}.weight`, tensor(64, 64)]));
  const path = write("latent/model.safetensors", writeSafetensors(latent));
  const file = join(folder, "latent/config.json");
  const rows: [json: object, text: string][] = [
    [
      { ...config, model_type: "deepseek_v32" },
      'got "deepseek_v32", which has latent attention (MLA) to keys that an indexer selects',
    ],
    [
      { ...config, model_type: "minicpm9", kv_lora_rank: 256 },
      'got "minicpm9", which has latent attention (MLA) (kv_lora_rank)',
    ],
    [{ ...config, model_type: "qwen3_next" }, 'got "qwen3_next", which has gated attention beside linear attention'],
    [
      { ...config, model_type: "lfm2", layer_types: ["conv", "full_attention"] },
      'layer_types of layer 0 expected "full_attention", since convolutions are unsupported, got "conv"',
    ],
  ];
  for (const [json, text] of rows) {
    write("latent/config.json", JSON.stringify(json));
    const { status, stderr } = run(path);
    expect([status, stderr.startsWith(`headwise run: ${file}: `)]).toEqual([2, true]);
    expect(stderr).toContain(text);
  }
});

describe("a layer of latent attention", () => {
  const prefix = "model.layers.1.self_attn.";
  const tensors = deepseekTensors(createRandom(3), V3);
  const prepare = (json: object = V3) => {
    mkdirSync(join(folder, "deepseek"), { recursive: true });
    write("deepseek/config.json", JSON.stringify(json));
    const others = under("model.layers.0.self_attn.", deepseekTensors(createRandom(4), V3));
    return write("deepseek/model.safetensors", writeSafetensors({ ...others, ...under(prefix, tensors) }));
  };
  const digestOf = async (random: number, layer: LatentConfig, weights: LatentWeights) => {
    using kernels = await kernelsOf("simd");
    const digest = new FloatDigest();
    digest.add(attend(createLatentAttention(kernels, layer, weights), createRandom(random).floats(128 * 24)));
    return digest.toString();
  };

  test("is found with its config, and its y has the bits that attend gives", async () => {
    const path = prepare();
    const digest = await digestOf(1, fromHfLatentConfig(V3), readLatentWeights(writeSafetensors(tensors)));
    const result = runJson(path, "--deterministic", "--layer", "1");
    expect(result).toMatchObject({
      ...{ prefix, cacheFormat: "f32", formats: { qDown: "f32", q: "f32", kvDown: "f32", k: "f32" } },
      config: { kvLoraRank: 10, qLoraRank: 12, causal: true },
      decode: { tokens: 32, past: 96, same: true },
      y: { shape: [128, 24], digest },
    });
    expect(runJson(path, "--deterministic", "--prefix", prefix, "--threads", "2").y).toEqual(result.y);
    const { stdout } = run(path, "--layer", "1", "--weights", "q8");
    expect(stdout).toMatch(/^shape +dModel 24, 3 heads of 15, latents of 10 \+ 8, causal, RoPE 10000 interleaved$/m);
    expect(stdout).toMatch(/^weights +q8, /m);
    // In a model of several modalities, below another prefix.
    const whole = write("deepseek/model.safetensors", writeSafetensors(under(`language_model.${prefix}`, tensors)));
    write("deepseek/config.json", JSON.stringify({ model_type: "kimi_vl", text_config: V3, vision_config: {} }));
    expect(runJson(whole, "--deterministic", "--layer", "1").y).toEqual(result.y);
  });

  test("is read from several files and from GGUF", async () => {
    const path = prepare();
    const { y } = runJson(path, "--deterministic", "--layer", "1");
    const [first, second] = [Object.entries(tensors).slice(0, 4), Object.entries(tensors).slice(4)];
    write("deepseek/a.safetensors", writeSafetensors(under(prefix, Object.fromEntries(first))));
    write("deepseek/b.safetensors", writeSafetensors(under(prefix, Object.fromEntries(second))));
    const weight_map = Object.fromEntries([
      ...first.map(([name]) => [prefix + name, "a.safetensors"]),
      ...second.map(([name]) => [prefix + name, "b.safetensors"]),
    ]);
    const index = write("deepseek/some.index.json", JSON.stringify({ weight_map }));
    expect(runJson(index, "--deterministic", "--layer", "1").y).toEqual(y);

    const lite = { ...V2, rope_scaling: undefined };
    const parts = deepseekTensors(createRandom(5), lite);
    const gguf = writeGguf({
      metadata: {
        ...{ "general.architecture": text("deepseek2"), "deepseek2.block_count": u32(1) },
        ...{ "deepseek2.embedding_length": u32(24), "deepseek2.attention.head_count": u32(3) },
        ...{ "deepseek2.attention.kv_lora_rank": u32(10), "deepseek2.attention.key_length": u32(15) },
        ...{ "deepseek2.attention.value_length": u32(5), "deepseek2.rope.dimension_count": u32(8) },
      },
      tensors: Object.entries({
        ...{ q: "q_proj", kv_a_mqa: "kv_a_proj_with_mqa", kv_a_norm: "kv_a_layernorm", kv_b: "kv_b_proj" },
        output: "o_proj",
      }).map(([name, theirs]) => {
        const { data, shape } = parts[`${theirs}.weight`] as Tensor;
        return { name: `blk.0.attn_${name}.weight`, type: 0, shape, bytes: bytesOf(data) };
      }),
    });
    const result = runJson(write("deepseek.gguf", gguf), "--deterministic");
    expect(Object.keys(result.formats)).toEqual(["q", "kvDown", "k", "v", "o"]);
    expect(result).toMatchObject({
      prefix: "blk.0.attn_",
      y: { digest: await digestOf(1, fromHfLatentConfig(lite), readLatentWeights(writeSafetensors(parts))) },
    });
  });

  test("is refused by what is wrong", () => {
    const path = prepare();
    const rows: [args: string[], text: string][] = [
      [["--layer", "2"], "--layer expected an integer from 0 to 1, got 2"],
      [["--part", "encoder"], "--part expected decoder for latent attention, got encoder"],
      [["--prefix", "model.layers.1.mlp."], `model.safetensors: prefix "model.layers.1.mlp." expected to begin`],
    ];
    for (const [args, message] of rows) {
      const { status, stderr } = run(path, ...args);
      expect([status, stderr.trimEnd().split("\n").length]).toEqual([2, 1]);
      expect(stderr).toContain(message);
    }
    prepare({ ...V3, index_topk: 64 });
    expect(run(path).stderr).toContain("config.json: index_topk expected none");
  });
});

test("the layer is the one that the prefix names", () => {
  const sliding = { ...config, model_type: "gemma2", head_dim: 16, sliding_window: 3 };
  mkdirSync(join(folder, "sliding"), { recursive: true });
  write("sliding/config.json", JSON.stringify(sliding));
  const path = write("sliding/model.safetensors", writeSafetensors(model));
  const byLayer = runJson(path, "--layer", "1");
  expect(byLayer).toMatchObject({ config: { window: { left: null } } });
  expect(runJson(path, "--prefix", "model.layers.1.self_attn.").y).toEqual(byLayer.y);
  expect(runJson(path, "--prefix", "model.layers.0.self_attn.")).toMatchObject({ config: { window: { left: 2 } } });
});

test("a model in several files, by its index", async () => {
  write("config.json", JSON.stringify(config));
  const [first, second] = [Object.entries(model).slice(0, 3), Object.entries(model).slice(3)];
  write("a.safetensors", writeSafetensors(Object.fromEntries(first)));
  // The second holds a matrix of 8 bits, which its metadata describes.
  const quantized = Object.fromEntries(
    second.map(([name, each]) => [
      name,
      quantizeTensor({ name, dtype: "F32", shape: each.shape, bytes: bytesOf(each.data) }, "Q8_0"),
    ]),
  );
  write("b.safetensors", writeSafetensors(quantized));
  const map = (from: [string, unknown][], file: string) => Object.fromEntries(from.map(([name]) => [name, file]));
  const weight_map = { ...map(first, "a.safetensors"), ...map(second, "b.safetensors") };
  const path = write("model.safetensors.index.json", JSON.stringify({ weight_map }));
  expect(runJson(path)).toMatchObject({ formats: { q: "f32", k: "f32", v: "f32", o: "q8" }, decode: { same: true } });

  mkdirSync(join(folder, "snapshot"), { recursive: true });
  for (const name of ["a.safetensors", "b.safetensors", "config.json", "model.safetensors.index.json"])
    copyFileSync(join(folder, name), join(folder, "snapshot", name));
  expect(runJson(join(folder, "snapshot")).y).toEqual(runJson(path).y);
  expect(run(join(folder, "snapshot")).stdout).toContain("self_attn. of model.safetensors.index.json, read in ");

  const outside = { ...weight_map, "model.layers.0.self_attn.o_proj.weight": "../b.safetensors" };
  const hostile = write("hostile.index.json", JSON.stringify({ weight_map: outside }));
  expect(run(hostile)).toMatchObject({
    status: 2,
    stderr: `headwise run: ${hostile}: weight_map of "model.layers.0.self_attn.o_proj.weight" expected a plain file name, got "../b.safetensors"\n`,
  });
});

/** A GGUF file of one layer. */
function writeModelGguf(): string {
  const keys = { block_count: u32(1), context_length: u32(256), embedding_length: u32(64) };
  const heads = { "attention.head_count": u32(4), "attention.head_count_kv": u32(2) };
  const metadata = Object.fromEntries(
    Object.entries({ ...keys, ...heads }).map(([key, value]) => [`qwen2.${key}`, value]),
  );
  const tensors = Object.entries({ q: weights.wq, k: weights.wk, v: weights.wv, output: weights.wo }).map(
    ([part, { data, shape }]) => ({ name: `blk.0.attn_${part}.weight`, type: 0, shape, bytes: bytesOf(data) }),
  );
  return write("model.gguf", writeGguf({ metadata: { "general.architecture": text("qwen2"), ...metadata }, tensors }));
}

test("a GGUF file needs no config", async () => {
  const result = runJson(writeModelGguf(), "--deterministic");
  expect(result.prefix).toBe("blk.0.attn_");
  expect(result.y.digest).toBe(await expectedDigest(createRandom(1).floats(128 * 64)));
});

test("of what lies beside a layer without a prefix, nothing is read", async () => {
  const names = { wq: "W_q", wk: "W_k", wv: "W_v", wo: "W_o" } as const;
  const layer = Object.fromEntries(
    Object.entries(names).map(([field, name]) => [`${name}.weight`, weights[field as keyof typeof names]]),
  );
  const rest = "model.embed_tokens.weight";
  mkdirSync(join(folder, "bare"), { recursive: true });
  write("bare/config.json", JSON.stringify(config));
  write("bare/layer.safetensors", writeSafetensors(layer));
  // A file that is not there cannot be opened.
  const files = Object.fromEntries(Object.keys(layer).map((name) => [name, "layer.safetensors"]));
  const index = { weight_map: { ...files, [rest]: "absent.safetensors" } };
  const path = write("bare/model.safetensors.index.json", JSON.stringify(index));
  const y = { digest: await expectedDigest(createRandom(1).floats(128 * 64)) };
  expect(runJson(path, "--deterministic", "--prefix", "")).toMatchObject({ prefix: "", y });
  const whole = write("bare/whole.safetensors", writeSafetensors({ ...layer, [rest]: tensor(10, 64) }));
  expect(runJson(whole, "--deterministic", "--prefix", "").y).toMatchObject(y);
  const norm = write("bare/norm.safetensors", writeSafetensors({ ...layer, "q_layernorm.weight": tensor(1, 16) }));
  expect(run(norm, "--prefix", "").stderr).toContain(
    `headwise run: ${norm}: tensor "q_layernorm.weight" expected to be absent`,
  );
});

test("rows that no engine has room for are refused by name", () => {
  const [dModel, headDim] = [2 ** 16, 4];
  const zeros = (rows: number, columns: number): Tensor => ({
    data: new Float32Array(rows * columns),
    shape: [rows, columns],
  });
  const prefix = "model.layers.0.self_attn.";
  const inputs = ["q", "k", "v"].map((part) => [`${prefix}${part}_proj.weight`, zeros(headDim, dModel)] as const);
  const tensors = { ...Object.fromEntries(inputs), [`${prefix}o_proj.weight`]: zeros(dModel, headDim) };
  mkdirSync(join(folder, "large"), { recursive: true });
  const one = { num_attention_heads: 1, num_key_value_heads: 1, head_dim: headDim };
  write("large/config.json", JSON.stringify({ ...config, hidden_size: dModel, ...one }));
  const path = write("large/model.safetensors", writeSafetensors(tensors));
  expect(run(path, "--tokens", `${2 ** 20}`)).toMatchObject({
    status: 1,
    stdout: "",
    stderr: `headwise run: input of ${2 ** 36} floats does not fit, the engine refused\n`,
  });
});

test("an error is one line with its exit code", () => {
  const path = prepare();
  const lonely = join(folder, "lonely");
  mkdirSync(lonely, { recursive: true });
  const alone = write("lonely/model.safetensors", writeSafetensors(model));
  mkdirSync(join(folder, "empty"), { recursive: true });
  const other = join(folder, "other");
  mkdirSync(other, { recursive: true });
  write("other/notes.txt", "no model");
  const two = write("two.safetensors", writeSafetensors({ ...named("encoder.0."), ...named("decoder.0.") }));
  const one = write("one.safetensors", writeSafetensors(named("model.layers.0.self_attn.")));
  const none = write("none.safetensors", writeSafetensors({ w: tensor(2, 2) }));
  const html = write("page.safetensors", "<!doctype html>");
  const bare = write("bare.json", "{}");
  const indexOf = (file: string) =>
    JSON.stringify({ weight_map: Object.fromEntries(Object.keys(model).map((name) => [name, file])) });
  const partial = write("partial.index.json", indexOf("absent.safetensors"));
  const broken = write("broken.index.json", indexOf("page.safetensors"));
  const gguf = writeModelGguf();
  const short = write("short.bin", new Uint8Array(100));
  const three = write("three.npy", npy("<f4", "(2, 3, 64)", new Uint8Array(2 * 3 * 64 * 4)));
  const wide = write("wide.npy", npy("<f4", "(2, 3)", new Uint8Array(24)));
  const rows: [args: string[], status: number, text: string][] = [
    [[], 2, "headwise run: expected one file, got 0 (see headwise run --help)"],
    [[path, path], 2, "headwise run: expected one file, got 2"],
    [[path, "--fast"], 2, "headwise run: unknown option --fast (see headwise run --help)"],
    [[path, "--weights", "q5"], 2, "headwise run: --weights expected f32, f16, bf16, q8, q8-row, q4, got q5"],
    [[path, "--cache", "bf16"], 2, "headwise run: --cache expected f32, f16, q8, q4, got bf16"],
    [[path, "--tokens", "0"], 2, "headwise run: --tokens expected an integer from 1 to 1048576, got 0"],
    [[path, "--layer", "x"], 2, "headwise run: --layer expected an integer from 0 to 1048576, got x"],
    [
      [path, "--layer", "7"],
      2,
      "headwise run: --layer expected an integer from 0 to 1, got 7 (see headwise run --help)",
    ],
    [[path, "--prefix", "no."], 2, `headwise run: ${path}: prefix "no." expected to begin a tensor's name`],
    [[alone], 2, `headwise run: --config expected a file, since there is no config.json beside ${alone}, got none`],
    [
      [two],
      2,
      "headwise run: --prefix expected the start of the names of the layer, such as decoder.0., encoder.0., got",
    ],
    [
      [one, "--layer", "1"],
      2,
      "headwise run: --prefix expected the start of the names of the layer, such as model.layers.0.self_attn., got none",
    ],
    [[path, "--tokens", "9", "--decode", "10"], 2, "headwise run: --decode expected an integer from 0 to 9, got 10"],
    [[none], 2, "headwise run: --prefix expected the start of the names of the layer, got none"],
    [[html], 2, `headwise run: ${html}: source expected a safetensors file, got a web page`],
    [[lonely], 2, `headwise run: --config expected a file, since there is no config.json beside ${alone}, got none`],
    [[lonely, "--config", bare], 2, `headwise run: ${bare}: model_type expected a supported one, or options.as with`],
    [
      [join(folder, "empty")],
      2,
      "headwise run: MODEL expected a folder with model.safetensors.index.json or model.safetensors, got an empty one",
    ],
    [
      [other],
      2,
      "headwise run: MODEL expected a folder with model.safetensors.index.json or model.safetensors, got one with notes.txt",
    ],
    [[bare], 2, `headwise run: ${bare}: weight_map expected an object, got undefined`],
    [[partial], 2, `headwise run: MODEL expected a file that can be read, got ${join(folder, "absent.safetensors")}`],
    [
      [broken],
      2,
      `headwise run: ${broken}: shard "page.safetensors": source expected a safetensors file, got a web page`,
    ],
    [
      [gguf, "--layer", "1"],
      2,
      "headwise run: --layer expected an integer from 0 to 0, got 1 (see headwise run --help)",
    ],
    [[path, "--input", short], 2, "headwise run: --input expected rows of 256 bytes, got 100 bytes"],
    [[path, "--input", one], 2, "headwise run: --input expected a .npy file or raw float32, got a safetensors file"],
    [[path, "--input", wide], 2, "headwise run: --input expected shape [tokens, 64], got [2, 3]"],
    [[path, "--input", three], 2, "headwise run: --input expected shape [tokens, 64], got [2, 3, 64]"],
  ];
  for (const [args, status, text] of rows) {
    const got = run(...args);
    expect(got.stderr).toContain(text);
    expect([got.status, got.stdout, got.stderr.trimEnd().split("\n").length]).toEqual([status, "", 1]);
  }
});

/** A .npy file of version 1. */
function npy(descr: string, shape: string, data: Uint8Array, order = "False", version = 1): Uint8Array {
  const words = `{'descr': '${descr}', 'fortran_order': ${order}, 'shape': ${shape}, }`;
  const lengthBytes = version === 1 ? 2 : 4;
  const header = words.padEnd(64 * Math.ceil((words.length + 13) / 64) - 8 - lengthBytes - 1).concat("\n");
  const length = [header.length & 255, header.length >> 8, 0, 0].slice(0, lengthBytes);
  const head = [0x93, ...Array.from("NUMPY", (letter) => letter.charCodeAt(0)), version, 0, ...length];
  return Uint8Array.from([...head, ...Array.from(header, (letter) => letter.charCodeAt(0)), ...data]);
}
