// The laws of sessions for models with recurrent layers: one pass, chunks and tokens, together, in threads, forked and cut have the
// same bits.

import { afterAll, beforeAll, describe, expect, test, vi } from "vitest";
import { RecurrentState } from "../../src/layers/recurrent/state.ts";
import type { CachePage } from "../../src/layers/state/export.ts";
import type { Model } from "../../src/models/blocks/model.ts";
import { forward, forwardAsync } from "../../src/models/decoder/forward.ts";
import {
  createSession,
  exportSession,
  importSession,
  nearestLength,
  type Session,
} from "../../src/models/decoder/session.ts";
import { type DraftOptions, generate } from "../../src/models/generate/generate.ts";
import { generateMany } from "../../src/models/generate/generate-many.ts";
import { loadModel } from "../../src/models/load/load-model.ts";
import { planModel } from "../../src/models/load/plan-model.ts";
import type { Kernels } from "../../src/wasm/kernels.ts";
import { createRandom } from "../support/harness.ts";
import { kernelsOf, threadedKernels } from "../support/layers.ts";
import { logitsOf } from "../support/logits.ts";
import { sampled } from "../support/sampled.ts";
import { HYBRIDS, tinyFolder, tinyTensors } from "../support/tiny-models.ts";

type Name = keyof typeof HYBRIDS;

let kernels: Kernels;
const models = new Map<Name, Model>();
beforeAll(async () => {
  kernels = await kernelsOf("relaxed");
  for (const name of Object.keys(HYBRIDS) as Name[])
    models.set(name, await loadModel(kernels, tinyFolder(HYBRIDS[name])));
});
afterAll(() => kernels.release());

const IDS = Array.from({ length: 300 }, (_, i) => (i * 29 + 5) % 67);

