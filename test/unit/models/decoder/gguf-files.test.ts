// Where loadModel takes a GGUF file from, and files that it refuses: nothing stays allocated then.

import { mkdtemp, rm, writeFile } from "node:fs/promises";
import type { Server } from "node:http";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { pathToFileURL } from "node:url";
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { GGML_FORMATS } from "../../../../src/base/tensor/ggml-blocks.ts";
import type { Kernels } from "../../../../src/entries/core.ts";
import type { ModelSource } from "../../../../src/entries/models.ts";
import { forward } from "../../../../src/models/decoder/forward.ts";
import { createSession } from "../../../../src/models/decoder/session.ts";
import { type LoadModelOptions, loadModel } from "../../../../src/models/load/load-model.ts";
import { gguf } from "../../../../src/models/spec/read-gguf.ts";
import { f32, list, text, u16, u32, writeGguf } from "../../../support/gguf-writer.ts";
import { kernelsOf } from "../../../support/layers.ts";
import { serveFolder, urlOf } from "../../../support/range-server.ts";
import { type GgufModel, ggufModel } from "../../../support/tiny-gguf.ts";
import { TINY, tinyFolder, tinyTensors } from "../../../support/tiny-models.ts";

let kernels: Kernels;
beforeAll(async () => {
  kernels = await kernelsOf("relaxed");
});
afterAll(() => kernels.release());

const LLAMA = { ...TINY.llama, rms_norm_eps: 2 ** -14 };
const MIXTRAL = { ...LLAMA, model_type: "mixtral", num_local_experts: 5, num_experts_per_tok: 2 };
const modelOf = (config: object): GgufModel => ggufModel(config, tinyTensors(config));
const BYTES = writeGguf(modelOf(LLAMA));

async function logitsOf(source: ModelSource, options: LoadModelOptions = {}): Promise<Float32Array> {
  using model = await loadModel(kernels, source, { ...options, gguf });
  using session = createSession(model, { maxSeqLen: 9 });
  return forward(session, [5, 6, 7]).logits;
}

/** What loading says, with all memory free afterwards. */
async function refusal(source: ModelSource, options: LoadModelOptions = {}): Promise<string> {
  const before = kernels.usedBytes;
  const error = await loadModel(kernels, source, { ...options, gguf }).then(
    (model) => model.release(),
    (cause: Error & { code?: string }) => cause,
  );
  expect(kernels.usedBytes).toBe(before);
  if (error === undefined) return "loaded";
  expect([error.code, error.constructor.name]).toEqual(["BAD_FILE", "HeadwiseError"]);
  return error.message;
}

/** The files of a model in parts, tensors in turns. */
function partsOf(
  { metadata, tensors }: GgufModel,
  count: number,
  numbered = true,
): Map<string, Uint8Array<ArrayBuffer>> {
  const digits = (n: number) => `${n}`.padStart(5, "0");
  return new Map(
    Array.from({ length: count }, (_, part) => {
      const split = {
        ...(numbered && { "split.no": u16(part) }),
        "split.count": u16(count),
        "split.tensors.count": u32(tensors.length),
      };
      const own = tensors.filter((_, i) => i % count === part);
      const bytes = writeGguf({ metadata: part === 0 ? { ...metadata, ...split } : split, tensors: own });
      return [`tiny-${digits(part + 1)}-of-${digits(count)}.gguf`, bytes];
    }),
  );
}

/** Runs with a folder that has these files, on the host and on a server. */
async function withFolder<T>(
  files: ReadonlyMap<string, Uint8Array>,
  run: (folder: string, url: string) => Promise<T>,
): Promise<T> {
  const folder = await mkdtemp(join(tmpdir(), "headwise-gguf-"));
  for (const [name, bytes] of files) await writeFile(join(folder, name), bytes);
  const server: Server = await serveFolder((name) => files.get(name));
  try {
    return await run(folder, urlOf(server));
  } finally {
    server.close();
    await rm(folder, { recursive: true });
  }
}

