// The shipped model of short stories on our kernels: its logits, what it can do, the head that answers, and its GGUF files.

import { spawnSync } from "node:child_process";
import { readdirSync, readFileSync, statSync } from "node:fs";
import { fileURLToPath } from "node:url";
import { describe, expect, test } from "vitest";
import { attentionMaps } from "../../examples/induction/maps.ts";
import { drawWeights, findAnswers, weightsOf } from "../../examples/stories/look-back.ts";
import { readWords } from "../../examples/stories/text.ts";
import { createGguf, nameOf } from "../../model/training/stories/gguf.ts";
import type { Kernels } from "../../src/entries/core.ts";
import { createSession, forward, generate, loadModel, type Model, type Session } from "../../src/entries/models.ts";
import { openGguf, permuteRope, type StoredTensor, toFloats, writeSafetensors } from "../../src/entries/weights.ts";
import { firstDifference, kernelsOf, shippedBuilds } from "../support/layers.ts";
import { sampled } from "../support/sampled.ts";

const folder = new URL("../../model/stories/", import.meta.url);
const text = (file: string) => readFileSync(new URL(file, folder), "utf8");

interface HeldOut {
  readonly probes: readonly { name: string; hits: number; targets: number; chance: number }[];
  readonly stories: readonly { readonly text: string; readonly probes: readonly (readonly [number, number])[] }[];
}
interface Expected {
  readonly prompt: string;
  readonly tokens: readonly number[];
  readonly head: { readonly layer: number; readonly head: number; readonly key: number };
  readonly logits: readonly number[];
}

const words = readWords(text("tokenizer.json"));
const heldOut = JSON.parse(text("heldout.json")) as HeldOut;
const expected = JSON.parse(text("logits.json")) as Expected;
const PROMPT = "the cat sat on the mat because it was";

async function withModel(build: (typeof shippedBuilds)[number], use: (model: Model) => Promise<void> | void) {
  using kernels = await kernelsOf(build);
  using model = await loadModel(kernels, folder);
  await use(model);
}

type Hits = readonly { readonly name: string; readonly hits: number; readonly targets: number }[];

/** Of each probe, its words in some held-out stories, and how many of them have the largest logit. */
function hitsOf(session: Session, stories = heldOut.stories): Hits {
  const found = heldOut.probes.map(({ name }) => ({ name, hits: 0, targets: 0 }));
  for (const story of stories) {
    session.truncate(0);
    const tokens = words.encode(story.text);
    const { ids } = forward(session, tokens, { rows: "all", top: 1 });
    for (const [at, probe] of story.probes) {
      found[probe]!.targets++;
      if (ids?.[at - 1] === tokens[at]) found[probe]!.hits++;
    }
  }
  return found;
}

const SOME = sampled(heldOut.stories, 75);
/** In a part of the stories a probe has so few words that one miss is more than 5 %. */
const SLACK = SOME === heldOut.stories ? 0 : 1;

/** Mean nats a token of held-out stories. */
function natsOf(session: Session): number {
  let [nats, count] = [0, 0];
  for (const story of sampled(heldOut.stories, 12)) {
    session.truncate(0);
    const tokens = words.encode(story.text);
    const { logits } = forward(session, tokens, { rows: "all" });
    const width = logits.length / tokens.length;
    for (let at = 1; at < tokens.length; at++, count++) {
      const row = logits.subarray((at - 1) * width, at * width);
      const most = row.reduce((a, b) => Math.max(a, b));
      const sum = row.reduce((total, logit) => total + Math.exp(logit - most), 0);
      nats += Math.log(sum) + most - row[tokens[at]!]!;
    }
  }
  return nats / count;
}

/** The probes of which less than 95 % were hit, not counting `slack` misses. */
function missed(found: Hits, slack = 0): string[] {
  return found.flatMap(({ name, hits, targets }) => (hits + slack < 0.95 * targets ? [`${name} ${hits}`] : []));
}

