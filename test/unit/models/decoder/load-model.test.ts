// What loadModel takes, and what it refuses: nothing is allocated then.

import { mkdtemp, rm, writeFile } from "node:fs/promises";
import { createServer } from "node:http";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { afterAll, beforeAll, describe, expect, test, vi } from "vitest";
import type { StoredTensor } from "../../../../src/base/tensor/dtypes.ts";
import type { Tensor } from "../../../../src/base/tensor/tensor.ts";
import type { HeadwiseError } from "../../../../src/base/util/errors.ts";
import { type Kernels, loadKernels } from "../../../../src/entries/core.ts";
import { models } from "../../../../src/entries/models.ts";
import { quantizeTensor, toFloats, writeSafetensors } from "../../../../src/entries/weights.ts";
import { forward } from "../../../../src/models/decoder/forward.ts";
import { createSession } from "../../../../src/models/decoder/session.ts";
import { type LoadModelOptions, loadModel, planModelFiles } from "../../../../src/models/load/load-model.ts";
import { planModel } from "../../../../src/models/load/plan-model.ts";
import { gguf } from "../../../../src/models/spec/read-gguf.ts";
import { loadTokenizer } from "../../../../src/text/load-tokenizer.ts";
import { describeFiles, describeModel } from "../../../../src/tools/configure/describe-model.ts";
import { kernelsOf } from "../../../support/layers.ts";
import { modulesOf } from "../../../support/modules.ts";
import { serveFolder, urlOf } from "../../../support/range-server.ts";
import { shortenWaits } from "../../../support/short-waits.ts";
import { TINY, type TinyName, tinyFolder, tinyTensors } from "../../../support/tiny-models.ts";

shortenWaits();

let kernels: Kernels;
beforeAll(async () => {
  kernels = await kernelsOf("relaxed");
});
afterAll(() => kernels.release());

/** What loading says, with all memory free afterwards. */
async function refusal(config: object, tensors?: ReadonlyMap<string, Tensor>): Promise<string> {
  const before = kernels.usedBytes;
  const source = tensors ? tinyFolder(config, tensors) : tinyFolder(config, new Map());
  const error = await loadModel(kernels, source).then(
    () => undefined,
    (cause: Error) => cause,
  );
  expect(kernels.usedBytes).toBe(before);
  return error?.message ?? "loaded";
}