describe("sources", () => {
  const file = new File([BYTES], "tiny.gguf");
  const source = { size: BYTES.length, read: async (at: number, n: number) => BYTES.subarray(at, at + n) };

  test("bytes, a Blob, a source, a list, a path, a file: URL and a server give the same bits", async () => {
    const want = await logitsOf(BYTES);
    for (const each of [BYTES.buffer, new Blob([BYTES]), file, source, [file]] as const)
      expect(await logitsOf(each)).toEqual(want);
    await withFolder(new Map([["a b#ü%.gguf", BYTES]]), async (folder, url) => {
      const path = join(folder, "a b#ü%.gguf");
      const address = `${url}/${encodeURIComponent("a b#ü%.gguf")}?download=true`;
      for (const each of [path, pathToFileURL(path), pathToFileURL(path).href, new URL(address), address])
        expect(await logitsOf(each)).toEqual(want);
    });
  });

  test("parts by path, URL and list, whichever is named, give the bits of one file", async () => {
    const want = await logitsOf(BYTES);
    const parts = partsOf(modelOf(LLAMA), 3);
    const files = Array.from(parts, ([name, bytes]) => new File([bytes], name));
    expect(await logitsOf(files)).toEqual(want);
    expect(await logitsOf([...files].reverse())).toEqual(want);
    await withFolder(parts, async (folder, url) => {
      for (const name of parts.keys()) {
        expect(await logitsOf(join(folder, name))).toEqual(want);
        expect(await logitsOf(`${url}/${name}`)).toEqual(want);
      }
    });
  });

  test("a part that is missing, renamed, or has another's tensor is refused", async () => {
    const parts = partsOf(modelOf(LLAMA), 3);
    const [first, second, third] = Array.from(parts, ([name, bytes]) => new File([bytes], name)) as [File, File, File];
    expect(await refusal([first, third])).toBe(
      'loadModel: source expected a file "tiny-00002-of-00003.gguf", got none',
    );
    await withFolder(parts, async (folder) => {
      await rm(join(folder, "tiny-00003-of-00003.gguf"));
      expect(await refusal(join(folder, "tiny-00001-of-00003.gguf"))).toContain(
        'expected a file "tiny-00003-of-00003.gguf" in ',
      );
    });
    expect(await refusal([first, second, third, new File([BYTES], "mmproj.gguf")])).toBe(
      'loadModel: source expected one GGUF file, or the parts of one, got "tiny-00001-of-00003.gguf" and "mmproj.gguf"',
    );
    const alone = new File([first], "tiny.gguf");
    expect(await refusal([alone])).toBe(
      'loadModel: source expected 3 files named "NAME-00001-of-00003.gguf", got "tiny.gguf"',
    );
    expect(await refusal(await first.arrayBuffer())).toContain('expected 3 files named "NAME-00001-of-00003.gguf"');
    const two = [new File([first], "tiny-00001-of-00002.gguf"), new File([second], "tiny-00002-of-00002.gguf")];
    expect(await refusal(two)).toContain('expected 3 files named "NAME-00001-of-00003.gguf"');
    const turned = [first, new File([third], second.name), new File([second], third.name)];
    expect(await refusal(turned)).toBe('loadModel: key "split.no" of "tiny-00002-of-00003.gguf" expected 1, got 2');
    const others = partsOf(modelOf({ ...LLAMA, num_hidden_layers: 3 }), 3);
    const mixed = [first, new File([others.get(second.name) as BlobPart], second.name), third];
    expect(await refusal(mixed)).toMatch(
      /^loadModel: key "split.tensors.count" of "tiny-00002-of-00003.gguf" expected 34, got 50$/,
    );
    const silent = partsOf(modelOf(LLAMA), 3, false);
    const [a, b, c] = Array.from(silent, ([name, bytes]) => new File([bytes], name)) as [File, File, File];
    expect(await refusal([a, b, new File([b], c.name)])).toMatch(
      /^loadModel: tensor ".*" expected in one file, got it in two$/,
    );
    expect(await refusal([new File([first], "tiny-00001-of-00000.gguf")])).toContain("expected 3 files named");
  });

  test("without the option gguf, bytes of safetensors are refused as such, and GGUF with what reads it", async () => {
    const safetensors = tinyFolder(LLAMA)("model.safetensors") as Uint8Array<ArrayBuffer>;
    for (const source of [safetensors, new Blob([safetensors])])
      await expect(loadModel(kernels, source)).rejects.toMatchObject({
        code: "BAD_FILE",
        message:
          "loadModel: source expected a GGUF file, got a safetensors file: openSafetensors reads it, and loadModel its folder, or a list with its config.json",
      });
    const rule = "one of safetensors, or options with { gguf }, which headwise/models exports";
    for (const [source, got] of [
      [BYTES, "bytes"],
      ["none/tiny.gguf", '"tiny.gguf"'],
    ] as const)
      await expect(loadModel(kernels, source)).rejects.toMatchObject({
        ...{ code: "NO_GGUF", message: `loadModel: source expected ${rule}, got ${got}` },
      });
  });

  test("a safetensors file alone is refused with what is needed", async () => {
    const file = tinyFolder(LLAMA)("model.safetensors") as Uint8Array<ArrayBuffer>;
    for (const each of [file, new Blob([file])])
      expect(await refusal(each)).toMatch(
        /expected a GGUF file, got a safetensors file: openSafetensors reads it, and loadModel its folder, or a list with/,
      );
    for (const each of ["model/model.safetensors", "https://example.com/x/model.safetensors?a=b"])
      expect(await refusal(each)).toBe(
        "loadModel: source expected the folder of config.json and model.safetensors, or a GGUF file, " +
          'got "model.safetensors"',
      );
    expect(await refusal([new File([file], "model.safetensors")])).toContain('expected a file "config.json", got none');
  });

  test.each([
    ["one file", LLAMA, 1],
    ["parts", LLAMA, 3],
    ["experts", MIXTRAL, 1],
  ])(
    "progress ends at the bytes of all tensors, and a signal ends loading at any read: %s",
    async (_, config, count) => {
      const model = modelOf(config);
      const files = Array.from(partsOf(model, count), ([name, bytes]) => new File([bytes], name));
      const all = model.tensors.reduce((sum, { bytes }) => sum + bytes.length, 0);
      const seen: [number, number][] = [];
      (await loadModel(kernels, files, { gguf, onProgress: (done, all) => seen.push([done, all]) })).release();
      expect(seen.at(-1)).toEqual([all, all]);
      expect(seen.every(([done, total], i) => total === all && done >= (seen[i - 1]?.[0] ?? 0))).toBe(true);
      const before = kernels.usedBytes;
      for (const stopAt of [0, Math.floor(seen.length / 2), seen.length - 2]) {
        const stop = new AbortController();
        let calls = 0;
        const onProgress = () => calls++ === stopAt && stop.abort(new Error("enough"));
        await expect(loadModel(kernels, files, { gguf, onProgress, signal: stop.signal })).rejects.toThrow("enough");
        expect(kernels.usedBytes).toBe(before);
      }
    },
  );
});

