import { mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { describeFiles, describeModel, type LayerMemory } from "headwise/configure";
import { gguf, loadModel, models, planModel, planModelFiles } from "headwise/models";
import { quantized } from "headwise/quantized";
import { afterAll, describe, expect, test } from "vitest";
import { loadKernels } from "../../../../src/entries/index.ts";
import { createSession } from "../../../../src/entries/models.ts";
import { openCodedGguf } from "../../../../src/files/gguf.ts";
import { serveFolder, urlOf } from "../../../support/range-server.ts";
import { TINY, tinyFolder, tinyTensors } from "../../../support/tiny-models.ts";
import known from "./known-models.json" with { type: "json" };

const folder = mkdtempSync(join(tmpdir(), "headwise-describe-"));
afterAll(() => rmSync(folder, { recursive: true, force: true }));

const configOf = (name: string) => known.models.find((each) => each.name === name)?.config as object;
const layersOf = (name: string) => describeModel(configOf(name)).layers;
const STORIES = "model/stories/stories.gguf";

describe("what layers keep", () => {
  test.each<[string, Partial<LayerMemory>[]]>([
    ["Llama-3.1-8B", [{ kind: "heads", layers: 32, perToken: 2048 }]],
    [
      "gemma-3-1b",
      [
        { layers: 22, window: 512, perToken: 512 },
        { layers: 4, window: undefined, perToken: 512 },
      ],
    ],
    ["DeepSeek-V3", [{ kind: "latent", layers: 61, perToken: 576 }]],
    [
      "gemma-3n-E2B",
      [
        { layers: 16, window: 512 },
        { layers: 4, window: undefined },
        { kind: "shared", layers: 10, perToken: 0 },
      ],
    ],
    [
      "Jamba-v0.1",
      [
        { kind: "recurrent", layers: 28, state: 8192 * 16 + 8192 * 3 },
        { kind: "heads", layers: 4 },
      ],
    ],
    ["Falcon-H1-0.5B", [{ kind: "both", layers: 36, perToken: 256, state: 1536 * 128 + 1792 * 3 }]],
    [
      "Nemotron-Nano-9B-v2",
      [
        { kind: "recurrent", layers: 27 },
        { kind: "heads", layers: 4 },
      ],
    ],
    [
      "Qwen3-Next-80B-A3B",
      [
        { kind: "recurrent", layers: 36, state: 32 * 128 * 128 + 8192 * 3 },
        { layers: 12, perToken: 1024 },
      ],
    ],
    ["rwkv-4-169m", [{ kind: "recurrent", layers: 12, state: 5 * 768 }]],
  ])("%s", (name, layers) => {
    expect(layersOf(name)).toMatchObject(layers);
  });

  test("caches with a window hold no more tokens than it, and states do not grow", () => {
    const [short, long] = [1024, 8192].map((seqLen) => describeModel(configOf("gemma-3-1b"), { seqLen }));
    expect(short?.cacheBytes).toBe(2 * 512 * (22 * 512 + 4 * 1024));
    expect(long?.cacheBytes).toBe(2 * 512 * (22 * 512 + 4 * 8192));
    const mamba = [1, 1e6].map((seqLen) => describeModel(configOf("mamba-130m"), { seqLen }));
    expect(mamba.map(({ cacheBytes, stateBytes }) => [cacheBytes, stateBytes])).toEqual([
      [0, 4 * 24 * (1536 * 16 + 1536 * 3)],
      [0, 4 * 24 * (1536 * 16 + 1536 * 3)],
    ]);
  });

  test("bytes are those that papers state for long sequences: Jamba takes an eighth of Mixtral at 256 K tokens", () => {
    const bytes = (name: string) => describeModel(configOf(name), { seqLen: 2 ** 18 }).cacheBytes;
    expect([bytes("Mixtral-8x7B"), bytes("Jamba-v0.1")]).toEqual([32 * 2 ** 30, 4 * 2 ** 30]);
  });
});

describe("memory", () => {
  test("of a model that runs is what planModel gives; of another there is none, and why", () => {
    const config = configOf("SmolLM2-135M");
    const { memory, weightBytes, refusal } = describeModel(config, { seqLen: 512, weights: "q8", format: "f16" });
    expect(memory).toEqual(planModel(config, { maxSeqLen: 512, weights: "q8", format: "f16" }));
    expect(weightBytes.q8).toBe(memory?.weights);
    expect(refusal).toBeUndefined();
    const other = describeModel({ model_type: "rwkv", hidden_size: 64, num_hidden_layers: 2, vocab_size: 100 });
    expect(other.memory).toBeUndefined();
    expect(other.refusal).toMatch(/state-space/);
    expect(other.weightBytes.f16).toBe(2 * other.parameters);
  });
});

test.each(["deepseek_v2", "deepseek_v3"])("%s without rope_theta has the default of its class, as others", (type) => {
  const { rope_theta: _, ...config } = { ...TINY.deepseek_v3, model_type: type };
  expect(describeModel(config)).toEqual(describeModel({ ...config, rope_theta: 10_000 }));
});

describe("files", () => {
  test("a GGUF file: parameters, stored bytes, and the memory that planModelFiles and loading give", async () => {
    const cost = await describeFiles(STORIES, { seqLen: 256 });
    expect(cost).toMatchObject({ type: "llama", parameters: 743_296, refusal: undefined });
    const plan = await planModelFiles(STORIES, { gguf, maxSeqLen: 256 });
    expect(cost.memory).toEqual(plan);
    using kernels = await loadKernels({ models, quantized });
    const before = kernels.usedBytes;
    const model = await loadModel(kernels, STORIES, { gguf, maxSeqLen: 256 });
    expect(kernels.usedBytes - before).toBe(plan.weights);
    expect(createSession(model).bytes).toBe(plan.sessions);
  });

  test("a GGUF file of kernels without quantized, and in another format", async () => {
    const sizes = await Promise.all(
      (["q4", "q8", "f32"] as const).map((weights) => planModelFiles(STORIES, { gguf, weights })),
    );
    expect(sizes[0]!.weights).toBeLessThan(sizes[1]!.weights);
    expect(sizes[1]!.weights).toBeLessThan(sizes[2]!.weights);
    const [kept, widened] = await Promise.all(
      [true, false].map((quantized) => planModelFiles("model/stories", { quantized })),
    );
    expect(widened!.weights).toBeGreaterThan(1.9 * kept!.weights);
  });

  test("a folder needs its config.json alone", async () => {
    writeFileSync(join(folder, "config.json"), JSON.stringify(configOf("Qwen3-0.6B")));
    expect(await describeFiles(folder, { seqLen: 100 })).toEqual(
      describeModel(configOf("Qwen3-0.6B"), { seqLen: 100 }),
    );
    await expect(describeFiles(join(folder, "none"))).rejects.toThrow(
      /source expected a file "config\.json" in .*none/,
    );
  });

  test("a folder with safetensors is described in the formats that it stores, as planModelFiles and loading take it", async () => {
    const cost = await describeFiles("model/stories", { seqLen: 256 });
    expect(cost).toMatchObject({ parameters: 743_296, storedAs: ["BF16"], storedBytes: 2 * 743_296 });
    expect(cost.memory).toEqual(await planModelFiles("model/stories", { maxSeqLen: 256 }));
    using kernels = await loadKernels({ models, quantized });
    using model = await loadModel(kernels, "model/stories", { maxSeqLen: 256 });
    expect(model.bytes).toBe(cost.memory?.weights);
    const q8 = await describeFiles("model/stories", { seqLen: 256, weights: "q8" });
    expect(q8.memory?.weights).toBe(cost.weightBytes.q8);
  });

  test.each([true, false])(
    "safetensors say whether there is a head where config.json does not: %s",
    async (hasHead) => {
      const { tie_word_embeddings: _, ...open } = TINY.llama;
      const tensors = tinyTensors({ ...open, tie_word_embeddings: !hasHead });
      const files = tinyFolder(open, tensors);
      const cost = await describeFiles(files, { seqLen: 64 });
      const numbers = [...tensors.values()].reduce((sum, { data }) => sum + data.length, 0);
      // Biases of the tiny models are read, but no part of Llama's count.
      const biases = [...tensors].reduce((sum, [name, { data }]) => sum + (name.endsWith("bias") ? data.length : 0), 0);
      expect([cost.parameters, cost.storedBytes, cost.storedAs]).toEqual([numbers - biases, 4 * numbers, ["F32"]]);
      expect(cost.memory).toEqual(await planModelFiles(files, { maxSeqLen: 64 }));
      using kernels = await loadKernels({ models });
      using model = await loadModel(kernels, files, { maxSeqLen: 64 });
      expect([model.bytes, cost.weightBytes.f32]).toEqual([cost.memory?.weights, cost.memory?.weights]);
    },
  );

  test("safetensors that loadModel refuses are described without memory, and why", async () => {
    const tensors = tinyTensors(TINY.llama).set("model.norm.weight_scale", { data: new Float32Array(1), shape: [1] });
    const { memory, refusal, parameters } = await describeFiles(tinyFolder(TINY.llama, tensors));
    expect(memory).toBeUndefined();
    expect(refusal).toBe('tensors expected those of "llama" with 2 layers, got 1 unexpected: model.norm.weight_scale');
    expect(parameters).toBe(describeModel(TINY.llama).parameters);
  });

  test("URLs of both", async () => {
    const { readFileSync } = await import("node:fs");
    const config = new TextEncoder().encode(JSON.stringify(configOf("Qwen3-0.6B")));
    const files = new Map([
      ["config.json", config],
      ["model.gguf", new Uint8Array(readFileSync(STORIES))],
    ]);
    const server = await serveFolder((name) => files.get(name));
    try {
      const url = new URL("/", urlOf(server));
      expect(await describeFiles(url)).toEqual(describeModel(configOf("Qwen3-0.6B")));
      expect(await describeFiles(new URL("model.gguf", url))).toEqual(await describeFiles(STORIES));
    } finally {
      server.close();
    }
  });

  test("of a GGUF file only the header is read", async () => {
    const { readFileSync } = await import("node:fs");
    const bytes = readFileSync(STORIES);
    let read = 0;
    const source = {
      size: bytes.length,
      read: async (begin: number, end: number) => {
        read += end - begin;
        return new Uint8Array(bytes.subarray(begin, end));
      },
    };
    await openCodedGguf(source);
    const header = read;
    read = 0;
    const { parameters } = await describeFiles(source);
    expect(parameters).toBe(743_296);
    expect(read).toBeLessThan(2 * header + 1024);
  });
});

test.each<[object, string]>([
  [{ model_type: "mambo" }, 'describeModel: model_type expected one whose costs are known (nearest: "mamba"'],
  [{ model_type: "zamba2" }, "which has a block of attention and MLP that layers share"],
  [{}, "describeModel: config expected the fields of config.json, got none named model_type"],
  [{ model_type: "bert" }, '"bert", an encoder or a model with one, of which headwise/models runs some'],
  [
    { ...configOf("Nemotron-Nano-9B-v2"), hybrid_override_pattern: "M--", num_hidden_layers: 3 },
    'layers_block_type of layer 2 expected a scan or attention, as no MLP without one before it is computed, got "mlp"',
  ],
  [
    { ...configOf("LFM2-350M"), layer_types: ["conv"] },
    'layer_types expected "conv" or "full_attention" for each layer',
  ],
  [{ ...configOf("mamba-130m"), hidden_size: 0 }, "hidden_size expected an integer >= 1, got 0"],
])("%o is refused", (config, message) => {
  expect(() => describeModel(config)).toThrow(message);
});

test.each<[object, string]>([
  [{ format: "f8" }, 'describeModel: format expected "f32" or "f16" or "q8" or "q4", got "f8"'],
  [{ format: 16 }, "describeModel: format expected a format's name, { keys, values } or an array of stages, got 16"],
  [{ sessions: -1 }, "describeModel: sessions expected an integer >= 0, got -1"],
  [{ rows: 0 }, "describeModel: rows expected an integer >= 1, got 0"],
  [{ outputs: 1.5 }, "describeModel: outputs expected an integer >= 0, got 1.5"],
  [{ truncatable: -2 }, "describeModel: truncatable expected an integer >= 0, got -2"],
  [{ seqLen: 0 }, "describeModel: options.seqLen expected an integer >= 1, got 0"],
  [{ weights: "q3" }, 'describeModel: options.weights expected "f32" or'],
])("the option %j is refused alike for a model that runs and one that does not", (options, message) => {
  for (const name of ["SmolLM2-135M", "Jamba-v0.1", "mamba-130m"])
    expect(() => describeModel(configOf(name), options as never)).toThrow(message);
});

test("a store that cannot open is refused; what fails after the signal rejects with the signal's reason", async () => {
  await expect(describeFiles("model", { store: 5 } as never)).rejects.toThrow(
    "describeFiles: options.store.open expected a function, got undefined",
  );
  const controller = new AbortController();
  const source = async () => {
    controller.abort(new Error("enough"));
    throw new Error("another");
  };
  await expect(describeFiles(source, { signal: controller.signal })).rejects.toThrow("enough");
});