describe("config.json", () => {
  test("a type of model that is not known is refused by name, with the nearest ones", async () => {
    expect(await refusal({ ...TINY.llama, model_type: "lama" })).toMatch(
      /^loadModel: model_type expected a supported one \(nearest: "llama", "diffllama"\), got "lama"$/,
    );
  });

  test.each([
    ["bert", 'one that loadModel reads, got "bert", which loadEncoder reads'],
    ["t5", 'one that loadModel reads, got "t5", which loadSeq2Seq reads'],
    ["mamba", 'attention that this package computes, got "mamba", which has state-space layers instead of attention'],
    ["dbrx", 'one that is read whole, got "dbrx", whose attention fromHfConfig reads'],
    ["kimi_k2", 'one that is read whole, got "kimi_k2", whose attention fromHfLatentConfig reads'],
    ["anything", 'a supported one, got "anything"'],
  ])("the type %s is answered with what reads it, or why nothing does", async (type, message) => {
    expect(await refusal({ ...TINY.llama, model_type: type })).toBe(`loadModel: model_type expected ${message}`);
  });

  test.each([
    ["num_key_value_heads", 3],
    ["rope_theta", 0.5],
    ["rope_scaling", { type: "linear", factor: 0.5 }],
    ["rope_scaling", { type: "ntk", factor: 2 }],
    ["layer_types", ["mamba", "mamba"]],
    ["use_bidirectional_attention", true],
    ["qk_norm", true],
  ])("an error in %s names the function that was called: loadModel, planModel", async (field, value) => {
    const config = { ...TINY.llama, [field]: value };
    expect(await refusal(config)).toMatch(new RegExp(`^loadModel: (${field}|num_attention_heads|factor|rope scaling)`));
    expect(() => planModel(config)).toThrow(
      new RegExp(`^planModel: (${field}|num_attention_heads|factor|rope scaling)`),
    );
  });

  test("an error in the header of a file names the function that was called", async () => {
    const files = new Map<string, Uint8Array>([
      ["config.json", new TextEncoder().encode(JSON.stringify(TINY.llama))],
      ["model.safetensors", new Uint8Array(64).fill(1)],
    ]);
    const source = (name: string) => files.get(name);
    const expectNames = async () => {
      await expect(loadModel(kernels, source)).rejects.toThrow(/^loadModel: /);
      await expect(planModelFiles(source)).rejects.toThrow(/^planModelFiles: /);
      await expect(describeFiles(source)).rejects.toThrow(/^describeFiles: /);
    };
    await expectNames();
    files.set("model.safetensors.index.json", new TextEncoder().encode('{"weight_map":{"a":"../b"}}'));
    await expectNames();
    const file = new TextEncoder().encode("GGUF and more bytes");
    await expect(loadModel(kernels, file, { gguf })).rejects.toThrow(/^loadModel: /);
    await expect(describeFiles(file)).rejects.toThrow(/^describeFiles: /);
    await expect(loadTokenizer(file)).rejects.toThrow(/^loadTokenizer: /);
  });

  test("the name of a model on Hugging Face, and its page, are answered with the URL of its files", async () => {
    const hint =
      ": a model of that name on Hugging Face would have the URL https://huggingface.co/some-one/a.model/resolve/main/";
    const load = (source: string | URL) => expect(loadModel(kernels, source)).rejects;
    await load("some-one/a.model").toThrow(
      `loadModel: source expected a file "config.json" in "some-one/a.model", got none${hint}`,
    );
    const page = "https://huggingface.co/some-one/a.model";
    for (const source of [page, new URL(page)])
      await load(source).toThrow(`loadModel: source expected files, got "${page}", a page${hint}`);
    await expect(loadTokenizer("some-one/a.model")).rejects.toThrow(
      `loadTokenizer: source expected a file "tokenizer.json", got none${hint}`,
    );
    await load("/some-one/a.model").toThrow(/ in "\/some-one\/a\.model", got none$/);
    await load("a.model").toThrow(/ in "a\.model", got none$/);
  });

  test("a folder of the host without a model, or one that is not in it, is not taken for such a name", async () => {
    for (const source of ["docs/guide", "docs/gide"]) {
      await expect(loadModel(kernels, source)).rejects.toThrow(
        new RegExp(`^loadModel: source expected a file "config\\.json" in "${source}", got none$`),
      );
      await expect(loadTokenizer(source)).rejects.toThrow(
        'loadTokenizer: source expected a file "tokenizer.json", got none; a model without it',
      );
    }
  });

  test.each([
    ["residual_gate", 0.5],
    ["quantization_config", { quant_method: "gptq" }],
    ["use_residual_scaling", true],
  ])("a field that is not known is refused by name: %s", async (name, value) => {
    expect(await refusal({ ...TINY.llama, [name]: value })).toContain(
      `loadModel: ${name} expected a field that this package knows, or none, got `,
    );
  });

  test.each([
    [{ n_group: 3 }, "n_group expected a divisor of the 8 experts, got 3"],
    [{ n_group: 8 }, "n_group expected groups of at least 2 of the 8 experts, got 8"],
    [{ topk_group: 9 }, "topk_group expected at most the 4 groups of n_group, got 9"],
    [{ topk_group: 1 }, "num_experts_per_tok expected at most the 2 experts of topk_group groups, got 3"],
    [{ num_experts_per_tok: 9 }, "num_experts_per_tok expected an integer from 1 to 8, got 9"],
  ])("groups of experts from which a token cannot choose are refused: %o", async (fields, said) => {
    const config = { ...TINY.deepseek_v3, ...fields };
    expect(await refusal(config)).toBe(`loadModel: ${said}`);
    expect(() => planModel(config)).toThrow(`planModel: ${said}`);
  });

  test("an activation that is not known is refused", async () => {
    expect(await refusal({ ...TINY.llama, hidden_act: "mish" })).toContain('hidden_act expected one of "gelu", ');
  });
});