describe.each(sampled(Object.keys(HYBRIDS) as Name[], 5))("%s", (name) => {
  const open = () => createSession(models.get(name) as Model, { maxSeqLen: 320 });

  test("one prefill, chunks of any lengths, tokens one by one and slices have the same bits", async () => {
    const [whole, chunks, single, sliced] = [open(), open(), open(), open()];
    const all = logitsOf(whole, IDS, [300]);
    expect(all.every(Number.isFinite)).toBe(true);
    expect(logitsOf(chunks, IDS, [7, 1, 1, 119, 1, 127, 44])).toEqual(all);
    const few = IDS.slice(0, 140);
    expect(
      logitsOf(
        single,
        few,
        few.map(() => 1),
      ),
    ).toEqual(all.slice(0, 140 * 67)); // prettier-ignore
    expect(Array.from((await forwardAsync(sliced, IDS, { rows: "all", sliceMs: 1e-9 })).logits)).toEqual(all);
    for (const session of [whole, chunks, single, sliced]) session.release();
  });

  test("a session is cut to the nearest length, and to what it was before the last call, and goes on with the same bits", () => {
    using session = open();
    const all = logitsOf(session, IDS, [290, 10]);
    const width = all.length / IDS.length;
    for (const [wanted, length] of [
      [295, 295],
      [280, 256],
      [200, 128],
      [100, 0],
    ] as const) {
      const least = nearestLength(session, wanted, session.length);
      expect(least).toBe(length);
      session.truncate(least);
      expect(logitsOf(session, IDS.slice(least), [300 - least])).toEqual(all.slice(least * width));
      session.truncate(0);
      logitsOf(session, IDS, [290, 10]);
    }
    expect(() => session.truncate(7)).toThrow("truncate: length expected one of 0, 128, 256, 290 to 300, got 7");
    expect(session.length).toBe(300);
  });

  test("tokens one by one are kernel calls that are repeated, but at the ends of pages, whose checkpoints are kept", () => {
    using session = open();
    using whole = open();
    const all = logitsOf(whole, IDS, [300]);
    const width = all.length / IDS.length;
    const transition = vi.spyOn(RecurrentState.prototype, "transition");
    const worked: number[] = [];
    const one = (i: number) => {
      transition.mockClear();
      expect(Array.from(forward(session, [IDS[i] as number]).logits)).toEqual(all.slice(i * width, (i + 1) * width));
      if (transition.mock.calls.length > 0) worked.push(i);
    };
    for (let i = 0; i < 290; i++) one(i);
    // The first token of each turn. The host reads what kernels gave of the gates of LFM3's heads, of the router of a mixture, and of latents.
    // RecurrentGemma's first token is another call than all later ones.
    const isRead = ["lfm3", "qwen3_next", "jamba", "minimax", "kimi_linear"].includes(name);
    const first = name === "recurrent_gemma" ? [0, 1, 2, 3] : [0, 1, 2];
    if (!isRead) expect(worked).toEqual([...first, 126, 127, 254, 255]);
    expect(nearestLength(session, 280, 290)).toBe(256);
    session.truncate(256);
    for (let i = 256; i < 260; i++) one(i);
    session.truncate(128);
    // What was read before in another turn.
    for (let i = 128; i < 160; i++) one(i);
    session.truncate(159);
    for (let i = 159; i < 165; i++) one(i);
    transition.mockRestore();
  });

  test("a fork goes on alone, and a call that is aborted leaves the session as it was", async () => {
    using session = open();
    const all = logitsOf(session, IDS, [300]);
    const width = all.length / IDS.length;
    session.truncate(0);
    logitsOf(session, IDS.slice(0, 130), [130]);
    using fork = session.fork();
    forward(session, [1, 2, 3]);
    expect(logitsOf(fork, IDS.slice(130), [3, 167])).toEqual(all.slice(130 * width));
    using other = open();
    logitsOf(other, IDS.slice(0, 30), [30]);
    const stop = new AbortController();
    const call = forwardAsync(other, IDS.slice(30), {
      signal: stop.signal,
      sliceMs: 1e-9,
      onProgress: () => stop.abort(),
    });
    await expect(call).rejects.toMatchObject({ name: "AbortError" });
    expect(other.length).toBe(30);
    expect(logitsOf(other, IDS.slice(30), [270])).toEqual(all.slice(30 * width));
  });

  test("behind an aborted call and a cut to a checkpoint, single tokens have the same bits", async () => {
    using whole = open();
    const all = logitsOf(whole, IDS, [300]);
    const width = all.length / IDS.length;
    for (let steps = 1; steps <= 6; steps++) {
      using session = open();
      logitsOf(session, IDS.slice(0, 128), [128]);
      forward(session, [IDS[128] as number]);
      const stop = new AbortController();
      let left = steps;
      const onProgress = () => --left === 0 && stop.abort();
      const call = forwardAsync(session, IDS.slice(129, 140), { signal: stop.signal, sliceMs: 1e-9, onProgress });
      await expect(call).rejects.toMatchObject({ name: "AbortError" });
      session.truncate(128);
      for (let i = 128; i < 134; i++)
        expect(Array.from(forward(session, [IDS[i] as number]).logits)).toEqual(all.slice(i * width, (i + 1) * width));
    }
  });

  test("texts that are generated together, with a draft too, are those that are generated alone", async () => {
    const prompts = [IDS.slice(0, 5), IDS.slice(40, 171), IDS.slice(7, 8)];
    const alone: number[][] = [];
    for (const prompt of prompts) {
      using session = open();
      const ids: number[] = [];
      for await (const { id } of generate(session, prompt, { maxTokens: 12, temperature: 0 })) ids.push(id);
      alone.push(ids);
    }
    const sessions = prompts.map(open);
    const jobs = prompts.map((ids, i) => ({ session: sessions[i] as Session, ids, maxTokens: 12, temperature: 0 }));
    const together: number[][] = prompts.map(() => []);
    for await (const { job, token } of generateMany(jobs)) if (token) together[jobs.indexOf(job)]?.push(token.id);
    expect(together).toEqual(alone);
    for (const session of sessions) session.release();
    using session = open();
    const drafted: number[] = [];
    const draft = { ngram: 1 };
    for await (const { id } of generate(session, prompts[1] as number[], { maxTokens: 12, temperature: 0, draft }))
      drafted.push(id);
    expect(drafted).toEqual(alone[1]);
  });

  test("each token of a call of up to 16 can be forgotten, and those behind it are read again with the same bits", () => {
    using session = open();
    const all = logitsOf(session, IDS, [300]);
    const width = all.length / IDS.length;
    for (const [past, count, kept] of [
      [1, 2, 1],
      [40, 16, 1],
      [120, 13, 12],
      [124, 9, 4],
      [250, 16, 11],
    ] as const) {
      session.truncate(0);
      logitsOf(session, IDS.slice(0, past + count), [past, count]);
      // Twice, the second time behind what was brought back.
      for (const length of [past + count - 1, past + kept]) {
        expect(nearestLength(session, length, session.length)).toBe(length);
        session.truncate(length);
      }
      using fork = session.fork();
      for (const each of [session, fork])
        expect(logitsOf(each, IDS.slice(past + kept, past + kept + 9), [4, 1, 4])).toEqual(
          all.slice((past + kept) * width, (past + kept + 9) * width),
        );
    }
    session.truncate(0);
    logitsOf(session, IDS.slice(0, 60), [43, 17]);
    expect(nearestLength(session, 50, 60)).toBe(43);
  });

  test("a draft of 1 to 12 tokens gives the tokens of plain decoding, in fewer passes", async () => {
    const prompt = IDS.slice(40, 157);
    const run = async (draft?: DraftOptions, sampling = {}) => {
      using session = open();
      const ids: number[] = [];
      for await (const { id } of generate(session, prompt, { maxTokens: 20, ...sampling, draft })) ids.push(id);
      const rest = forward(session, [1]).logits;
      return { ids, rest, length: session.length, changes: session.changes.count };
    };
    using rounded = await loadModel(kernels, tinyFolder(HYBRIDS[name]), { weights: "q4" });
    for (const sampling of [{ temperature: 0 }, { temperature: 0.7, seed: 5 }]) {
      const { changes, ...plain } = await run(undefined, sampling);
      const lengths = sampling.temperature === 0 ? [1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12] : [1, 5, 9];
      for (const tokens of sampled(lengths, 2, (each) => (each === 1 || each === 12 ? each : 0), name.length)) {
        // The model itself, whose guesses are right without sampling; one that it differs from; and what was read before.
        using same = open();
        using other = createSession(rounded, { maxSeqLen: 320 });
        for (const draft of [
          { session: same, tokens },
          { session: other, tokens },
          { ngram: 1, tokens },
        ]) {
          const { changes: drafted, ...got } = await run(draft, sampling);
          expect(got, `${tokens}, ${Object.keys(draft)}`).toEqual(plain);
          // The prompt's pass guesses none; the others give a token more than were guessed.
          if ("session" in draft && draft.session === same && sampling.temperature === 0)
            expect(drafted).toBe(2 + Math.ceil(19 / (tokens + 1)));
        }
      }
      expect(changes).toBe(21);
    }
  });

  test("a session that was exported, at once or page by page, goes on in another one, and both are cut and read on alike", () => {
    using session = open();
    using whole = open();
    const all = logitsOf(whole, IDS, [300]);
    const width = all.length / IDS.length;
    const random = createRandom(name.length);
    for (let round = 0; round < 6; round++) {
      session.truncate(0);
      const length = random.int(1, 290);
      const stored = exportSession(session).map(() => new Map<number, Uint8Array>());
      for (let held = 0; held < length; held = session.length) {
        forward(session, IDS.slice(held, Math.min(length, held + random.int(1, 150))));
        for (const [list, pages] of exportSession(session, held).entries())
          for (const { index, bytes } of pages) stored[list]?.set(index, bytes);
      }
      const listed = stored.map((pages) => Array.from(pages, ([index, bytes]) => ({ index, bytes })));
      using restored = createSession(models.get(name) as Model, { maxSeqLen: 310 });
      importSession(restored, listed, IDS.slice(0, length));
      expect(exportSession(restored)).toEqual(exportSession(session));
      const wanted = random.int(0, length);
      const nearest = nearestLength(restored, wanted, length);
      for (const each of [session, restored]) {
        // The exported session may go back to more, since it knows its last call.
        each.truncate(nearest);
        expect(logitsOf(each, IDS.slice(nearest, nearest + 8), [1, 4, 1, 1, 1])).toEqual(
          all.slice(nearest * width, (nearest + 8) * width),
        );
      }
      // The first tokens alone: as many as a state was kept of.
      using first = open();
      const full = length >= 256 ? 256 : length >= 128 ? 128 : length;
      importSession(first, listed, IDS.slice(0, full));
      expect(Array.from(forward(first, [IDS[full] as number]).logits)).toEqual(
        all.slice(full * width, (full + 1) * width),
      );
    }
  });

  test("pages of states that do not fit are refused by name, and change nothing", () => {
    using session = open();
    forward(session, IDS.slice(0, 200));
    using other = open();
    const pages = exportSession(session);
    const at = pages.findIndex(([page]) => new DataView((page as CachePage).bytes.buffer).getUint32(8, true) === 32);
    expect(at).toBeGreaterThanOrEqual(0);
    const swap = (change: (own: CachePage[]) => CachePage[]) => pages.map((own, i) => (i === at ? change(own) : own));
    const changed = (word: number, value: number) => (own: CachePage[]) =>
      own.map(({ index, bytes }) => {
        const copy = bytes.slice();
        new DataView(copy.buffer).setUint32(4 * word, value, true);
        return { index, bytes: copy };
      });
    const held = (count: number) => changed(8, count);
    const cases: [pages: CachePage[][], count: number, text: RegExp][] = [
      [pages, 199, /ids.length expected (one of 0, 128, 200, of which the pages hold states|at most 0), got 199/],
      [pages, 100, /ids.length expected one of 0, 128, of which the pages hold states, got 100/],
      [pages, 201, /ids.length expected at most 200, the tokens that the pages hold, got 201/],
      [swap((own) => own.slice(0, 1)), 200, /pages expected 2 for length 200, got 1/],
      [swap((own) => own.slice(1)), 200, /pages\[0\].index expected 0, got 1/],
      [swap(changed(5, 1)), 200, /pages\[0\].bytes expected inputs \d+, got 1/],
      [swap(changed(6, 1)), 200, /pages\[0\].bytes expected scan \d+, got 1/],
      [swap(changed(2, 0)), 200, /pages\[0\].bytes expected a recurrent state, got keys "f32" and values "f32"/],
      [swap(held(129)), 200, /pages\[0\].bytes expected at most 128 tokens, got 129/],
      [swap(held(0)), 200, /pages\[0\].bytes expected 36 bytes, got \d+/],
      [swap((own) => own.map(({ index, bytes }) => ({ index, bytes: bytes.slice(0, -4) }))), 200, /expected \d+ bytes/],
      [swap(() => 1 as never), 200, /pages expected an iterable of { index, bytes }, got 1/],
      [pages.slice(1), 200, new RegExp(`pages expected the ${pages.length} lists of exportSession, got`)],
    ];
    for (const [given, count, text] of cases) {
      expect(() => importSession(other, given, IDS.slice(0, count)), String(text)).toThrow(text);
      expect(other.length).toBe(0);
    }
    importSession(other, pages, IDS.slice(0, 200));
    expect(forward(other, [1]).logits).toEqual(forward(session, [1]).logits);
  });

  test("the bytes of a session are planned, and release gives all memory back", () => {
    using warm = open();
    forward(warm, IDS.slice(0, 3));
    const before = kernels.usedBytes;
    const session = open();
    const { sessions } = planModel(HYBRIDS[name], { maxSeqLen: 320 });
    expect(session.bytes).toBe(sessions);
    session.release();
    expect(kernels.usedBytes).toBe(before);
  });
});

