// `headwise quantize`.

import { spawn, spawnSync } from "node:child_process";
import {
  chmodSync,
  lstatSync,
  mkdirSync,
  readdirSync,
  readFileSync,
  rmSync,
  statSync,
  symlinkSync,
  utimesSync,
  writeFileSync,
} from "node:fs";
import { setTimeout as sleep } from "node:timers/promises";
import { describe, expect, test } from "vitest";
import { sizeText } from "../../../src/cli/terminal.ts";
import { attend, createAttention, type StoredTensor, type Tensor } from "../../../src/entries/core.ts";
import {
  quantizeTensor,
  readAttentionWeights,
  readSafetensors,
  type StoredFormat,
  toFloats,
  writeSafetensors,
} from "../../../src/entries/weights.ts";
import { cli, runCli, spawnCli } from "../../support/cli.ts";
import { floats } from "../../support/harness.ts";
import { firstDifference, kernelsOf } from "../../support/layers.ts";
import { createSmallFiles } from "../../support/small-files.ts";

const { at, folder, model, random, tensor, write } = createSmallFiles();

/** Runs `headwise ...args`. */
const run = (...args: string[]) => runCli(args);

const attentionNames = Object.keys(model).filter((name) => /self_attn.*weight$/.test(name));

/**
 * `most` bounds the error of an element w of a block whose largest is m: half a step and, for blocks, the rounding of the scale to
 * float16, which 127 or 8 steps multiply to 2^-11 of m; in q4, values opposite to the largest end at 7 of 8 steps. `ofOutput`
 * bounds the error of the layer below by its size; measured 8.3e-3, 0.13, 3.7e-4 and 3.9e-3.
 */
const FORMATS: readonly (readonly [
  word: string,
  format: StoredFormat,
  most: (w: number, m: number) => number,
  ofOutput: number,
])[] = [
  ["q8", "Q8_0", (_, m) => m / 254 + m / 2 ** 11, 1e-2],
  ["q4", "Q4_0", (_, m) => m / 8 + m / 2 ** 11, 0.2],
  ["f16", "F16", (w) => Math.abs(w) / 2 ** 11 + 2 ** -25, 5e-4],
  ["bf16", "BF16", (w) => Math.abs(w) / 2 ** 8, 4e-3],
];

describe.each(FORMATS)("quantize --weights %s", (word, format, most, ofOutput) => {
  test("writes the bytes that writeSafetensors gives for the same tensors", () => {
    const input = write("in.safetensors", model, { format: "pt", title: "a test" });
    const { status, stdout, stderr } = run("quantize", input, at(`${word}.safetensors`), "--weights", word);
    expect([status, stderr]).toEqual([0, ""]);
    const chosen = [...attentionNames, ...(format.includes("_") ? [] : ["model.layers.0.mlp.down_proj.weight"])];
    const expected = { ...model };
    for (const name of chosen) expected[name] = quantizeTensor(model[name] as Tensor, format);
    const bytes = writeSafetensors(expected, { format: "pt", title: "a test" });
    expect(Buffer.compare(readFileSync(at(`${word}.safetensors`)), bytes)).toBe(0);

    const lines = stdout.trimEnd().split("\n");
    expect(lines[0]).toBe(`${chosen.length} of 11 tensors converted to ${word}, the others unchanged`);
    expect(lines[1]).toBe(
      `${sizeText(statSync(input).size)} to ${sizeText(bytes.length)} (${((100 * bytes.length) / statSync(input).size).toFixed(1)} %)`,
    );
    const [, error, name] = /^largest relative RMS error (\S+), of (\S+)$/.exec(lines[2] as string) ?? [];
    expect(Number(error)).toBeCloseTo(rmsError(model[name as string] as Tensor, format), 4);
    expect(Math.max(...chosen.map((each) => rmsError(model[each] as Tensor, format)))).toBeCloseTo(Number(error), 4);
    for (const each of chosen) expectWithin(model[each] as Tensor, format, most);
    expect(lines.slice(3)).toEqual(
      format.includes("_")
        ? ["unchanged model.layers.0.mlp.down_proj.weight F32 [64, 80]: its rows are not a multiple of 32"]
        : [],
    );
  });

  test("readAttentionWeights and attend take them, with the bits of the rounded tensors", async () => {
    using kernels = await kernelsOf("simd");
    const prefix = "model.layers.0.self_attn.";
    const config = { dModel: 64, numHeads: 4, causal: true };
    // Scores are then of the order of 1: with larger ones each query attends one key, and an error may choose another.
    const x = floats(random, 5 * 64).map((value) => value / 8);
    const made = readAttentionWeights(readFileSync(at(`${word}.safetensors`)), prefix);
    const rounded = Object.fromEntries(
      (["q", "k", "v", "o"] as const).map((part) => [
        `w${part}`,
        quantizeTensor(model[`${prefix}${part}_proj.weight`] as Tensor, format),
      ]),
    ) as unknown as Record<"wq" | "wk" | "wv" | "wo", StoredTensor>;
    const y = attend(createAttention(kernels, config, made), x);
    const direct = attend(createAttention(kernels, config, rounded), x);
    const exact = attend(createAttention(kernels, config, readAttentionWeights(writeSafetensors(model), prefix)), x);
    expect(firstDifference(y, direct)).toBe(-1);
    expect(distance(y, exact)).toBeGreaterThan(0);
    expect(distance(y, exact)).toBeLessThan(ofOutput);
  });
});

