// The shipped model on our kernels: its accuracy on held-out text, its logits, and the heads it is shipped for.

import { spawnSync } from "node:child_process";
import { readFileSync } from "node:fs";
import { fileURLToPath } from "node:url";
import { describe, expect, test } from "vitest";
import { measureAccuracy } from "../../examples/induction/accuracy.ts";
import { heatMap, sideBySide } from "../../examples/induction/heatmap.ts";
import { attentionMaps } from "../../examples/induction/maps.ts";
import { scoreHead } from "../../examples/induction/scores.ts";
import type { Tensor } from "../../src/entries/core.ts";
import { createSession, forward, loadModel, type Session } from "../../src/entries/models.ts";
import { firstDifference, kernelsOf, shippedBuilds } from "../support/layers.ts";

const model = (file: string) => new URL(`../../model/${file}`, import.meta.url);
const text = (file: string) => readFileSync(model(file), "utf8");

interface HeldOut {
  readonly sequences: readonly { readonly segmentLen: number; readonly text: string }[];
}

interface Expected {
  readonly tokens: readonly number[];
  readonly logits: readonly number[];
}

const { vocabulary } = JSON.parse(text("config.json")) as { vocabulary: string };
const heldOut = JSON.parse(text("heldout.json")) as HeldOut;

async function withSession(build: (typeof shippedBuilds)[number], use: (session: Session) => void): Promise<void> {
  using kernels = await kernelsOf(build);
  using loaded = await loadModel(kernels, model("."));
  using session = createSession(loaded);
  use(session);
}

describe.each(shippedBuilds)("in the %s build", (build) => {
  test("logits are within 2e-4 of float64", () =>
    withSession(build, (session) => {
      const { tokens, logits } = JSON.parse(text("logits.json")) as Expected;
      const got = forward(session, tokens).logits;
      const worst = Math.max(...logits.map((logit, token) => Math.abs(logit - got[token]!)));
      expect(worst).toBeLessThan(2e-4);
    }));

  test("decoding token by token gives the logits of one prefill, bit for bit", () =>
    withSession(build, (session) => {
      const { tokens } = JSON.parse(text("logits.json")) as Expected;
      const once = forward(session, tokens).logits;
      session.truncate(0);
      let last = new Float32Array();
      for (const token of tokens) last = forward(session, [token]).logits as typeof last;
      expect(firstDifference(last, once)).toBe(-1);
    }));

  test("at least 99 % of held-out tokens are predicted, from the second repeated one on", () =>
    withSession(build, (session) => {
      const { hits, targets } = measureAccuracy(session, vocabulary, { sequences: heldOut.sequences.slice(0, 24) });
      expect(targets).toBeGreaterThan(500);
      expect(hits / targets).toBeGreaterThanOrEqual(0.99);
    }));

  test("layer 0 has a previous-token head, layer 1 an induction head", async () => {
    using kernels = await kernelsOf(build);
    const tokens = Array.from(heldOut.sequences[0]!.text, (character) => vocabulary.indexOf(character));
    const bytes = readFileSync(model("model.safetensors"));
    const [first, second] = attentionMaps(kernels, bytes, text("config.json"), tokens).map((maps) =>
      [0, 1, 2, 3].map((head) => scoreHead(maps, head, tokens)),
    );
    expect(Math.max(...first!.map((head) => head.previous))).toBeGreaterThan(0.6);
    expect(Math.max(...second!.map((head) => head.induction))).toBeGreaterThan(0.85);
    expect(Math.max(...first!.map((head) => head.induction))).toBeLessThan(0.2);
  });
});

/** One head over three tokens "aba": the first row sees itself, the second the first, the third what followed "a". */
const crafted: Tensor = { data: Float32Array.of(1, 0, 0, 1, 0, 0, 0, 1, 0), shape: [1, 3, 3] };

test("scores of a crafted head", () => {
  const { previous, induction, entropy } = scoreHead(crafted, 0, [0, 1, 0]);
  expect([previous, induction, entropy]).toEqual([1, 1, 0]);
  expect(scoreHead(crafted, 0, [0, 1, 2]).induction).toBe(0);
});