test("Kimi-Linear is the same as it is published and as other programs save it", async () => {
  const { linear_attn_config: own, num_experts_per_tok, norm_topk_prob, ...rest } = HYBRIDS.kimi_linear;
  const config = {
    ...{ ...rest, layer_types: ["linear_attention", "full_attention", "linear_attention"] },
    ...{
      linear_num_heads: own.num_heads,
      linear_head_dim: own.head_dim,
      mlp_layer_types: ["dense", "sparse", "sparse"],
    },
    ...{ linear_conv_kernel_dim: own.short_conv_kernel_size, head_dim: rest.qk_rope_head_dim },
    ...{ num_experts_per_token: num_experts_per_tok, moe_renormalize: norm_topk_prob },
  };
  const tensors = [...tinyTensors(HYBRIDS.kimi_linear)].map(
    ([name, tensor]) => [name.replace(".mlp.", ".block_sparse_moe."), tensor] as const,
  );
  using model = await loadModel(kernels, tinyFolder(config, new Map(tensors)));
  using session = createSession(model, { maxSeqLen: 60 });
  using published = createSession(models.get("kimi_linear") as Model, { maxSeqLen: 60 });
  expect(logitsOf(session, IDS.slice(0, 50), [50])).toEqual(logitsOf(published, IDS.slice(0, 50), [50]));
});