function expectWithin(tensor: Tensor, format: StoredFormat, most: (w: number, m: number) => number): void {
  const { data } = tensor;
  const beyond = toFloats(quantizeTensor(tensor, format)).findIndex((rounded, i) => {
    const block = data.subarray(32 * Math.floor(i / 32), 32 * Math.floor(i / 32) + 32);
    const w = data[i] as number;
    return Math.abs(rounded - w) > most(w, Math.max(...block.map(Math.abs)));
  });
  expect(beyond).toBe(-1);
}

/** |a - b| / |b| */
function distance(a: Float32Array, b: Float32Array): number {
  const length = (x: Float32Array) => Math.sqrt(x.reduce((sum, value) => sum + value * value, 0));
  return length(a.map((value, i) => value - (b[i] as number))) / length(b);
}

function rmsError({ data, shape }: Tensor, format: StoredFormat): number {
  return distance(toFloats(quantizeTensor({ data, shape }, format)), data);
}

const dtypesOf = (name: string) =>
  Object.fromEntries(
    Array.from(readSafetensors(readFileSync(at(name))).tensors.values(), (each) => [each.name, each.dtype]),
  );

test("--include and --keep choose by name, and a second run adds to what the first one did", () => {
  const input = write("choose.safetensors", model);
  const [once, twice] = [at("once.safetensors"), at("twice.safetensors")];
  expect(
    run("quantize", input, once, "--weights", "q4", "--include", "attn|lm_head", "--keep", "[kv]_proj").status,
  ).toBe(0);
  const changed = (name: string) =>
    Object.entries(dtypesOf(name)).flatMap(([tensor, dtype]) => (dtype.startsWith("Q") ? [tensor] : []));
  const [q, k, v, o] = attentionNames as [string, string, string, string];
  expect(changed("once.safetensors").sort()).toEqual(["lm_head.weight", o, q].sort());
  expect(run("quantize", once, twice, "--weights", "q8").status).toBe(0);
  expect(changed("twice.safetensors").sort()).toEqual(["lm_head.weight", k, o, q, v].sort());
  expect(dtypesOf("twice.safetensors")).toMatchObject({ [q]: "Q4_0", [k]: "Q8_0", "lm_head.weight": "Q4_0" });
  expect(Buffer.compare(partOf(twice, q), partOf(once, q))).toBe(0);
});

const partOf = (path: string, name: string) =>
  readSafetensors(readFileSync(path)).tensors.get(name)?.bytes as Uint8Array;

test("16-bit sources are read, those of GPT-2's form are kept by blocks and not by halves", () => {
  const half = (...shape: number[]) => quantizeTensor(tensor(...shape), "BF16");
  const gpt2 = {
    "h.0.attn.c_attn.weight": half(32, 96),
    "h.0.attn.c_proj.weight": half(32, 32),
    "h.0.plain.weight": half(2, 32),
  };
  const input = write("gpt2.safetensors", gpt2);
  const { stdout } = run("quantize", input, at("gpt2-q8.safetensors"), "--weights", "q8");
  expect(stdout).toContain("1 of 3 tensors converted to q8");
  expect(stdout).toContain("unchanged h.0.attn.c_proj.weight BF16 [32, 32]: its layout is [inputs, outputs]");
  expect(run("quantize", input, at("gpt2-f16.safetensors"), "--weights", "f16").stdout).toContain(
    "3 of 3 tensors converted to f16",
  );
});

