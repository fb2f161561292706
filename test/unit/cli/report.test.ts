// `headwise report`.

import { mkdirSync, readFileSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { describe, expect, test } from "vitest";
import { attendWithMaps, createAttention } from "../../../src/entries/core.ts";
import { createLatentAttention } from "../../../src/entries/latent.ts";
import { quantizeReport } from "../../../src/entries/quantized.ts";
import {
  convertToMla,
  fromHfConfig,
  readAttentionWeights,
  readSafetensors,
  toFloats,
} from "../../../src/entries/weights.ts";
import { DeviationSum, divergence } from "../../../src/tools/diagnostics/quantize-report.ts";
import { runCli } from "../../support/cli.ts";
import { V2 } from "../../support/deepseek-layers.ts";
import { kernelsOf } from "../../support/layers.ts";
import { createSmallFiles } from "../../support/small-files.ts";

const { at, model, tensor, write } = createSmallFiles();

/** Runs `headwise ...args`. */
const run = (...args: string[]) => runCli(args);

describe("report", () => {
  const config = {
    model_type: "llama",
    hidden_size: 64,
    num_attention_heads: 4,
    num_key_value_heads: 4,
    num_hidden_layers: 1,
  };
  const prepare = () => {
    writeFileSync(at("config.json"), JSON.stringify(config));
    const files = [
      write("layer.safetensors", model),
      write("samples.safetensors", { a: tensor(9, 64), b: tensor(3, 64) }),
    ];
    return ["report", ...files, "--config", at("config.json")];
  };

  test("prints what quantizeReport measures, as a table", async () => {
    const args = prepare();
    const { status, stdout, stderr } = run(...args);
    expect([status, stderr]).toEqual([0, ""]);
    using kernels = await kernelsOf("simd");
    const [, layer, inputs] = args as [string, string, string];
    const weights = readAttentionWeights(readFileSync(layer), "model.layers.0.self_attn.");
    const attention = createAttention(kernels, fromHfConfig(config, 0), weights);
    const samples = Array.from(readSafetensors(readFileSync(inputs)).tensors.values(), (each) => toFloats(each));
    const results = quantizeReport(attention, samples);
    // The configuration beside the model is the default.
    expect(run("report", layer, inputs)).toMatchObject({ status: 0, stdout });
    const [title, empty, head, ...rows] = stdout.trimEnd().split("\n");
    expect([title, empty]).toEqual(["model.layers.0.self_attn.: 4 heads, 2 samples, 12 tokens", ""]);
    expect(head?.split(/ {2,}/)).toEqual(
      "weights,cache,weights KB,cache KB,relative,largest,1 - cosine,head,divergence".split(","),
    );
    expect(
      new Set(
        stdout
          .trimEnd()
          .split("\n")
          .slice(2)
          .map(({ length }) => length),
      ).size,
    ).toBe(1);
    expect(rows.length).toBe(results.length);
    for (const [i, row] of rows.entries()) {
      const { output, weightBytes, cacheBytes } = results[i]!;
      const cells = row.split(/ {2,}/);
      expect(cells.slice(2, 6)).toEqual([
        (weightBytes / 1000).toFixed(1),
        (cacheBytes / 1000).toFixed(1),
        output.relative.toExponential(1),
        output.largest.toExponential(1),
      ]);
    }
    expect(rows[2]).toMatch(/^v f16 +f32 /);
    expect(rows.at(-8)).toMatch(/^f32 +keys q8 /);
    expect(rows.at(-1)).toMatch(/^q4 +q8 /);
  });

  test("takes samples of shape [1, tokens, dModel] as those of [tokens, dModel]", () => {
    const args = prepare();
    const { data } = tensor(9, 64);
    const runWith = (shape: number[], floats: Float32Array) =>
      run(...args.with(2, write("rank.safetensors", { a: { data: floats, shape } })));
    const three = runWith([1, 9, 64], data);
    expect(three).toMatchObject({ status: 0, stderr: "" });
    expect(three.stdout).toBe(runWith([9, 64], data).stdout);
    for (const shape of [[3, 3, 64], [1, 1, 9, 64], [9 * 64], [1, 0, 64], [9, 2, 32]]) {
      const length = shape.reduce((a, b) => a * b, 1);
      expect(runWith(shape, new Float32Array(length))).toMatchObject({
        status: 2,
        stderr: `headwise report: ${at("rank.safetensors")}: a expected shape [tokens, 64], got [${shape.join(", ")}]\n`,
      });
    }
  });

  test("--mla prints what conversion to latent attention of each rank changes", async () => {
    const folder = at("gpt2");
    mkdirSync(folder);
    const gpt2 = { model_type: "gpt2", n_embd: 64, n_head: 4, n_layer: 1, n_positions: 128 };
    writeFileSync(join(folder, "config.json"), JSON.stringify(gpt2));
    const parts = { "c_attn.weight": [64, 192], "c_attn.bias": [192], "c_proj.weight": [64, 64], "c_proj.bias": [64] };
    const layer = Object.entries(parts).map(([name, shape]) => [`h.0.attn.${name}`, tensor(...shape)] as const);
    const model = write("gpt2/model.safetensors", Object.fromEntries(layer));
    const inputs = write("gpt2/samples.safetensors", { a: tensor(9, 64), b: tensor(3, 64) });
    const args = ["report", model, inputs, "--prefix", "h.0.attn.", "--mla"];
    const { status, stdout, stderr } = run(...args);
    expect([status, stderr]).toEqual([0, ""]);
    const [title, empty, head, before, ...rows] = stdout.trimEnd().split("\n");
    expect([title, empty]).toEqual(["h.0.attn.: 4 heads, 2 samples, 12 tokens", ""]);
    expect(head?.split(/ {2,}/)).toEqual(
      "rank,keys,values,relative,largest,divergence,bytes a token,of before".split(","),
    );
    expect(before?.split(/ {2,}/)).toEqual(["before", "512", "100.0 %"]);
    // Eighths of the full rank, 64 and one for the biases, in whole panels of 8.
    expect(rows.map((row) => row.split(/ {2,}/)[0])).toEqual(["16", "24", "32", "40", "48", "56", "64", "65"]);

    // What the functions of the package give for rank 24.
    using kernels = await kernelsOf("simd");
    const prefix = "h.0.attn.";
    const config = fromHfConfig(gpt2, { prefix });
    const weights = readAttentionWeights(readFileSync(model), prefix, config);
    const converted = convertToMla(weights, config, { rank: 24 });
    const given = createAttention(kernels, config, weights);
    const latent = createLatentAttention(kernels, converted.config, converted.weights);
    const output = new DeviationSum();
    let divergences = 0;
    for (const each of readSafetensors(readFileSync(inputs)).tensors.values()) {
      const [want, got] = [attendWithMaps(given, toFloats(each)), attendWithMaps(latent, toFloats(each))];
      output.add(want.y, got.y, 0, want.y.length);
      divergences += divergence(want.maps.data, got.maps.data, 0, want.maps.data.length);
    }
    const { key, value } = converted.errors[23]!;
    const { relative, largest } = output.result();
    expect(rows[1]?.split(/ {2,}/)).toEqual([
      "24",
      ...[key, value, relative, largest, divergences / (4 * 12)].map((number) => number.toExponential(1)),
      ...["96", "18.8 %"],
    ]);
    const exact = rows.at(-1)?.split(/ {2,}/) ?? [];
    expect([exact[0], exact[1], exact[2], exact[6]]).toEqual(["65", "0", "0", "288"]);
    expect(Number(exact[3])).toBeLessThan(2 ** -18);
    expect(Number(exact[5])).toBeLessThan(1e-9);

    const cellsOf = (text: string) =>
      text
        .trimEnd()
        .split("\n")
        .slice(4)
        .map((row) => row.split(/ {2,}/));
    const few = cellsOf(run(...args, "--ranks", "24,3").stdout);
    expect(few.map(([rank]) => rank)).toEqual(["24", "3"]);
    expect(few[0]).toEqual(rows[1]?.split(/ {2,}/));
    const refused: readonly (readonly [args: readonly string[], text: string])[] = [
      [[...args, "--ranks", "66"], "--ranks expected at most 65 for this layer, got 66 (see headwise report --help)"],
      [[...args, "--ranks", "8,"], "--ranks expected an integer from 1 to 2147483647, got "],
      [["report", model, inputs, "--prefix", "h.0.attn.", "--ranks", "8"], "--ranks expected --mla, got none"],
      [
        [...prepare(), "--mla"],
        `${at("layer.safetensors")}: config.rope expected rotated rows of wk that are the same for all 4 key-value heads, because`,
      ],
    ];
    for (const [given, text] of refused) {
      const got = run(...given);
      expect([got.status, got.stdout]).toEqual([2, ""]);
      expect(got.stderr).toContain(`headwise report: ${text}`);
      expect(got.stderr.trimEnd().split("\n").length).toBe(1);
    }
  });

  test("an error is one line with its exit code", () => {
    const args = prepare();
    const [, layer, inputs, ...options] = args as [string, string, string, ...string[]];
    const latent = at("latent.json");
    writeFileSync(latent, JSON.stringify(V2));
    const whisper = at("whisper.json");
    const sides = { encoder_layers: 1, decoder_layers: 1, encoder_attention_heads: 4, decoder_attention_heads: 4 };
    writeFileSync(whisper, JSON.stringify({ model_type: "whisper", d_model: 64, ...sides }));
    const rows: [args: string[], status: number, text: string][] = [
      [
        ["report", layer],
        2,
        "headwise report: expected two files, MODEL and SAMPLES, got 1 (see headwise report --help)",
      ],
      [
        [...args, "--prefix", "model.decoder.layers.0.encoder_attn."],
        2,
        `headwise report: ${at("config.json")}: prefix expected "decoder" for "llama", which has no other part, got "model.decoder.layers.0.encoder_attn."`,
      ],
      [
        [...args, "--part", "both"],
        2,
        "headwise report: --part expected encoder, decoder, cross, got both (see headwise report --help)",
      ],
      [
        [...args, "--layer", "1", "--prefix", "model.layers.0.self_attn."],
        2,
        "headwise report: --layer expected 0, as in prefix model.layers.0.self_attn., got 1",
      ],
      [
        ["report", layer, inputs, "--config", latent],
        2,
        `headwise report: ${latent}: model_type expected attention that createAttention computes, got latent attention (MLA), which headwise run runs`,
      ],
      [[...args, "--layer", "x"], 2, "headwise report: --layer expected an integer from 0 to 1048576, got x"],
      [[...args, "--layer", "1e3"], 2, "headwise report: --layer expected an integer from 0 to 1048576, got 1e3"],
      [
        [...args, "--layer", "1"],
        2,
        "headwise report: --layer expected an integer from 0 to 0, got 1 (see headwise report --help)",
      ],
      [
        ["report", layer, inputs, "--config", whisper, "--part", "cross"],
        2,
        "headwise report: --prefix expected self-attention, got model.layers.0.self_attn., cross-attention, which headwise run --keys runs",
      ],
      [[...args, "--prefix", "no."], 2, `headwise report: ${layer}: `],
      [["report", layer, layer, ...options], 2, `headwise report: ${layer}: `],
      [
        ["report", layer, at("config.json"), ...options],
        2,
        `headwise report: ${at("config.json")}: source expected a safetensors file, got JSON text`,
      ],
    ];
    for (const [args, status, text] of rows) {
      const got = run(...args);
      expect(got.stderr).toContain(text);
      expect([got.status, got.stdout, got.stderr.trimEnd().split("\n").length]).toEqual([status, "", 1]);
    }
  });
});