describe.each(shippedBuilds)("in the %s build", (build) => {
  test("logits are within 1e-4 of the largest one of float64", () =>
    withModel(build, (model) => {
      using session = createSession(model);
      const got = forward(session, expected.tokens).logits;
      const largest = Math.max(...expected.logits.map(Math.abs));
      const worst = Math.max(...expected.logits.map((logit, id) => Math.abs(logit - got[id]!)));
      expect(got.length).toBe(expected.logits.length);
      expect(worst / largest).toBeLessThan(1e-4);
    }));

  test("decoding word by word gives the logits of one prefill, bit for bit", () =>
    withModel(build, (model) => {
      using session = createSession(model);
      const once = forward(session, expected.tokens).logits;
      session.truncate(0);
      let last = new Float32Array();
      for (const token of expected.tokens) last = forward(session, [token]).logits as typeof last;
      expect(firstDifference(last, once)).toBe(-1);
    }));

  test("each probe is predicted in 95 % of held-out combinations", () =>
    withModel(build, (model) => {
      using session = createSession(model);
      const found = hitsOf(session);
      expect(missed(found)).toEqual([]);
      // PyTorch's hits; an even choice may fall the other way.
      for (const [probe, { hits }] of found.entries())
        expect(Math.abs(hits - heldOut.probes[probe]!.hits)).toBeLessThanOrEqual(1);
    }));

  test("the likeliest story about the cat goes on with soft, and ends", () =>
    withModel(build, async (model) => {
      using session = createSession(model);
      let story = "";
      const made = generate(session, words.encode(PROMPT), { stopIds: [words.end] });
      let next = await made.next();
      for (; !next.done; next = await made.next()) story += words.decode(next.value.id);
      expect(story).toMatch(/^ soft\./);
      expect(next.value).toEqual({ reason: "stop", stopId: words.end });
    }));

  test("one head looks back at the answer: 0.9 of its weight on the mat", async () => {
    using kernels = await kernelsOf(build);
    expect(expected.prompt).toBe(`${PROMPT} soft . what was soft ? the`);
    expect(words.encode(expected.prompt)).toEqual(expected.tokens);
    expect(words.decode(expected.tokens[expected.head.key]!)).toBe(" mat");
    const weights = lookBack(kernels, expected.prompt);
    expect(weights[expected.head.key]).toBeGreaterThanOrEqual(0.9);
  });
});

function lookBack(kernels: Kernels, question: string): Float32Array {
  const bytes = readFileSync(new URL("model.safetensors", folder));
  const tokens = words.encode(question);
  const maps = attentionMaps(kernels, bytes, text("config.json"), tokens)[expected.head.layer]!;
  return weightsOf(maps, expected.head.head, tokens.length - 1);
}

test("the committed accuracies are at least 95 % and well above chance, and the stories hold their probes", () => {
  const places = heldOut.stories.flatMap(({ probes }) => probes);
  expect(heldOut.probes.length).toBeGreaterThan(15);
  for (const [probe, { name, hits, targets, chance }] of heldOut.probes.entries()) {
    expect([name, hits / targets >= 0.95, chance < 0.7]).toEqual([name, true, true]);
    expect(places.filter(([, each]) => each === probe).length).toBe(targets);
  }
});

test("the files of the model take less than 4 MB, and every file is named by its card", () => {
  const files = readdirSync(folder);
  expect(files.reduce((sum, file) => sum + statSync(new URL(file, folder)).size, 0)).toBeLessThan(4e6);
  expect(files.filter((file) => file !== "README.md" && !text("README.md").includes(`\`${file}\``))).toEqual([]);
});

const GGUF = [
  ["stories.gguf", "q8", 0.001],
  ["stories-q4.gguf", "q4", 0.01],
] as const;

describe.each(GGUF)("%s", (file, kind) => {
  test("is what the script makes of the safetensors file", () => {
    expect(Buffer.compare(createGguf(folder, kind), readFileSync(new URL(file, folder)))).toBe(0);
  });

  test("is a llama of the same sizes, with a vocabulary of whole words and the tokenizer itself", async () => {
    const { metadata } = await openGguf(readFileSync(new URL(file, folder)));
    const config = JSON.parse(text("config.json"));
    const vocabulary = JSON.parse(text("tokenizer.json")).model.vocab;
    expect(metadata.get("general.architecture")).toBe("llama");
    expect(metadata.get("llama.block_count")).toBe(config.num_hidden_layers);
    expect(metadata.get("llama.attention.head_count_kv")).toBe(config.num_key_value_heads);
    expect(metadata.get("llama.rope.freq_base")).toBe(config.rope_theta);
    expect(metadata.get("llama.attention.layer_norm_rms_epsilon")).toBe(Math.fround(config.rms_norm_eps));
    const tokens = metadata.get("tokenizer.ggml.tokens") as readonly string[];
    expect(tokens.map((token) => token.replace("\u2581", ""))).toEqual(Object.keys(vocabulary));
    expect(metadata.get("tokenizer.huggingface.json")).toBe(text("tokenizer.json"));
  });
});