test.each(["q8", "q4", "f16"] as const)(
  "weights in %s have their planned bytes, and chunks the same bits",
  async (weights) => {
    for (const name of sampled(Object.keys(HYBRIDS) as Name[], 5, undefined, Number(weights === "q8"))) {
      using model = await loadModel(kernels, tinyFolder(HYBRIDS[name]), { weights });
      expect(model.bytes, name).toBe(planModel(HYBRIDS[name], { weights }).weights);
      using whole = createSession(model, { maxSeqLen: 60 });
      using chunks = createSession(model, { maxSeqLen: 60 });
      const ids = IDS.slice(0, 40);
      expect(logitsOf(chunks, ids, [1, 20, 1, 18]), name).toEqual(logitsOf(whole, ids, [40]));
    }
  },
);

test("threads change no bit", async () => {
  const threaded = await threadedKernels("relaxed", 2);
  for (const name of sampled(Object.keys(HYBRIDS) as Name[], 5, undefined, 1)) {
    const model = await loadModel(threaded, tinyFolder(HYBRIDS[name]));
    using session = createSession(model, { maxSeqLen: 320 });
    using own = createSession(models.get(name) as Model, { maxSeqLen: 320 });
    expect(logitsOf(session, IDS, [160, 140])).toEqual(logitsOf(own, IDS, [300]));
  }
  threaded.release();
});

