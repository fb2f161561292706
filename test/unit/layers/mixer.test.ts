// A mixer is a record: a third one, which lives here alone, runs in a decoder beside those of the package; and those of the package
// run beside each other.

import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { checkConfig } from "../../../src/layers/attention/config.ts";
import type { BlockLayer, LayerState, Mixer, StateRuns } from "../../../src/layers/mixer/mixer.ts";
import { createPageLayout } from "../../../src/layers/state/pages.ts";
import type { Model, PackedBlock } from "../../../src/models/blocks/model.ts";
import { forward, forwardAsync } from "../../../src/models/decoder/forward.ts";
import { createSession, exportSession, nearestLength } from "../../../src/models/decoder/session.ts";
import { generate } from "../../../src/models/generate/generate.ts";
import { loadModel, loadWith } from "../../../src/models/load/load-model.ts";
import { planSpec, uniformFormats } from "../../../src/models/load/plan-model.ts";
import { readDecoder } from "../../../src/models/spec/read-spec.ts";
import type { BlockSpec } from "../../../src/models/spec/spec.ts";
import { type Decoder, expectedTensors, resolveHead } from "../../../src/models/spec/tensors.ts";
import type { Kernels } from "../../../src/wasm/kernels.ts";
import { kernelsOf } from "../../support/layers.ts";
import { logitsOf } from "../../support/logits.ts";
import { TINY, tinyFolder, tinyTensors } from "../../support/tiny-models.ts";

/** Tokens between two sums that are kept to go back to. */
const KEPT = 8;

/** The sum of the tokens of a sequence, whatever their number: as committed, as a call goes on, and at the last multiple of KEPT. */
class SumState implements LayerState {
  readonly formats = 0;
  readonly bytes: number;
  private readonly at: number;
  private held = 0;
  private keptAt = 0;
  private next: { length: number; kept: number } = { length: 0, kept: 0 };

  private readonly kernels: Kernels;
  private readonly width: number;

  constructor(where: string, kernels: Kernels, width: number) {
    this.kernels = kernels;
    this.width = width;
    this.bytes = 4 * ROWS.length * width;
    this.at = kernels.memory.allocate(where, this.bytes);
    this.row("held").fill(0);
  }

  private row(name: (typeof ROWS)[number]): Float32Array {
    return this.kernels.memory.f32(this.at + 4 * ROWS.indexOf(name) * this.width, this.width);
  }

  get forkBytes(): number {
    return this.bytes;
  }

  /** Adds a token's row in place, which becomes the mean of all so far. */
  add(row: Float32Array): void {
    const sum = this.row("next");
    const count = ++this.next.length;
    for (let i = 0; i < sum.length; i++) {
      sum[i] = (sum[i] as number) + (row[i] as number);
      row[i] = (sum[i] as number) / count;
    }
    if (count % KEPT !== 0) return;
    this.row("nextKept").set(sum);
    this.next.kept = count;
  }

  begin(): void {
    this.row("next").set(this.row("held"));
    this.next = { length: this.held, kept: 0 };
  }

  settle(): boolean {
    return true;
  }

  commit(tokens: number): void {
    expect(this.next.length).toBe(this.held + tokens);
    this.row("held").set(this.row("next"));
    this.held = this.next.length;
    if (this.next.kept > 0) {
      this.row("kept").set(this.row("nextKept"));
      this.keptAt = this.next.kept;
    }
    this.begin();
  }

  nearest(length: number, held: number): number {
    if (length >= held) return held;
    const kept = KEPT * Math.floor(held / KEPT);
    return length >= kept ? kept : 0;
  }

  expectTruncatable(length: number): void {
    if (length !== 0 && length !== this.held && length !== this.keptAt)
      throw new RangeError(`truncate: length expected 0, ${this.keptAt} or ${this.held}, got ${length}`);
  }

  reserve(): void {}