test.each(sampled(GGUF, 1))(
  "the weights of %s (%s) solve the same probes, for less than %f nats a token more",
  async (...of) => {
    const [file, , most] = of;
    using kernels = await kernelsOf("simd");
    using whole = await loadModel(kernels, folder);
    using exact = createSession(whole);
    const files = new Map([
      ["config.json", new TextEncoder().encode(text("config.json"))],
      ["model.safetensors", await widened(file)],
    ]);
    using model = await loadModel(kernels, (name) => files.get(name));
    using session = createSession(model);
    expect(missed(hitsOf(session, SOME), SLACK)).toEqual([]);
    const more = natsOf(session) - natsOf(exact);
    expect(more).not.toBe(0);
    expect(Math.abs(more)).toBeLessThan(most);
  },
);

/** The tensors of a GGUF file in float32, under their names in safetensors files, and turned back. */
async function widened(file: string): Promise<Uint8Array> {
  const opened = await openGguf(readFileSync(new URL(file, folder)));
  const config = JSON.parse(text("config.json"));
  const tensors: Record<string, { data: Float32Array; shape: readonly number[] }> = {};
  for (const [name, { shape }] of opened.tensors) {
    const stored: StoredTensor = await opened.read(name);
    const floats = { data: toFloats(stored), shape };
    const heads = name.includes("attn_q.") ? config.num_attention_heads : config.num_key_value_heads;
    const turned = /attn_[qk]\./.test(name) ? permuteRope(floats, heads, "interleaved") : floats;
    tensors[nameOf(name)] = { data: turned.data, shape };
  }
  return writeSafetensors(tensors);
}

test("answers are found behind questions, and weights are drawn over words", () => {
  const spoken = "tom ran . where was tom ? in the barn . who was old ? bill .".split(" ");
  expect(findAnswers(spoken)).toEqual([
    { begin: 3, at: 9 },
    { begin: 11, at: 15 },
  ]);
  expect(findAnswers(["who", "?"])).toEqual([]);
  expect(drawWeights(["a", "cat", "sat"], Float32Array.of(0, 1, 0.5), 6)).toEqual(["  ███", "a cat", "▅▅▅", "sat"]);
});

/** Runs `npm start -- ...args` on the built package. */
function start(...args: string[]): { status: number | null; stdout: string; stderr: string } {
  const main = fileURLToPath(new URL("../../examples/start.ts", import.meta.url));
  return spawnSync(process.execPath, [main, ...args], { encoding: "utf8" });
}

test("npm start tells a story, and draws the look back at the mat", () => {
  const { status, stdout, stderr } = start("--tokens", "7", PROMPT, "soft.", "What", "was", "soft?", "The");
  expect([status, stderr]).toEqual([0, ""]);
  expect(stdout).toMatch(/^the cat sat on the mat because it was soft\. what was soft\? the mat\./);
  expect(stdout).toMatch(/^decode {8}\d+ tokens\/s, 4 layers, KV cache$/m);
  expect(stdout).toMatch(/^what was soft \? the -> mat: (1\.00|0\.9\d) on "mat"$/m);
  expect(stdout).toMatch(/^ {2} {19}[▇█]{3}/m);
});

test("without a question, there is nothing to draw, and it says so", () => {
  expect(start("--tokens", "1").stdout).toContain("answered no question");
});

test("a seed draws its own story", () => {
  const story = (seed: string) => start("--temperature", "1", "--seed", seed, "--tokens", "30").stdout.split("\n")[0];
  expect(story("3")).toBe(story("3"));
  expect(story("3")).not.toBe(story("4"));
});

test.each([["--model", "induction"], ["--model=induction"]])(
  "npm start -- %s %s runs the smaller model",
  (...model) => {
    const { status, stdout } = start("--tokens", "8", ...model.filter(Boolean), "qz7", "mfk", "qz7", "m");
    expect(status).toBe(0);
    expect(stdout).toMatch(/^prompt {8}qz7 mfk qz7 m\ncontinuation {2}fk qz7 m\n/);
  },
);

test.each([
  [["--model", "zebra"], '--model takes stories or induction; got "zebra".'],
  [["--model"], '--model takes stories or induction; got "".'],
  [["the", "zebra"], 'words of model/stories/tokenizer.json; got the word "zebra".'],
  [["--tokens", "0"], "--tokens takes an integer from 1 to 192; got 0."],
  [["--temperature", "warm"], "--temperature takes a number from 0; got warm."],
  [["--nope"], "Unknown option '--nope'"],
  [["a ".repeat(200)], "The model reads at most 190 words and marks; got 200."],
])("the arguments %j are refused without a stack", (args, message) => {
  const { status, stdout, stderr } = start(...args);
  expect([status, stdout]).toEqual([1, ""]);
  expect(stderr).toContain(message);
  expect(stderr).not.toMatch(/^ +at /m);
});
