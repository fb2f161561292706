// The parts of the comparison: kernels, whole layers and decode steps in one process, startup in processes of its own.

import { execFileSync } from "node:child_process";
import { join } from "node:path";
import { configOf, weightsOf } from "../layers/layer.ts";
import { inputRows } from "../layers/oracle.ts";
import type { BuildName } from "../lib/builds.ts";
import type { Prepared } from "../lib/case.ts";
import type { Effort } from "../lib/measure.ts";
import { type Part, part } from "../lib/part.ts";
import { MODEL_CONFIGS, randomModel } from "../lib/random-model.ts";
import { gpt2Layer, type LayerWork, llamaLayer, tinyLayer } from "../lib/shapes.ts";
import type { Checkout, Headwise } from "./checkout.ts";
import {
  columns,
  type Difference,
  GROUPS,
  groupsOf,
  type Pair,
  type Round,
  summarise,
  timePair,
} from "./difference.ts";

/** Cases that both checkouts have, each in its own code; the names of the others are printed. */
export function compareKernels(old: Checkout, now: Checkout): Part {
  /** Loads one build of both checkouts. Returns a function that prepares a case in both and checks it. */
  const loadBoth = async (build: BuildName, order: readonly Checkout[]) => {
    const loaded = new Map<Checkout, (work: string) => Prepared>();
    for (const checkout of order) loaded.set(checkout, await checkout.load(build));
    return (work: string): Pair => {
      const prepared = new Map(order.map((checkout) => [checkout, loaded.get(checkout)!(work)]));
      const [first, second] = [prepared.get(old)!, prepared.get(now)!];
      for (const { run, check } of [first, second]) {
        run();
        check();
      }
      return {
        old: { work: 1, run: first.run },
        new: { work: 1, run: second.run },
        release() {
          first.release();
          second.release();
        },
      };
    };
  };
  return part("kernels", columns, async function* rows({ quick, effort, builds, wants }): AsyncGenerator<Difference> {
    const all = new Set([...old.cases.keys(), ...now.cases.keys()]);
    const chosen = Array.from(all).filter((name) => wants(name) && (!quick || now.cases.get(name)?.quick));
    const common = chosen.filter((name) => old.cases.has(name) && now.cases.has(name));
    const others = chosen.filter((name) => !common.includes(name));
    if (others.length > 0) console.log(`\nin one checkout only: ${others.join("; ")}`);
    for (const build of common.length > 0 ? builds : []) {
      // Two memories for each checkout, made in both orders, because addresses make a difference.
      const placements = [await loadBoth(build, [old, now]), await loadBoth(build, [now, old])];
      for (const work of common) {
        const groups: Round[][] = [];
        for (const prepare of placements)
          groups.push(await timePair(prepare(work), shareOf(effort, placements.length)));
        yield { work, build, ...summarise(groups) };
      }
    }
  });
}

/** The effort of each of `groups` groups. */
function shareOf({ samples, mostMs, ...rest }: Effort, groups: number): Effort {
  return { ...rest, samples: Math.ceil(samples / groups), mostMs: mostMs / groups };
}

const prompts: readonly LayerWork[] = [
  { shape: gpt2Layer, tokens: 16 },
  { shape: gpt2Layer, tokens: 128, quick: true },
  { shape: gpt2Layer, tokens: 512 },
  { shape: llamaLayer, tokens: 16 },
  { shape: llamaLayer, tokens: 128, quick: true },
  { shape: llamaLayer, tokens: 512 },
];

const decodeSteps: readonly LayerWork[] = [
  { shape: gpt2Layer, tokens: 1, past: 1024, quick: true },
  { shape: llamaLayer, tokens: 1, past: 1024, quick: true },
  { shape: tinyLayer, tokens: 1, past: 128, quick: true },
];

/** A layer of one checkout through its public functions. */
async function prepareLayer(
  headwise: Headwise,
  build: BuildName,
  { shape, tokens, past = 0 }: LayerWork,
): Promise<Made> {
  const kernels = await headwise.loadKernels({ deterministic: build === "simd" });
  if (kernels.build !== build) throw new Error(`bench --against: build ${build} expected, got ${kernels.build}`);
  const attention = headwise.createAttention(kernels, configOf(shape), weightsOf(shape));
  const rows = inputRows(past + tokens, shape.dModel);
  const x = rows.subarray(past * shape.dModel);
  const out = new Float32Array(x.length);
  const cache = past > 0 ? headwise.createCache(attention, { maxSeqLen: past + tokens }) : undefined;
  if (cache) headwise.attend(attention, rows.subarray(0, past * shape.dModel), { cache });
  const run = () => {
    cache?.truncate(past);
    headwise.attend(attention, x, { cache, out });
  };
  return { out: () => out, run, release: () => kernels.release() };
}

function equalBits(a: Float32Array, b: Float32Array): boolean {
  const [first, second] = [a, b].map(({ buffer }) => new Uint32Array(buffer)) as [Uint32Array, Uint32Array];
  return first.every((bits, i) => bits === second[i]);
}

/** What is timed of one checkout, and what it computed last. */
interface Made {
  readonly out: () => Float32Array;
  readonly run: () => void;
  readonly release: () => void;
}