describe("tensors", () => {
  test("all that are missing, unexpected and of another shape are in one error, layers folded", async () => {
    const tensors = tinyTensors(TINY.llama);
    for (const layer of [0, 1]) tensors.delete(`model.layers.${layer}.mlp.up_proj.weight`);
    tensors.delete("model.norm.weight");
    tensors.set("model.extra.weight", { data: new Float32Array(4), shape: [4] });
    tensors.set("model.layers.1.input_layernorm.weight", { data: new Float32Array(39), shape: [39] });
    expect(await refusal(TINY.llama, tensors)).toBe(
      'loadModel: tensors expected those of "llama" with 2 layers, got ' +
        "3 missing: model.norm.weight, model.layers.{0..1}.mlp.up_proj.weight; " +
        "1 unexpected: model.extra.weight; " +
        "1 of another shape: model.layers.1.input_layernorm.weight expected [40], got [39]",
    );
  });

  test.each([...tinyTensors(TINY.llama).keys()])(
    "%s with one more dimension of 1 is of another shape",
    async (name) => {
      const tensors = tinyTensors(TINY.llama);
      const { data, shape } = tensors.get(name) as Tensor;
      tensors.set(name, { data, shape: [1, ...shape] });
      const said = `1 of another shape: ${name} expected [${shape.join(", ")}], got [1, ${shape.join(", ")}]`;
      expect(await refusal(TINY.llama, tensors)).toContain(said);
    },
  );

  test("gains of norms of heads and logits of sinks are required", async () => {
    const sinks = tinyTensors(TINY.gpt_oss);
    sinks.delete("model.layers.0.self_attn.sinks");
    expect(await refusal(TINY.gpt_oss, sinks)).toContain("1 missing: model.layers.0.self_attn.sinks");
    const norms = tinyTensors(TINY.phi);
    norms.delete("model.layers.1.self_attn.q_layernorm.weight");
    expect(await refusal(TINY.phi, norms)).toContain("1 missing: model.layers.1.self_attn.q_layernorm.weight");
  });

  test("tensors of latents that are missing, or of another shape, are in one error too", async () => {
    const tensors = tinyTensors(TINY.deepseek_v3);
    for (const layer of [0, 1]) tensors.delete(`model.layers.${layer}.self_attn.kv_b_proj.weight`);
    tensors.set("model.layers.1.self_attn.q_a_layernorm.weight", { data: new Float32Array(19), shape: [19] });
    const all = await refusal(TINY.deepseek_v3, tensors);
    expect(all).toContain("2 missing: model.layers.{0..1}.self_attn.kv_b_proj.weight; 1 of another shape: ");
    expect(all).toContain("model.layers.1.self_attn.q_a_layernorm.weight expected [20], got [19]");
  });

  test("a head of its own is used where the file has one, and is missing where config.json wants one", async () => {
    const tensors = tinyTensors(TINY.llama);
    const shared = await loadModel(kernels, tinyFolder(TINY.llama, tensors));
    const untied = { ...TINY.llama, tie_word_embeddings: false };
    expect(await refusal(untied, tensors)).toContain("1 missing: lm_head.weight");
    const table = tensors.get("model.embed_tokens.weight") as Tensor;
    const own = new Map(tensors).set("lm_head.weight", { ...table, data: table.data.map((x) => 2 * x) });
    const model = await loadModel(kernels, tinyFolder(untied, own));
    const [a, b] = [createSession(shared), createSession(model)].map((session) => forward(session, [1, 2]).logits);
    expect(b).toEqual(a?.map((x) => 2 * x));
    shared.release();
    model.release();
  });

  test("a head beside a shared one is not read if it is the same, and refused if it differs anywhere at its ends", async () => {
    const table = tinyTensors(TINY.llama).get("model.embed_tokens.weight") as Tensor;
    const withHead = (head: Tensor) => tinyTensors(TINY.llama).set("lm_head.weight", head);
    const before = kernels.usedBytes;
    (await loadModel(kernels, tinyFolder(TINY.llama, withHead(table)))).release();
    const { data, shape } = table;
    const text = [
      'loadModel: tensor "lm_head.weight" expected the values of "model.embed_tokens.weight", to which the head is tied, got others; ',
      "it is the head where tie_word_embeddings is false",
    ].join("");
    for (const at of [0, data.length - 1])
      expect(await refusal(TINY.llama, withHead({ data: data.map((x, i) => (i === at ? 2 * x : x)), shape }))).toBe(
        text,
      );
    const wider = { data: new Float32Array(68 * 40), shape: [68, 40] };
    expect(await refusal(TINY.llama, withHead(wider))).toBe(text);
    expect(kernels.usedBytes).toBe(before);
  });

  test("a head that config.json does not mention is planned and used", async () => {
    const table = tinyTensors(TINY.llama).get("model.embed_tokens.weight") as Tensor;
    const { tie_word_embeddings: _, ...open } = TINY.llama;
    const logitsOf = async (config: object, factor: 1 | 2) => {
      const own = tinyTensors(TINY.llama).set("lm_head.weight", { ...table, data: table.data.map((x) => factor * x) });
      const { total } = planModel({ ...config, tie_word_embeddings: factor === 1 }, { maxSeqLen: 9, rows: 9 });
      const options = { maxSeqLen: 9, maxBytes: total };
      using model = await loadModel(kernels, tinyFolder(config, own), options);
      const short = loadModel(kernels, tinyFolder(config, own), { ...options, maxBytes: total - 1 });
      await expect(short).rejects.toMatchObject({ code: "OUT_OF_MEMORY" });
      return forward(createSession(model), [1, 2]).logits;
    };
    const shared = await logitsOf(TINY.llama, 1);
    expect(await logitsOf(open, 2)).toEqual(shared.map((x) => 2 * x));
  });

  /** Whether the head is the table where config.json does not say it, by the defaults of transformers. */
  const DEFAULTS = {
    llama: false,
    phi: false,
    qwen2_moe: false,
    gpt_oss: false,
    deepseek_v3: false,
    gpt2: true,
    gemma2: true,
  };

  test.each(Object.entries(DEFAULTS) as [TinyName, boolean][])(
    "%s without tie_word_embeddings takes what planModel and describeModel say, and as much as with its default, %s",
    async (name, tied) => {
      const { tie_word_embeddings: _, ...open } = TINY[name] as Record<string, unknown>;
      const sizes = { weights: "f32", maxSeqLen: 64 } as const;
      const plans = [open, { ...open, tie_word_embeddings: tied }, { ...open, tie_word_embeddings: !tied }].map(
        (config) => planModel(config, sizes),
      );
      expect(plans[1]).toEqual(plans[0]);
      expect(Math.sign(plans[2]!.weights - plans[0]!.weights)).toBe(tied ? 1 : -1);
      const { parameters, weightBytes, memory } = describeModel(open, { seqLen: 64 });
      expect([weightBytes.f32, memory]).toEqual([plans[0]!.weights, plans[0]]);
      expect(weightBytes.f32).toBeGreaterThanOrEqual(4 * parameters);
      using model = await loadModel(kernels, tinyFolder(open), sizes);
      expect(model.bytes).toBe(plans[0]!.weights);
      expect(await planModelFiles(tinyFolder(open), sizes)).toEqual(plans[0]);
    },
  );

  test.each([
    ["strange.weight", [3, 3]],
    ["kv_b_proj.weight", [3, 3]],
    ["sinks", [4]],
    ["q_norm.weight", [12]],
    ["q_proj.lora_A.weight", [4, 40]],
    ["q_proj.weight_scale", [1]],
    ["norm.bias", [40]],
  ] as const)("tensors of attention that Llama has not are unexpected too: %s", async (name, shape) => {
    const tensors = tinyTensors(TINY.llama);
    for (const layer of [0, 1])
      tensors.set(`model.layers.${layer}.self_attn.${name}`, {
        data: new Float32Array(shape.reduce((all: number, side) => all * side, 1)),
        shape,
      });
    expect(await refusal(TINY.llama, tensors)).toBe(
      'loadModel: tensors expected those of "llama" with 2 layers, got ' +
        `2 unexpected: model.layers.{0..1}.self_attn.${name}`,
    );
  });

  test("a bias of attention has the length of its projection", async () => {
    for (const [name, at] of [
      ["llama", "model.layers.1.self_attn.k_proj.bias"],
      ["gpt2", "transformer.h.1.attn.c_attn.bias"],
      ["phi", "model.layers.1.self_attn.q_layernorm.bias"],
      ["deepseek_v3", "model.layers.1.self_attn.q_b_proj.bias"],
    ] as const) {
      const tensors = tinyTensors(TINY[name]);
      const length = tensors.get(at)?.data.length;
      tensors.set(at, { data: new Float32Array(5), shape: [5] });
      expect(await refusal(TINY[name], tensors)).toContain(`1 of another shape: ${at} expected [${length}], got [5]`);
    }
  });

  test("masks and tables of older files are not read, whatever they are stored in", async () => {
    const config = {
      ...{ model_type: "gpt_neox", hidden_size: 40, intermediate_size: 52, num_hidden_layers: 2, vocab_size: 67 },
      ...{ num_attention_heads: 4, max_position_embeddings: 64, rotary_pct: 0.2 },
    };
    const own = tinyTensors(config);
    const stored = Array.from(own, ([name, { data, shape }]): [string, StoredTensor] => [
      name,
      { name, dtype: "F32", shape, bytes: new Uint8Array(data.buffer, data.byteOffset, data.byteLength) },
    ]);
    const mask = (name: string): [string, StoredTensor] => [
      name,
      { name, dtype: "BOOL", shape: [1, 1, 80, 80], bytes: new Uint8Array(6400) },
    ];
    const all = new Map([
      ...stored,
      ...[0, 1].map((layer) => mask(`gpt_neox.layers.${layer}.attention.bias`)),
      mask("gpt_neox.layers.0.attention.rotary_emb.inv_freq"),
    ]);
    const seen: number[][] = [];
    const options = { maxBytes: 2 ** 24, onProgress: (...each: number[]) => seen.push(each) };
    const files = new Map([["model.safetensors", writeSafetensors(all)]]);
    const folder = tinyFolder(config, own);
    (await loadModel(kernels, (name) => files.get(name) ?? folder(name), options)).release();
    const bytes = stored.reduce((sum, [, tensor]) => sum + tensor.bytes.length, 0);
    expect(seen.at(-1)).toEqual([bytes, bytes]);
  });

  test("weights are converted by part", async () => {
    const all = await loadModel(kernels, tinyFolder(TINY.llama), { weights: "q8" });
    const some = await loadModel(kernels, tinyFolder(TINY.llama), { weights: { mlp: "q8", embed: "f16" } });
    const none = await loadModel(kernels, tinyFolder(TINY.llama));
    expect([all.bytes < some.bytes, some.bytes < none.bytes]).toEqual([true, true]);
    for (const model of [all, some, none]) model.release();
  });

  test.each(["attention", "mlp", "embed"])(
    "fast activations change the products with integers of %s, by less than a tenth of the largest logit",
    async (part) => {
      const logitsOf = async (activations: "exact" | "fast", weights: LoadModelOptions["weights"]) => {
        using model = await loadModel(kernels, tinyFolder(TINY.llama), { weights, activations });
        using session = createSession(model, { maxSeqLen: 9 });
        return forward(session, [5, 6, 7], { rows: "all" }).logits;
      };
      const [exact, fast] = [await logitsOf("exact", { [part]: "q8" }), await logitsOf("fast", { [part]: "q8" })];
      const far = Math.max(...fast.map((x, i) => Math.abs(x - (exact[i] as number))));
      expect(far).toBeGreaterThan(0);
      expect(far / Math.max(...exact.map(Math.abs))).toBeLessThan(0.1);
    },
  );
});