test("a heat map shows the triangle, in characters and in colours", () => {
  expect(heatMap(crafted, 0, false)).toEqual(["@  ", "@  ", " @ "]);
  const [pair] = heatMap(crafted, 0, true);
  expect(pair?.match(/▀/g)?.length).toBe(3);
  const beside = sideBySide(
    [
      { title: "one", lines: ["@"], width: 1 },
      { title: "two", lines: ["#"], width: 1 },
    ],
    80,
  );
  expect(beside).toBe("one   two\n@     #\n");
});

/** Runs the example as `npm start -- --model induction ...args` does, on the built package. */
function start(...args: string[]): { status: number | null; stdout: string; stderr: string } {
  const main = fileURLToPath(new URL("../../examples/induction/main.ts", import.meta.url));
  return spawnSync(process.execPath, [main, ...args], { encoding: "utf8" });
}

test("words without quotes are one text, continued", () => {
  const { status, stdout, stderr } = start("--tokens", "8", "qz7", "mfk", "qz7", "m");
  expect([status, stderr]).toEqual([0, ""]);
  expect(stdout).toMatch(/^prompt {8}qz7 mfk qz7 m\ncontinuation {2}fk qz7 m\n/);
  expect(stdout).not.toContain("was trained on texts");
});

test("a text of more than the 96 trained characters is continued, its maps end there, and a note says so", () => {
  const { status, stdout } = start("--tokens", "90");
  expect(status).toBe(0);
  expect(stdout).toContain("trained on texts of 96 characters and this one has 103");
  expect(
    Math.max(
      ...stdout
        .split("\n")
        .filter((line) => /^[ .:\-=+*#%@]+$/.test(line))
        .map((line) => line.length),
    ),
  ).toBe(96);
});

/** The share of held-out characters that `start` printed: in the formats, and in f32. */
function accuracies(stdout: string): [some: number, exact: number] {
  const [, some, exact] =
    /^accuracy {6}([\d.]+) % of 4,459 held-out characters, ([\d.]+) % in f32$/m.exec(stdout) ?? [];
  return [Number(some), Number(exact)];
}

// heldout.json has 99.82 %. Measured in both builds: 99.82 % with q8, 99.64 % with q4 weights and q8 caches.
test.each([
  [[], 0.2],
  [["--deterministic"], 0.2],
])(
  "q8 weights and caches are within 0.2 points of f32 on held-out text, and half of the model's bytes %j",
  (args, most) => {
    const { status, stdout, stderr } = start("--weights", "q8", "--cache", "q8", ...args);
    expect([status, stderr]).toEqual([0, ""]);
    const [some, exact] = accuracies(stdout);
    expect(exact).toBe(99.82);
    expect(Math.abs(some - exact)).toBeLessThanOrEqual(most);
    expect(stdout).toMatch(/^weights {7}92,928 bytes in q8, 185,088 in f32$/m);
    expect(stdout).toMatch(/^cache {9}41,088 bytes in q8, 131,200 in f32, for 96 tokens$/m);
  },
);

test.each([[[]], [["--deterministic"]]])("q4 weights with q8 caches keep 99 % of held-out text %j", (args) => {
  const { status, stdout } = start("--weights", "q4", "--cache", "q8", ...args);
  expect(status).toBe(0);
  const [some, exact] = accuracies(stdout);
  expect([some >= 99, exact]).toEqual([true, 99.82]);
  expect(stdout).toMatch(/^weights {7}74,496 bytes in q4, 185,088 in f32$/m);
});

test("without formats the output does not mention them", () => {
  expect(start("--tokens", "1").stdout).not.toMatch(/^(weights|cache|accuracy)/m);
});

test.each([
  [["--weights", "q5"], "--weights takes f32, f16, bf16, q8, q8-row, q4; got q5."],
  [["--cache", "bf16"], "--cache takes f32, f16, q8, q4; got bf16."],
  [["--nope"], "Unknown option '--nope'"],
  [["--tokens", "0"], "got --tokens 0."],
  [[""], "got an empty prompt."],
  [["häm"], 'got the character "ä".'],
])("the arguments %j are refused with the usage and no stack", (args, text) => {
  const { status, stdout, stderr } = start(...args);
  expect([status, stdout]).toEqual([1, ""]);
  expect(stderr).toContain(text);
  expect(stderr).toContain("npm start -- --model induction [options] [a text whose beginning repeats]");
  expect(stderr).not.toMatch(/^ +at /m);
});