/** Times a work in both checkouts, in groups with engines of their own. */
async function timeGroups(
  [old, now]: readonly [Checkout, Checkout],
  effort: Effort,
  make: (checkout: Checkout) => Promise<Made>,
) {
  let sameBits = true;
  const groups: Round[][] = [];
  for (let group = 0; group < GROUPS; group++) {
    // Made in alternating order, because addresses make a difference.
    const order = group % 2 === 0 ? [old, now] : [now, old];
    const made = new Map<Checkout, Made>();
    for (const checkout of order) made.set(checkout, await make(checkout));
    const [first, second] = [made.get(old)!, made.get(now)!];
    for (const { run } of [first, second]) run();
    sameBits &&= equalBits(first.out(), second.out());
    const release = () => {
      first.release();
      second.release();
    };
    const pair = { old: { work: 1, run: first.run }, new: { work: 1, run: second.run }, release };
    groups.push(await timePair(pair, shareOf(effort, GROUPS)));
  }
  return { ...summarise(groups), sameBits };
}

function compareLayers(name: string, works: readonly LayerWork[], old: Checkout, now: Checkout): Part {
  return part(name, columns, async function* rows({ quick, effort, builds, wants }): AsyncGenerator<Difference> {
    for (const work of works)
      for (const build of builds) {
        const { shape, tokens, past } = work;
        const label = `${shape.model} ${past === undefined ? `T=${tokens}` : `decode past ${past}`}`;
        if ((quick && !work.quick) || !wants(label)) continue;
        const timed = await timeGroups([old, now], effort, ({ headwise }) => prepareLayer(headwise, build, work));
        yield { work: label, build, ...timed };
      }
  });
}

export const comparePrompts = (old: Checkout, now: Checkout) => compareLayers("layers", prompts, old, now);
export const compareDecode = (old: Checkout, now: Checkout) => compareLayers("decode", decodeSteps, old, now);

/** Decoders whose tokens are compared, one of each way to find places: rotations, and learned positions. */
const DECODERS = {
  "SmolLM2-135M": MODEL_CONFIGS["SmolLM2-135M"]!,
  "GPT-2": {
    ...{ model_type: "gpt2", n_embd: 768, n_head: 12, n_layer: 12, n_positions: 1024, vocab_size: 50_257 },
    ...{ activation_function: "gelu_new", layer_norm_epsilon: 1e-5, tie_word_embeddings: true },
  },
} as const satisfies Record<string, object>;

/** Tokens in front of the timed one. */
const BEFORE = 128;

/** A token of a decoder of one checkout through its public functions. */
async function prepareToken(
  { headwise, models }: Checkout,
  build: BuildName,
  config: object,
  weights: "f32" | "q8",
): Promise<Made> {
  const { createSession, forward, loadModel, quantized } = models;
  const kernels = await headwise.loadKernels({ deterministic: build === "simd", models: models.models, quantized });
  const model = await loadModel(kernels, randomModel(config), { weights });
  const session = createSession(model, { maxSeqLen: BEFORE + 1 });
  forward(
    session,
    Array.from({ length: BEFORE }, (_, i) => (i * 7919) % model.vocabSize),
  );
  let logits: Float32Array;
  const run = () => {
    session.truncate(BEFORE);
    ({ logits } = forward(session, [1]));
  };
  return { out: () => logits, run, release: () => kernels.release() };
}

/** Tokens of whole decoders. */
export function compareTokens(old: Checkout, now: Checkout): Part {
  return part("tokens", columns, async function* rows({ quick, effort, builds, wants }): AsyncGenerator<Difference> {
    for (const [name, config] of Object.entries(DECODERS))
      for (const weights of ["f32", "q8"] as const)
        for (const build of builds) {
          const work = `${name} ${weights} token`;
          if (quick || !wants(work)) continue;
          const prepare = (checkout: Checkout) => prepareToken(checkout, build, config, weights);
          yield { work, build, ...(await timeGroups([old, now], effort, prepare)) };
        }
  });
}

const RUNS = 31;
const QUICK_RUNS = 7;

/** One process from its start to its end, and the sum of the steps from the import to the first result. */
function startOnce({ folder }: Checkout, build: BuildName): readonly number[] {
  const path = join(import.meta.dirname, "../startup/layer.mjs");
  const args = [path, "--dist", join(folder, "dist"), ...(build === "simd" ? ["--deterministic"] : [])];
  const start = performance.now();
  const printed = execFileSync(process.execPath, args, { encoding: "utf8" });
  const whole = performance.now() - start;
  const { inputs: _, ...steps } = JSON.parse(printed) as Record<string, number>;
  return [whole, Object.values(steps).reduce((sum, ms) => sum + ms, 0)];
}

/** Runs processes of both checkouts by turns. */
export function compareStartup(old: Checkout, now: Checkout): Part {
  return part("startup", columns, async function* rows({ quick, builds, wants }): AsyncGenerator<Difference> {
    const works = ["process that runs a layer", "  its import to its first result"];
    for (const build of works.some(wants) ? builds : []) {
      for (const checkout of [old, now]) startOnce(checkout, build); // reads the files into the system's cache
      const rounds: { old: readonly number[]; new: readonly number[] }[] = [];
      for (let run = 0; run < (quick ? QUICK_RUNS : RUNS); run++)
        if (run % 2 === 0) rounds.push({ old: startOnce(old, build), new: startOnce(now, build) });
        else {
          const after = startOnce(now, build);
          rounds.push({ old: startOnce(old, build), new: after });
        }
      for (const [i, work] of works.entries()) {
        const times = rounds.map((round) => ({ old: round.old[i]!, new: round.new[i]! }));
        yield { work, build, ...summarise(groupsOf(times)) };
      }
    }
  });
}