test("a gate whose format is not that of the other factor gives the logits of one format within 1e-5 of the largest", async () => {
  const halves = [...tinyTensors(TINY.llama)].map(([name, tensor]) =>
    name.endsWith("up_proj.weight") ? ([name, quantizeTensor(tensor, "F16")] as const) : ([name, tensor] as const),
  );
  const widened = halves.map(([name, tensor]) =>
    "dtype" in tensor ? ([name, { data: toFloats(tensor), shape: tensor.shape }] as const) : ([name, tensor] as const),
  );
  const logitsOf = async (tensors: readonly (readonly [string, unknown])[]) => {
    using model = await loadModel(kernels, tinyFolder(TINY.llama, new Map(tensors as [string, Tensor][])));
    using session = createSession(model, { maxSeqLen: 9 });
    return forward(session, [5, 6, 7], { rows: "all" }).logits;
  };
  const [got, want] = [await logitsOf(halves), await logitsOf(widened)];
  const most = Math.max(...want.map(Math.abs));
  expect(Math.max(...got.map((x, i) => Math.abs(x - (want[i] as number)))) / most).toBeLessThan(1e-5);
});

describe("maxBytes", () => {
  /** Loads with a limit, and notes which tensors were read: progress counts them. */
  const load = async (maxBytes: number, options: LoadModelOptions = {}, config: object = TINY.llama) => {
    let read = 0;
    const source = tinyFolder(config);
    const before = kernels.usedBytes;
    const onProgress = (done: number) => {
      read = done;
    };
    const given = { maxSeqLen: 300, maxBytes, onProgress, ...options };
    const error = await loadModel(kernels, source, given).then(
      (model) => model.release(),
      (cause: HeadwiseError) => cause,
    );
    expect(kernels.usedBytes).toBe(before);
    return { read, error };
  };

  test.each(Object.keys(TINY) as TinyName[])(
    "%s loads with the bytes of its plan, and not with one less",
    async (name) => {
      const weights = name === "gpt2" ? ("f32" as const) : undefined;
      const { total } = planModel(TINY[name], { maxSeqLen: 300 });
      expect((await load(total, { weights }, TINY[name])).error).toBeUndefined();
      const { error, read } = await load(total - 1, { weights }, TINY[name]);
      expect([error?.code, read]).toEqual(["OUT_OF_MEMORY", 0]);
      expect(error?.message).toContain(`loadModel: options.maxBytes expected ${total} or more (`);
    },
  );

  test("the error says what fits: formats and the longest session", async () => {
    const config = { ...TINY.llama, hidden_size: 128, intermediate_size: 512, num_hidden_layers: 4, vocab_size: 2000 };
    const total = (weights: "f32" | "f16" | "q8" | "q4", maxSeqLen = 300) =>
      planModel(config, { weights, maxSeqLen, rows: Math.min(256, maxSeqLen) }).total;
    const { weights, sessions, scratch } = planModel(config, { maxSeqLen: 300 });
    const said = async (most: number) => (await load(most, {}, config)).error?.message.split("; what fits: ");
    const bytes = `${weights} of weights, ${sessions} of a session of 300 tokens, ${scratch} of calls`;
    const few = total("f32", 120);
    expect(await said(few)).toEqual([
      `loadModel: options.maxBytes expected ${total("f32")} or more (${bytes}), got ${few}`,
      expect.stringMatching(/^weights "f16", or weights "q8", or weights "q4", or maxSeqLen \d+$/),
    ]);
    const length = Number((await said(few))?.[1]?.match(/\d+$/)?.[0]);
    expect([total("f32", length) <= few, total("f32", length + 1) > few]).toEqual([true, true]);
    expect((await said(total("q8")))?.[1]).toBe('weights "q8", or weights "q4"');
    expect((await said(total("q4", 8)))?.[1]).toMatch(/^weights "q4" with maxSeqLen \d+$/);
    expect((await said(1000))?.[1]).toBe("no format");
  });

  test("the formats of the file count where none is asked for", async () => {
    const tensors = tinyTensors(TINY.llama);
    const halves = [...tensors].map(
      ([name, tensor]) => [name, tensor.shape.length < 2 ? tensor : quantizeTensor(tensor, "F16")] as const,
    );
    const folder = tinyFolder(TINY.llama, new Map<string, never>(halves as never));
    const { total } = planModel(TINY.llama, { weights: "f16", maxSeqLen: 300 });
    const options = { maxSeqLen: 300, maxBytes: total };
    (await loadModel(kernels, folder, options)).release();
    await expect(loadModel(kernels, folder, { ...options, maxBytes: total - 1 })).rejects.toMatchObject({
      message: expect.stringContaining(`expected ${total} or more`),
    });
  });

  test("a limit that is no number of bytes is refused", async () => {
    await expect(loadModel(kernels, tinyFolder(TINY.llama), { maxBytes: -1 })).rejects.toThrow(
      "loadModel: options.maxBytes expected",
    );
  });
});