test("gates of blocks are those of one matrix that has the blocks along its diagonal", async () => {
  const config = { ...HYBRIDS.recurrent_gemma, block_types: ["recurrent"], num_hidden_layers: 1 };
  const tensors = tinyTensors(config);
  const whole = new Map(tensors);
  for (const [name, { data, shape }] of tensors) {
    const [blocks = 0, inputs = 0, outputs = 0] = shape;
    if (/gate_bias$/.test(name)) whole.set(name, { data, shape: [1, 36] });
    if (!/gate_weight$/.test(name)) continue;
    const all = new Float32Array(36 * 36);
    for (const [at, value] of data.entries()) {
      const [b, i, o] = [Math.floor(at / (inputs * outputs)), Math.floor(at / outputs) % inputs, at % outputs];
      all[(b * inputs + i) * 36 + b * outputs + o] = value;
    }
    expect(blocks).toBe(4);
    whole.set(name, { data: all, shape: [1, 36, 36] });
  }
  const one = { ...config, num_attention_heads: 1, num_key_value_heads: 1 };
  using blocks = await loadModel(kernels, tinyFolder(config, tensors));
  using dense = await loadModel(kernels, tinyFolder(one, whole));
  const of = (model: Model) => {
    using session = createSession(model, { maxSeqLen: 40 });
    return logitsOf(session, IDS.slice(0, 40), [40]);
  };
  expect(of(dense)).toEqual(of(blocks));
});

test.each<[Name, object, string]>([
  ["jamba", { attn_layer_offset: 3 }, "attn_layer_offset expected less than attn_layer_period, 3, got 3"],
  ["jamba", { expert_layer_period: 0 }, "expert_layer_period expected an integer >= 1, got 0"],
  ["jamba", { mamba_d_conv: 17 }, "mamba_d_conv expected an integer from 1 to 16, got 17"],
  ["jamba", { mamba_d_state: 0 }, "mamba_d_state expected an integer >= 1, got 0"],
  ["jamba", { mamba_dt_rank: "all" }, 'mamba_dt_rank expected an integer >= 1, got "all"'],
  ["jamba", { hidden_act: "gelu" }, 'hidden_act expected "silu", since others are unsupported, got "gelu"'],
  ["jamba", { num_experts_per_tok: 5 }, "num_experts_per_tok expected an integer from 1 to 4, got 5"],
  ["recurrent_gemma", { lru_width: 42 }, "num_attention_heads expected a divisor of lru_width, 42, got 4"],
  [
    "recurrent_gemma",
    { block_types: ["attention", "mamba"] },
    'block_types expected a list of "recurrent" and "attention", got "mamba"',
  ],
  [
    "recurrent_gemma",
    { block_types: [] },
    'block_types expected a list of "recurrent" and "attention", got "undefined"',
  ],
  ["recurrent_gemma", { conv1d_width: 0 }, "conv1d_width expected an integer >= 1, got 0"],
  [
    "recurrent_gemma",
    { hidden_activation: "gelu" },
    'hidden_activation expected "gelu_pytorch_tanh", since others are unsupported, got "gelu"',
  ],
])("%s with %o is refused by name", (name, more, message) => {
  expect(() => planModel({ ...HYBRIDS[name], ...more })).toThrow(`planModel: ${message}`);
});