test("a file without a tensor to convert is refused, with the reason for each kind of tensor", () => {
  const half = (...shape: number[]) => quantizeTensor(tensor(...shape), "F16");
  const layer = (i: number) => ({
    [`model.layers.${i}.norm.weight`]: tensor(64),
    [`model.layers.${i}.self_attn.q_proj.weight`]: half(64, 64),
    [`model.layers.${i}.mlp.down_proj.weight`]: tensor(64, 80),
    [`model.layers.${i}.rotary.steps`]: { dtype: "I64", shape: [3], bytes: new Uint8Array(24) } as const,
  });
  const input = write("nothing.safetensors", {
    ...Object.assign({}, ...[0, 1, 2].map(layer)),
    "lm_head.weight": tensor(10, 64),
    "model.layers.0.mlp.gate_proj.weight": quantizeTensor(tensor(64, 64), "Q8_0"),
  });
  const before = readdirSync(folder).sort();
  const args = ["quantize", input, at("never.safetensors"), "--weights"];
  const { status, stdout, stderr } = run(...args, "q4", "--keep", "q_proj");
  expect([status, stdout]).toEqual([2, ""]);
  expect(stderr.trimEnd().split("\n")).toEqual([
    "headwise quantize: IN expected tensors to convert to Q4_0, got none among 14 (see headwise quantize --help)",
    "unchanged 3 x model.layers.N.mlp.down_proj.weight F32 [64, 80]: its rows are not a multiple of 32",
    "unchanged 3 x model.layers.N.norm.weight F32 [64]: its rank is 1, not 2",
    "unchanged 3 x model.layers.N.rotary.steps I64 [3]: its dtype is none of F64, F32, F16, BF16",
    "unchanged 3 x model.layers.N.self_attn.q_proj.weight F16 [64, 64]: --keep matches its name",
    "unchanged lm_head.weight F32 [10, 64]: its name is not that of a linear weight (--include chooses others)",
    "unchanged model.layers.0.mlp.gate_proj.weight Q8_0 [64, 64]: its dtype is none of F64, F32, F16, BF16",
  ]);
  expect(run(...args, "f16", "--include", "q_proj|steps").stderr).toContain(
    "\nunchanged 3 x model.layers.N.self_attn.q_proj.weight F16 [64, 64]: it has this format already\n",
  );
  expect(run(...args, "q8", "--include", "nowhere").stderr).toContain(
    "\nunchanged lm_head.weight F32 [10, 64]: --include does not match its name\n",
  );
  expect(readdirSync(folder).sort()).toEqual(before);
});

test("of very many kinds of tensors, the most frequent are listed", () => {
  const names = Array.from({ length: 30 }, (_, i) => `${"ab"[i % 2]}${"x".repeat(i)}`);
  const input = write("kinds.safetensors", Object.fromEntries(names.map((name) => [name, tensor(1)])));
  const { stderr } = run("quantize", input, at("never.safetensors"), "--weights", "q8");
  const lines = stderr.trimEnd().split("\n");
  expect(lines.length).toBe(22);
  expect(lines.at(-1)).toBe("unchanged 10 more kinds of tensors");
});