describe("sources", () => {
  const config = new TextEncoder().encode(JSON.stringify(TINY.gemma2));
  const tensors = tinyTensors(TINY.gemma2);
  const names = [...tensors.keys()];
  const part = (from: number, to: number) =>
    writeSafetensors(new Map(names.slice(from, to).map((name) => [name, tensors.get(name) as Tensor])));
  const half = Math.floor(names.length / 2);
  const weightMap = Object.fromEntries(names.map((name, i) => [name, i < half ? "a.safetensors" : "b.safetensors"]));
  const files: Readonly<Record<string, Uint8Array>> = {
    "config.json": config,
    "model.safetensors.index.json": new TextEncoder().encode(JSON.stringify({ weight_map: weightMap })),
    "a.safetensors": part(0, half),
    "b.safetensors": part(half, names.length),
  };

  const logitsOf = async (source: Parameters<typeof loadModel>[1]) => {
    using model = await loadModel(kernels, source);
    using session = createSession(model, { maxSeqLen: 9 });
    return forward(session, [5, 6, 7]).logits;
  };

  test("one file, several with an index, Blobs of a page and a server give the same bits", async () => {
    const want = await logitsOf(tinyFolder(TINY.gemma2, tensors));
    expect(await logitsOf((name) => files[name])).toEqual(want);
    const blobs = Object.entries(files).map(([name, bytes]) => new File([bytes.slice()], name));
    expect(await logitsOf(blobs)).toEqual(want);
    const whole = new Map([
      ["config.json", config],
      ["model.safetensors", writeSafetensors(tensors)],
    ]);
    const server = await serveFolder((name) => whole.get(name));
    expect(await logitsOf(`${urlOf(server)}/`)).toEqual(want);
    expect(await logitsOf(new URL(urlOf(server)))).toEqual(want);
    server.close();
  });

  test.each(Object.keys(TINY) as TinyName[])(
    "%s: a folder of the host, read into the same memory again and again, gives the bits of its files",
    async (name) => {
      // A table that is read in pieces.
      const config = { ...TINY[name], vocab_size: 9001 };
      const inMemory = tinyFolder(config);
      const folder = await mkdtemp(join(tmpdir(), "headwise-folder-"));
      for (const file of ["config.json", "model.safetensors"])
        await writeFile(join(folder, file), inMemory(file) as Uint8Array);
      expect(await logitsOf(folder)).toEqual(await logitsOf(inMemory));
      await rm(folder, { recursive: true });
    },
  );

  test("weights grow memory once, and so do caches", async () => {
    const own = await kernelsOf("relaxed");
    const grow = vi.spyOn(WebAssembly.Memory.prototype, "grow");
    const times = () => grow.mock.calls.length;
    const model = await loadModel(own, tinyFolder({ ...TINY.llama, num_hidden_layers: 12, vocab_size: 9001 }));
    // Packing goes through memory of its own.
    expect(times()).toBeLessThanOrEqual(3);
    grow.mockClear();
    createSession(model, { maxSeqLen: 512 });
    expect(times()).toBe(1);
    grow.mockRestore();
    own.release();
  });

  test("a folder without config.json, or without weights, is refused", async () => {
    await expect(loadModel(kernels, () => undefined)).rejects.toThrow('expected a file "config.json", got none');
    const only = (name: string) => (name === "config.json" ? config : undefined);
    await expect(loadModel(kernels, only)).rejects.toThrow('expected a file "model.safetensors", got none');
    await expect(loadModel(kernels, "no/such/folder")).rejects.toThrow(
      'expected a file "config.json" in "no/such/folder", got none',
    );
    await expect(loadModel(kernels, 5 as never)).rejects.toThrow(/^loadModel: source expected a path, a URL, /);
  });

  test("the URL of a folder may lack its slash, and may be a string", async () => {
    const url = new URL("../../../../model", import.meta.url);
    for (const source of [url, url.href, `${url.href}/`]) {
      using model = await loadModel(kernels, source);
      expect(model.layers).toBe(2);
    }
  });

  test("the query of a folder's URL is that of its files, and digits of its path are no status", async () => {
    const whole = new Map([
      ["config.json", config],
      ["model.safetensors", writeSafetensors(tensors)],
    ]);
    const asked: string[] = [];
    const server = createServer((request, response) => {
      const [path = "", query] = (request.url ?? "").split("?");
      asked.push(request.url ?? "");
      const bytes = query === "key=a/b" ? whole.get(path.replace("/model/404/", "")) : undefined;
      if (!bytes)
        return void response.writeHead(path.includes("broken") && path.endsWith("index.json") ? 500 : 404).end();
      const [begin = 0, last = 0] = (/^bytes=(\d+)-(\d+)$/.exec(request.headers.range ?? "") ?? [])
        .slice(1)
        .map(Number);
      const end = Math.min(last + 1, bytes.length);
      response.writeHead(206, { "Content-Range": `bytes ${begin}-${end - 1}/${bytes.length}` });
      response.end(bytes.subarray(begin, end));
    });
    await new Promise<void>((resolve) => server.listen(0, "127.0.0.1", resolve));
    const want = await logitsOf(tinyFolder(TINY.gemma2, tensors));
    const at = (path: string) => `${urlOf(server)}${path}?key=a/b`;
    expect(await logitsOf(at("/404"))).toEqual(want);
    expect(await logitsOf(new URL(at("/404/")))).toEqual(want);
    expect(asked[0]).toBe("/model/404/config.json?key=a/b");
    whole.set("broken/config.json", config);
    await expect(loadModel(kernels, at("/404/broken"))).rejects.toThrow(
      /^loadModel: url "[^"]*index\.json[^"]*" expected 206 for a range, got 500$/,
    );
    server.close();
  });

  test("progress counts the bytes of all tensors, and a signal ends loading and frees all", async () => {
    const seen: number[] = [];
    const model = await loadModel(kernels, (name) => files[name], { onProgress: (done, all) => seen.push(done / all) });
    expect(seen.at(-1)).toBe(1);
    expect(seen).toEqual([...seen].sort((a, b) => a - b));
    model.release();
    const before = kernels.usedBytes;
    const stop = new AbortController();
    const onProgress = (done: number, all: number) => done > all / 2 && stop.abort(new Error("enough"));
    const loading = loadModel(kernels, (name) => files[name], { onProgress, signal: stop.signal });
    await expect(loading).rejects.toThrow("enough");
    expect(kernels.usedBytes).toBe(before);
  });

  /** A folder that calls `onRead` with the number of each read of model.safetensors. */
  function watched(name: TinyName, onRead: (count: number) => Uint8Array | undefined) {
    const folder = tinyFolder(TINY[name]);
    const file = folder("model.safetensors") as Uint8Array;
    let count = 0;
    const source = {
      size: file.length,
      read: async (offset: number, length: number) => onRead(++count) ?? file.subarray(offset, offset + length),
    };
    return {
      open: (asked: string) => (asked === "model.safetensors" ? source : folder(asked)),
      reads: () => count,
    };
  }

  test.each(["phi", "gpt_oss", "deepseek_v3"] as const)(
    "%s: loading that is aborted, or whose file fails, at any read frees all",
    async (name) => {
      const whole = watched(name, () => undefined);
      (await loadModel(kernels, whole.open)).release();
      expect(whole.reads()).toBeGreaterThan(10);
      const before = kernels.usedBytes;
      for (let at = 1; at <= whole.reads(); at++) {
        const stop = new AbortController();
        const aborted = watched(name, (count) => {
          if (count === at) stop.abort(new Error(`read ${at}`));
          return undefined;
        });
        await expect(loadModel(kernels, aborted.open, { signal: stop.signal })).rejects.toThrow(`read ${at}`);
        // Two reads give the header, which may be read as a whole.
        expect(aborted.reads()).toBeLessThanOrEqual(Math.max(at, 2));
        expect(kernels.usedBytes).toBe(before);
        const short = watched(name, (count) => (count === at ? new Uint8Array(3) : undefined));
        await expect(loadModel(kernels, short.open)).rejects.toMatchObject({ code: "BAD_FILE" });
        expect(kernels.usedBytes).toBe(before);
      }
    },
  );

  test("kernels that are released while a model loads end it", async () => {
    const own = await kernelsOf("simd");
    const { open } = watched("llama", (count) => {
      if (count === 9) own.release();
      return undefined;
    });
    await expect(loadModel(own, open)).rejects.toMatchObject({ code: "RELEASED" });
  });

  test("a signal ends a request that the server does not answer", async () => {
    const stop = new AbortController();
    const server = createServer((request, response) => {
      if (request.url?.endsWith("config.json")) {
        const range = `bytes 0-${config.length - 1}/${config.length}`;
        response.writeHead(206, { "Content-Range": range }).end(config);
      } else stop.abort(new Error("too slow"));
    });
    await new Promise<void>((resolve) => server.listen(0, "127.0.0.1", resolve));
    await expect(loadModel(kernels, urlOf(server), { signal: stop.signal })).rejects.toThrow("too slow");
    server.closeAllConnections();
    server.close();
  });

  test("a server that breaks off is asked for the rest", async () => {
    const whole = tinyFolder(TINY.gemma2, tensors);
    let cuts = 0;
    const server = createServer((request, response) => {
      const bytes = whole(request.url?.split("/").at(-1) ?? "");
      if (!bytes) return void response.writeHead(404).end();
      const [begin = 0, last = 0] = (/^bytes=(\d+)-(\d+)$/.exec(request.headers.range ?? "") ?? [])
        .slice(1)
        .map(Number);
      const end = Math.min(last + 1, bytes.length);
      response.writeHead(206, {
        "Content-Range": `bytes ${begin}-${end - 1}/${bytes.length}`,
        "Content-Length": end - begin,
      });
      if (end - begin < 2000) return void response.end(bytes.subarray(begin, end));
      cuts++;
      response.write(bytes.subarray(begin, begin + Math.ceil((end - begin) / 2)), () => response.socket?.destroySoon());
    });
    await new Promise<void>((resolve) => server.listen(0, "127.0.0.1", resolve));
    expect(await logitsOf(`${urlOf(server)}/`)).toEqual(await logitsOf(whole));
    expect(cuts).toBeGreaterThan(1);
    server.close();
  });

  test("a file that ends early is refused", async () => {
    const cut = (name: string) => (name === "b.safetensors" ? files[name]?.subarray(0, 900) : files[name]);
    await expect(loadModel(kernels, cut)).rejects.toMatchObject({ code: "BAD_FILE" });
  });
});