  truncate(length: number): void {
    if (length === 0) this.row("held").fill(0);
    else if (length < this.held) this.row("held").set(this.row("kept"));
    this.held = length;
    if (length === 0) this.keptAt = 0;
    this.begin();
  }

  fork(where: string): this {
    const copy = new SumState(where, this.kernels, this.width);
    this.kernels.memory.u8(copy.at, this.bytes).set(this.kernels.memory.u8(this.at, this.bytes));
    [copy.held, copy.keptAt] = [this.held, this.keptAt];
    copy.begin();
    return copy as this;
  }

  release(): void {
    if (!this.kernels.released) this.kernels.memory.free(this.at);
  }
}

const ROWS = ["held", "next", "kept", "nextKept"] as const;

/** The mean of all tokens so far, instead of attention. */
const MEANS: Mixer<BlockLayer, SumState> = {
  callsOnlyKernels: () => false,
  rope: () => undefined,
  linears: () => [],
  chunkRows: (_, rows) => Math.min(rows, 24),
  states: {
    bytes: (_where, { config }) => 4 * ROWS.length * config.dModel,
    create: (where, { kernels, config }) => new SumState(where, kernels, config.dModel),
  },
  plan({ kernels, config }, layout, rows) {
    const place = layout.floats(rows * config.dModel);
    return function* (base, _stepFlops, runs: StateRuns<SumState>, { x, out }) {
      for (const { of, begin, end, at } of runs)
        for (let token = begin; token < end; token++) {
          const row = at + token - begin;
          const own = kernels.memory.f32(base + place + 4 * row * config.dModel, config.dModel);
          own.set(kernels.memory.f32(x.at + 4 * row * x.stride, config.dModel));
          of.state.add(own);
          kernels.memory.f32(out.at + 4 * row * out.stride, config.dModel).set(own);
        }
      yield config.dModel;
    };
  },
};

function meansLayer(kernels: Kernels, dModel: number): BlockLayer {
  const config = checkConfig("meansLayer", { dModel, numHeads: 1, causal: true });
  return {
    ...{ kind: "means", kernels, config, pageShape: config, rotary: undefined, mixer: MEANS },
    ...{ bytes: 0, released: false, release() {} },
  };
}

/** The decoder with the mixer of the other one in its last layer. */
function withLatents({ spec, ...rest }: Decoder, other: Decoder): Decoder {
  const [first, last] = spec.blocks as readonly [BlockSpec, BlockSpec];
  const { mixer } = other.spec.blocks[1] as BlockSpec;
  return resolveHead({ ...rest, spec: { ...spec, blocks: [first, { ...last, mixer }] } });
}

let kernels: Kernels;
const models = new Map<string, Model>();
/** A decoder whose second layer has another kind of mixer than its first one. */
const HYBRID = withLatents(readDecoder("test", TINY.llama), readDecoder("test", TINY.deepseek_v3));
let hybridBytes = 0;
beforeAll(async () => {
  kernels = await kernelsOf("simd");
  const load = (config: object) => loadModel(kernels, tinyFolder(config));
  models.set("softmax heads", await load(TINY.llama));
  models.set("latents", await load(TINY.deepseek_v3));
  const mixed = await load(TINY.llama);
  const blocks = mixed.weights.blocks as PackedBlock[];
  blocks[1] = { ...(blocks[1] as PackedBlock), attention: meansLayer(kernels, mixed.dModel) };
  models.set("heads, then means", mixed);
  const files = tinyFolder(
    TINY.llama,
    tinyTensors({}, 1, () => HYBRID),
  );
  const before = kernels.usedBytes;
  const hybrid = await loadWith("loadModel", kernels, files, {}, { read: () => HYBRID });
  hybridBytes = kernels.usedBytes - before;
  models.set("heads, then latents", hybrid as Model);
});
afterAll(() => kernels.release());

const IDS = Array.from({ length: 45 }, (_, i) => (i * 29 + 5) % 67);