test("an error is one line, exit code 2 for the command line and its files, and no file is left behind", () => {
  const input = write("good.safetensors", model);
  const nan = write("nan.safetensors", { "a.weight": { data: new Float32Array(32).fill(Number.NaN), shape: [1, 32] } });
  const wide = write("wide.safetensors", { "a.weight": { data: new Float32Array(32).fill(1e30), shape: [1, 32] } });
  const noted = write("noted.safetensors", model, { "headwise.quantized": "[]" });
  writeFileSync(at("short.safetensors"), readFileSync(input).subarray(0, 1000));
  const before = readdirSync(folder).sort();
  const [to, q8] = [at("never.safetensors"), ["--weights", "q8"]];
  const rows: [args: string[], status: number, text: string][] = [
    [[input], 2, "expected two files, IN and OUT, got 1 (see headwise quantize --help)"],
    [[input, to], 2, "--weights expected q8, q4, f16, bf16, got none"],
    [[input, to, "--weights", "q5"], 2, "--weights expected q8, q4, f16, bf16, got q5"],
    [[input, to, "--weights", "--keep"], 2, "--weights expected a value, got --keep"],
    [[input, to, ...q8, "--fast"], 2, "unknown option --fast (see headwise quantize --help)"],
    [[input, to, ...q8, "--included", "x"], 2, "unknown option --included, did you mean --include?"],
    [[input, to, ...q8, "--keep", "("], 2, "--keep expected a regular expression, got "],
    [[input, nan, ...q8], 2, `OUT expected a new file (or --force), got ${nan}, which exists`],
    [[input, at("no/folder"), ...q8], 1, "OUT expected a path that can be written, got ENOENT"],
    [[at("short.safetensors"), to, ...q8], 2, `${at("short.safetensors")}: header length expected`],
    [[nan, to, ...q8], 2, `${nan}: tensor "a.weight" expected numbers that Q8_0 can represent, got others`],
    [[wide, to, "--weights", "f16"], 2, `${wide}: tensor "a.weight" expected numbers that F16 can represent`],
    [[noted, to, ...q8], 2, `${noted}: metadata "headwise.quantized" expected an object`],
  ];
  for (const [args, status, text] of rows) {
    const got = run("quantize", ...args);
    expect(got.stderr).toContain(`headwise quantize: ${text}`);
    expect([got.status, got.stdout, got.stderr.trimEnd().split("\n").length]).toEqual([status, "", 1]);
  }
  expect(readdirSync(folder).sort()).toEqual(before);
});

test("--force writes over a file, also over the one that is read", () => {
  const input = write("over.safetensors", model);
  expect(run("quantize", input, input, "--weights", "q4").status).toBe(2);
  expect(run("quantize", input, input, "--weights", "q4", "--force").status).toBe(0);
  expect(dtypesOf("over.safetensors")[attentionNames[0] as string]).toBe("Q4_0");
});

test("OUT that is no file is refused before anything is read", () => {
  mkdirSync(at("a-folder"));
  const paths = [at("a-folder"), ...(process.platform === "win32" ? [] : ["/dev/null"])];
  for (const path of paths)
    for (const force of [[], ["--force"]])
      expect(run("quantize", at("none"), path, "--weights", "q8", ...force)).toMatchObject({
        status: 2,
        stderr: `headwise quantize: OUT expected a regular file, got ${path}\n`,
      });
  rmSync(at("a-folder"), { recursive: true });
});

describe.skipIf(process.platform === "win32")("on file systems with links and modes", () => {
  test("a file that is replaced keeps its mode, a link leads to what is replaced or made", () => {
    const input = write("linked-in.safetensors", model);
    writeFileSync(at("target"), "");
    // Of no usual umask.
    chmodSync(at("target"), 0o626);
    symlinkSync("target", at("link"));
    symlinkSync(at("link"), at("link-to-link"));
    symlinkSync("made", at("link-to-none"));
    expect(run("quantize", input, at("link-to-link"), "--weights", "q8", "--force").stderr).toBe("");
    expect(run("quantize", input, at("link-to-none"), "--weights", "q8").stderr).toBe("");
    for (const link of ["link", "link-to-link", "link-to-none"])
      expect(lstatSync(at(link)).isSymbolicLink()).toBe(true);
    expect(statSync(at("target")).mode & 0o777).toBe(0o626);
    expect(Buffer.compare(readFileSync(at("target")), readFileSync(at("made")))).toBe(0);
    expect(dtypesOf("target")[attentionNames[0] as string]).toBe("Q8_0");
    symlinkSync("round", at("round"));
    expect(run("quantize", input, at("round"), "--weights", "q8").stderr).toContain(
      "headwise quantize: OUT expected a path that can be written, got ELOOP",
    );
  });

  test("a full disk is reported, and no file is left behind", () => {
    const input = write("wider.safetensors", { "a.weight": tensor(256, 256) });
    const before = readdirSync(folder).sort();
    // Files may have 16 blocks of 512 or 1024 bytes.
    const command = 'ulimit -f 16; exec "$0" "$@"';
    const args = [process.execPath, cli, "quantize", input, at("never.safetensors"), "--weights", "q8"];
    const { status, stderr } = spawnSync("sh", ["-c", command, ...args], { encoding: "utf8" });
    expect([status, stderr]).toEqual([
      1,
      "headwise quantize: OUT expected a path that can be written, got EFBIG: file too large, write\n",
    ]);
    expect(readdirSync(folder).sort()).toEqual(before);
  });
});