test("kernels without models are refused with what they lack", async () => {
  const bare = await loadKernels({ module: modulesOf("simd").module });
  await expect(loadModel(bare, tinyFolder(TINY.llama))).rejects.toMatchObject({ code: "NO_MODELS" });
  bare.release();
});

test("kernels without latent are refused for a model that needs them, before a weight is read", async () => {
  const bare = await loadKernels({ module: modulesOf("simd").module, models });
  let read = 0;
  const onProgress = () => read++;
  const loading = loadModel(bare, tinyFolder(TINY.deepseek_v3), { onProgress });
  await expect(loading).rejects.toMatchObject({
    code: "NO_LATENT",
    message: expect.stringMatching(/^loadModel: kernels expected ones that were loaded with \{ latent \}/),
  });
  expect([read, bare.usedBytes]).toEqual([0, 0]);
  bare.release();
});

describe("maxSeqLen", () => {
  test("is the default of sessions, which otherwise have at most 4096 tokens", async () => {
    const config = { ...TINY.llama, max_position_embeddings: 8192 };
    for (const [given, length] of [
      [undefined, 4096],
      [5000, 5000],
      [9000, 9000],
    ]) {
      using model = await loadModel(kernels, tinyFolder(config), { maxSeqLen: given });
      using session = createSession(model);
      expect(session.maxSeqLen).toBe(length);
    }
  });

  test("is at most the table of positions", async () => {
    const said = "maxSeqLen expected at most 320, the positions of the model, got 321";
    await expect(loadModel(kernels, tinyFolder(TINY.gpt2), { maxSeqLen: 321 })).rejects.toThrow(`loadModel: ${said}`);
    expect(() => planModel(TINY.gpt2, { maxSeqLen: 321 })).toThrow(`planModel: ${said}`);
    using model = await loadModel(kernels, tinyFolder(TINY.gpt2));
    expect(() => createSession(model, { maxSeqLen: 321 })).toThrow(`createSession: ${said}`);
    const { n_positions: _, ...config } = TINY.gpt2;
    expect(planModel(config).sessions).toBe(planModel(config, { maxSeqLen: 1024 }).sessions);
  });
});