describe.each(["softmax heads", "latents", "heads, then means", "heads, then latents"])("a decoder of %s", (name) => {
  const open = () => createSession(models.get(name) as Model, { maxSeqLen: 100 });

  test("one prefill, chunks of any lengths and tokens one by one have the same bits, in slices too", async () => {
    const [whole, chunks, single, sliced] = [open(), open(), open(), open()];
    const all = logitsOf(whole, IDS, [45]);
    expect(logitsOf(chunks, IDS, [7, 1, 1, 30, 6])).toEqual(all);
    expect(
      logitsOf(
        single,
        IDS,
        IDS.map(() => 1),
      ),
    ).toEqual(all);
    expect(Array.from((await forwardAsync(sliced, IDS, { rows: "all", sliceMs: 1e-9 })).logits)).toEqual(all);
    for (const session of [whole, chunks, single, sliced]) session.release();
  });

  test("a session goes back as far as its states can, and reads on with the same bits", () => {
    using session = open();
    const all = logitsOf(session, IDS, [45]);
    const width = all.length / IDS.length;
    const least = nearestLength(session, 42, 45);
    expect(least).toBe(name === "heads, then means" ? 40 : 42);
    session.truncate(least);
    expect(session.length).toBe(least);
    expect(logitsOf(session, IDS.slice(least), [45 - least])).toEqual(all.slice(least * width));
    session.truncate(0);
    expect(logitsOf(session, IDS, [20, 25])).toEqual(all);
  });

  test("a fork goes on alone, and a call that is aborted leaves the session as it was", async () => {
    using session = open();
    const all = logitsOf(session, IDS, [45]);
    const width = all.length / IDS.length;
    session.truncate(0);
    logitsOf(session, IDS.slice(0, 30), [30]);
    using fork = session.fork();
    forward(session, [1, 2, 3]);
    expect(logitsOf(fork, IDS.slice(30), [3, 12])).toEqual(all.slice(30 * width));
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
    expect(logitsOf(other, IDS.slice(30), [15])).toEqual(all.slice(30 * width));
  });

  test("tokens are generated, bytes are as planned, and release gives all memory back", async () => {
    forward(open(), IDS.slice(0, 3)).logits.slice();
    const before = kernels.usedBytes;
    const session = open();
    expect(kernels.usedBytes - before).toBeGreaterThanOrEqual(session.bytes);
    const ids: number[] = [];
    for await (const { id } of generate(session, [3, 1, 4], { maxTokens: 5, temperature: 0 })) ids.push(id);
    expect(ids).toHaveLength(5);
    session.release();
    expect(kernels.usedBytes).toBe(before);
  });
});

test("layers of one model may differ in their kind: tensors and bytes are those of each", () => {
  expect([...expectedTensors(HYBRID, "model.").required.keys()]).toEqual(
    expect.arrayContaining(["model.layers.0.self_attn.k_proj.weight", "model.layers.1.self_attn.kv_b_proj.weight"]),
  );
  const plan = planSpec("test", HYBRID.spec, uniformFormats({}), { maxSeqLen: 100 });
  expect(plan.weights).toBe(hybridBytes);
  using session = createSession(models.get("heads, then latents") as Model, { maxSeqLen: 100 });
  expect(plan.sessions).toBe(session.bytes);
});

test("what a third mixer lacks is refused by name: pages to export, and a length that its state cannot go back to", () => {
  using session = createSession(models.get("heads, then means") as Model, { maxSeqLen: 100 });
  forward(session, IDS);
  expect(() => session.truncate(43)).toThrow("truncate: length expected 0, 40 or 45, got 43");
  expect(session.length).toBe(45);
  expect(() => exportSession(session)).toThrow(
    "exportSession: session expected one whose layers keep pages of tokens, got a layer that keeps none",
  );
  expect(session.formats).toBe(`${createPageLayout(session.model.weights.blocks[0]!.attention.pageShape).formats},0`);
});