test("control characters in names do not reach the terminal", () => {
  const name = "\u001b[2J\u009b31m\u007f\u202e.weight";
  const input = write("names.safetensors", { [name]: tensor(2, 32), [`${name}.odd.weight`]: tensor(2, 33) });
  const { stdout } = run("quantize", input, at("names-out.safetensors"), "--weights", "q8");
  expect(stdout).toContain(", of \ufffd[2J\ufffd31m\ufffd\ufffd.weight\n");
  expect(stdout).toContain("unchanged \ufffd[2J\ufffd31m\ufffd\ufffd.weight.odd.weight F32 [2, 33]: ");
  const nan = write("nan-name.safetensors", {
    [name]: { data: new Float32Array(32).fill(Number.NaN), shape: [1, 32] },
  });
  expect(run("quantize", nan, at("never.safetensors"), "--weights", "q8").stderr).toContain(
    'tensor "\\u001b[2J\ufffd31m\ufffd\ufffd.weight" expected numbers',
  );
});

test("a matrix without rows is read again after it was quantised", () => {
  const input = write("empty.safetensors", { "a.weight": { data: new Float32Array(0), shape: [0, 32] } });
  expect(run("quantize", input, at("empty-q8.safetensors"), "--weights", "q8").status).toBe(0);
  expect(dtypesOf("empty-q8.safetensors")).toEqual({ "a.weight": "Q8_0" });
});

test("an interrupted run leaves neither a file nor a part of one", async () => {
  // 64 MiB: long enough to be caught at work.
  const input = write("long.safetensors", {
    "a.weight": { data: new Float32Array(2 ** 24), shape: [2 ** 14, 2 ** 10] },
  });
  const before = readdirSync(folder).sort();
  const child = spawn(process.execPath, [cli, "quantize", input, at("never.safetensors"), "--weights", "q4"]);
  const ended = new Promise<NodeJS.Signals | null>((resolve) => child.on("exit", (_, signal) => resolve(signal)));
  while (!readdirSync(folder).some((name) => name.endsWith(".part"))) await sleep(2);
  child.kill("SIGTERM");
  expect(await ended).toBe("SIGTERM");
  expect(readdirSync(folder).sort()).toEqual(before);
  rmSync(input);
});

test("what killed runs left of OUT is removed by the next run, and nothing of others", async () => {
  const killed = spawn(process.execPath, ["-e", "setTimeout(() => {}, 60_000)"]);
  const ended = new Promise((resolve) => killed.on("exit", resolve));
  killed.kill("SIGKILL");
  await ended;
  const input = write("small.safetensors", { "a.weight": tensor(2, 32) });
  // A young one may be written by a process of another machine that shares the folder.
  const young = `stale.safetensors.${killed.pid}.abcdef01.part`;
  const kept = [
    young,
    `stale.safetensors.${process.pid}.part`,
    `other.safetensors.${killed.pid}.part`,
    "stale.safetensors.part",
  ];
  const killedParts = [`stale.safetensors.${killed.pid}.part`, `stale.safetensors.${killed.pid}.abcdef02.part`];
  const then = Date.now() / 1000 - 11 * 60;
  for (const name of [...kept, ...killedParts]) {
    writeFileSync(at(name), "");
    if (name !== young) utimesSync(at(name), then, then);
  }
  // A process of its own: this one is another, which runs.
  expect(spawnCli(["quantize", input, at("stale.safetensors"), "--weights", "q8"]).status).toBe(0);
  expect(
    readdirSync(folder)
      .filter((name) => name.endsWith(".part"))
      .sort(),
  ).toEqual(kept.sort());
  for (const name of kept) rmSync(at(name));
});