test("planModel names a model_type that is missing, and takes no path", () => {
  const { model_type: _, ...untyped } = TINY.llama;
  for (const config of [{}, untyped, "{}"])
    expect(() => planModel(config)).toThrow("planModel: model_type expected the type of the model, got undefined");
  expect(() => planModel("model/config.json")).toThrow(
    'planModel: config expected valid JSON, got "model/config.json": pass the text of the file, not its path',
  );
  expect(() => planModel("{ a path }")).toThrow('planModel: config expected valid JSON, got "{ a path }"');
});

test("a session that memory cannot hold is refused before a cache is allocated", async () => {
  using model = await loadModel(kernels, tinyFolder(TINY.llama));
  const [used, size] = [kernels.usedBytes, kernels.memoryBytes];
  const maxSeqLen = 2 ** 24;
  const { sessions } = planModel(TINY.llama, { maxSeqLen });
  const room = 2 ** 32 - 2 ** 16 - used;
  const rule = `a session of at most ${room} bytes, as many as memory may grow`;
  expect(() => createSession(model, { maxSeqLen })).toThrow(
    `createSession: maxSeqLen expected ${rule}, got ${maxSeqLen} with ${sessions}`,
  );
  expect([kernels.usedBytes, kernels.memoryBytes]).toEqual([used, size]);
});