describe("hostile files", () => {
  /** What loading says of the model of `config` after `change`. */
  const said = (change: (model: GgufModel) => void, config: object = LLAMA) => {
    const model = modelOf(config);
    change(model);
    return refusal(writeGguf(model));
  };
  const setKey = (key: string, value: GgufModel["metadata"][string]) => (model: GgufModel) => {
    model.metadata[key] = value;
  };
  const without = (pattern: RegExp) => (model: GgufModel) => {
    model.tensors.splice(0, model.tensors.length, ...model.tensors.filter(({ name }) => !pattern.test(name)));
  };

  test.each([
    ["general.architecture", 'key "general.architecture" expected a supported decoder, got undefined'],
    ["llama.block_count", 'key "llama.block_count" expected an integer >= 1, got undefined'],
    ["llama.context_length", 'key "llama.context_length" expected an integer >= 1, got undefined'],
    ["llama.embedding_length", 'key "llama.embedding_length" expected an integer >= 1, got undefined'],
    ["llama.feed_forward_length", 'key "llama.feed_forward_length" expected an integer >= 1, got undefined'],
    ["llama.attention.head_count", 'key "llama.attention.head_count" expected an integer >= 1, got undefined'],
    [
      "llama.attention.layer_norm_rms_epsilon",
      'key "llama.attention.layer_norm_rms_epsilon" expected a finite float32 number > 0, got undefined',
    ],
  ])("a file without the key %s is refused by it", async (key, message) => {
    expect(await said(({ metadata }) => delete metadata[key])).toContain(`loadModel: ${message}`);
  });

  test.each([
    ["lama", 'expected a supported decoder (nearest: "llama"), got "lama"'],
    ["bert", 'expected one that loadModel reads, got "bert", which loadEncoder reads'],
    ["nomic-bert", 'expected one that loadModel reads, got "nomic-bert", which loadEncoder reads'],
    ["dream", 'expected one that is read whole, got "dream", whose layers readGgufLayer reads'],
    ["mamba", 'got "mamba", which has state-space layers instead of attention'],
    ["toString", 'got "toString"'],
  ])("the architecture %s is refused", async (name, message) => {
    const answer = await said(setKey("general.architecture", text(name)));
    expect(answer).toContain('loadModel: key "general.architecture" expected ');
    expect(answer).toContain(message);
  });

  test.each([
    ["llama.attention.layer_norm_rms_epsilon", f32(Number.NaN), "expected a finite float32 number > 0, got NaN"],
    ["llama.attention.layer_norm_rms_epsilon", f32(-1), "expected a finite float32 number > 0, got -1"],
    ["llama.attention.layer_norm_rms_epsilon", text("1e-5"), 'expected a finite float32 number > 0, got "1e-5"'],
    ["llama.block_count", u32(2 ** 31), "expected an integer >= 1, got 2147483648"],
    ["llama.block_count", u32(2 ** 31 - 1), "expected at most 10000, got 2147483647"],
    ["llama.attention.head_count", u32(0), "expected an integer >= 1, got 0"],
    ["llama.attention.head_count_kv", u32(3), "expected a divisor of 4 heads, got 3"],
    ["llama.attention.head_count", list(4, [4]), "expected an integer >= 1 for layer 1, got undefined"],
    ["llama.attention.head_count_kv", list(4, [2, 0]), "expected heads in layer 1, since "],
    ["llama.rope.scaling.type", text("longrope"), 'expected "none", "linear" or "yarn", since others are unsupported'],
    ["llama.attention.clamp_kqv", f32(8), "expected absent, since it is unsupported, got 8"],
  ])("a value that cannot be is refused by its key: %s %o", async (key, value, message) => {
    expect(await said(setKey(key, value))).toContain(`loadModel: key "${key}" ${message}`);
  });

  test.each(["long", "short"])("a file of longrope without its %s factors is refused by their tensor", async (kind) => {
    const factors = { short_factor: [1, 1, 1.5, 2, 2, 2.5], long_factor: [1, 2, 3, 5, 6, 8] };
    const trained = { original_max_position_embeddings: 128, rope_scaling: { type: "longrope", ...factors } };
    expect(
      await said(without(new RegExp(kind)), { ...LLAMA, ...trained, model_type: "phi3", tie_word_embeddings: false }),
    ).toBe(
      `loadModel: tensor "rope_factors_${kind}.weight" expected in a file with the other factors of longrope, got none`,
    );
  });

  test("a table of positions that has one dimension is refused", async () => {
    const flat = ({ tensors }: GgufModel) => {
      const at = tensors.findIndex((tensor) => tensor.name === "position_embd.weight");
      const { shape, ...rest } = tensors[at] as GgufModel["tensors"][number];
      tensors[at] = { ...rest, shape: [shape.reduce((a, b) => a * b, 1)] };
    };
    expect(await said(flat, { ...TINY.gpt2, layer_norm_epsilon: 2 ** -14 })).toBe(
      'loadModel: tensor "position_embd.weight" expected two dimensions, got [11520]',
    );
  });

  test("more layers than tensors, and counts that contradict their shapes, are refused", async () => {
    expect(await said(setKey("llama.block_count", u32(3)))).toContain("9 missing: blk.2.attn_q.weight, ");
    expect(await said(setKey("llama.feed_forward_length", u32(53)))).toContain(
      "10 of another shape: blk.{0..1}.ffn_gate.weight expected [53, 40], got [52, 40], ",
    );
    expect(await said(setKey("llama.attention.head_count", list(4, [4, 2])))).toContain(
      "blk.1.attn_q.weight expected [24, 40], got [48, 40]",
    );
  });

  test("sessions of a file whose table has fewer positions than its context_length have as many by default", async () => {
    const config = { ...TINY.gpt2, layer_norm_epsilon: 2 ** -14 };
    const model = modelOf(config);
    model.metadata["gpt2.context_length"] = u32(4096);
    using loaded = await loadModel(kernels, writeGguf(model), { gguf });
    using session = createSession(loaded);
    expect(session.maxSeqLen).toBe(config.n_positions);
  });

  test("heads may be stated for each layer", async () => {
    const model = modelOf(LLAMA);
    model.metadata["llama.attention.head_count"] = list(4, [4, 4]);
    model.metadata["llama.attention.head_count_kv"] = list(4, [2, 2]);
    expect(await logitsOf(writeGguf(model))).toEqual(await logitsOf(BYTES));
  });

  test("all tensors that are missing, too many or of another shape are in one error", async () => {
    const change = (model: GgufModel) => {
      without(/^(token_embd|output_norm|blk\.\d\.(attn_q|attn_norm|ffn_down))\.weight$/)(model);
      model.tensors.push({ name: "blk.1.attn_gate.weight", type: 0, shape: [2], bytes: new Uint8Array(8) });
      const bias = model.tensors.find(({ name }) => name === "blk.0.attn_k.bias") as { shape: readonly number[] };
      bias.shape = [23];
    };
    expect(await said(change)).toBe(
      'loadModel: tensors expected those of "llama" with 2 layers, got ' +
        "8 missing: token_embd.weight, output_norm.weight, blk.{0..1}.attn_q.weight, blk.{0..1}.attn_norm.weight, " +
        "blk.{0..1}.ffn_down.weight; 1 unexpected: blk.1.attn_gate.weight; " +
        "1 of another shape: blk.0.attn_k.bias expected [24], got [23]",
    );
  });

  test.each([
    ["expert_count", u32(4), "blk.{0..1}.ffn_gate_exps.weight expected [4, 52, 40], got [5, 52, 40]"],
    ["expert_count", u32(1), "expected at most the 1 experts, got 2"],
    ["expert_used_count", u32(6), "expected at most the 5 experts, got 6"],
    ["expert_used_count", u32(0), "expected an integer >= 1, got 0"],
    ["expert_gating_func", u32(9), "expected 1 (softmax), 2 (sigmoid) or 3 (softmax of the chosen), got 9"],
    ["expert_group_count", u32(2), "expected a divisor of the 5 experts, got 2"],
    ["expert_group_used_count", u32(2), "expected groups of the 1 with 2 experts, got 2"],
  ])("experts that contradict each other are refused: %s %o", async (key, value, message) => {
    expect(await said(setKey(`llama.${key}`, value), MIXTRAL)).toContain(message);
  });

  test.each([
    [9, "Q8_1", 36, 32],
    [24, "I8", 1, 1],
    [28, "F64", 8, 1],
  ])("type %i is refused by its name, %s, wherever it is", async (type, name, bytes, length) => {
    const config = { ...LLAMA, hidden_size: 32, intermediate_size: 64, head_dim: 8 };
    for (const tensor of ["token_embd.weight", "blk.0.attn_q.weight", "blk.1.ffn_down.weight", "output_norm.weight"]) {
      const change = (model: GgufModel) => {
        const own = model.tensors.find((each) => each.name === tensor) as { type: number; bytes: Uint8Array };
        own.type = type;
        own.bytes = new Uint8Array((own.bytes.length / 4 / length) * bytes);
      };
      expect(await said(change, config)).toMatch(new RegExp(`tensor "${tensor}" expected .*F32.*, got ${name}$`));
    }
  });

  /** Types of blocks: their numbers, elements and bytes. */
  const BLOCKS: Readonly<Record<string, readonly [type: number, length: number, bytes: number, tail?: number]>> = {
    ...{ Q4_0: [2, 32, 18], Q4_1: [3, 32, 20], Q5_0: [6, 32, 22], Q5_1: [7, 32, 24], Q8_0: [8, 32, 34] },
    ...{ Q2_K: [10, 256, 84], Q3_K: [11, 256, 110], Q4_K: [12, 256, 144], Q5_K: [13, 256, 176], Q6_K: [14, 256, 210] },
    ...{ IQ4_NL: [20, 32, 18], IQ4_XS: [23, 256, 136], TQ1_0: [34, 256, 54], TQ2_0: [35, 256, 66] },
    ...{ Q1_0: [41, 128, 18], Q2_0: [42, 64, 18], I2_S: [36, 128, 32, 32] },
    ...{ MXFP4: [39, 32, 17], NVFP4: [40, 64, 36], IQ1_S: [19, 256, 50], IQ1_M: [29, 256, 56], IQ2_XXS: [16, 256, 66] },
    ...{ IQ2_XS: [17, 256, 74], IQ2_S: [22, 256, 82], IQ3_XXS: [18, 256, 98], IQ3_S: [21, 256, 110] },
  };

  test.each(Object.entries(BLOCKS))("%s: a file that ends within its blocks is refused", async (_, block) => {
    const [type, length, bytes, tail = 0] = block;
    const config = { ...LLAMA, hidden_size: 256, num_hidden_layers: 1, head_dim: 16 };
    const model = modelOf(config);
    const last = model.tensors.findIndex(({ name }) => name === "blk.0.ffn_up.weight");
    const [own] = model.tensors.splice(last, 1) as [GgufModel["tensors"][number]];
    const blocks = new Uint8Array((own.bytes.length / 4 / length) * bytes + tail);
    const whole = writeGguf({ ...model, tensors: [...model.tensors, { ...own, type, bytes: blocks }] });
    expect(await refusal(whole)).toBe("loaded");
    for (const less of [1, bytes])
      expect(await refusal(whole.subarray(0, whole.length - less))).toContain(
        `tensor "blk.0.ffn_up.weight" expected to end within the file (${whole.length - less} bytes)`,
      );
    let reads = 0;
    const short = {
      size: whole.length,
      read: async (at: number, n: number) =>
        whole.slice(at, Math.min(at + n, reads++ < 1 ? 2 ** 16 : whole.length - 1)),
    };
    expect(await refusal(short)).toContain("source expected ");
  });

  test("every type that is widened is among them", () => {
    expect(Object.keys(GGML_FORMATS).filter((name) => !(name in BLOCKS))).toEqual([]);
  });

  test("a vocabulary of any size is skipped, and one that cannot be is refused", async () => {
    const words = Array.from({ length: 200_000 }, (_, i) => `word${i}`);
    const model = modelOf(LLAMA);
    model.metadata["tokenizer.ggml.tokens"] = list(8, words);
    model.metadata["tokenizer.chat_template"] = text("{{ messages }}".repeat(100_000));
    expect(await logitsOf(writeGguf(model))).toEqual(await logitsOf(BYTES));
    const bytes = writeGguf(model);
    // The count of words, behind the name of their key, the two types and the length of the name.
    const at = Buffer.from(bytes.buffer).indexOf("tokenizer.ggml.tokens") + "tokenizer.ggml.tokens".length + 8;
    for (const count of [2n ** 40n, 2n ** 60n, 2n ** 21n]) {
      new DataView(bytes.buffer).setBigUint64(at, count, true);
      expect(await refusal(bytes)).toContain('key "tokenizer.ggml.tokens" expected ');
    }
  });
});
