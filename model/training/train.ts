import { mkdir, writeFile } from "node:fs/promises";
import { parseArgs } from "node:util";
import { init, jit, nn, numpy as np, tree, valueAndGrad } from "@jax-js/jax";
import { type AdamRates, type AdamState, adamRates, adamStep, createAdamState } from "./adam.ts";
import { drawSequence, firstTarget, seqLen } from "./data.ts";
import { measure } from "./measure.ts";
import { createParameters, createTables, forward, type Parameters, type Tables } from "./model.ts";
import { createRandom, type Random } from "./random.ts";
import { referenceForward, type Weights } from "./reference.ts";
import { readSafetensors, type Tensor, writeSafetensors } from "./safetensors.ts";
import { hfConfig, shapes } from "./shapes.ts";
import { tokenizer, vocabSize } from "./vocabulary.ts";

const batch = 32;
const peakRate = 3e-3;
const warmup = 100;

const { values: options } = parseArgs({
  options: {
    seed: { type: "string", default: "1" },
    steps: { type: "string", default: "2000" },
    out: { type: "string", default: ".." },
    result: { type: "string", default: "result.txt" },
  },
});
const seed = Number(options.seed);
const steps = Number(options.steps);

// Where no token comes twice, one look back is enough, and a layer-0 head settles on the previous
// token. Words, which need a longer look, come only then; mixed in from the start they blur it.
const clearSteps = Math.round(0.5 * steps);

type Batch = { tokens: np.Array; targets: np.Array; counts: np.Array };

/** tokens, targets [batch, seqLen] int32; counts [batch, seqLen], 1 where the target is scored, else 0. */
function drawBatch(random: Random, at: number): Batch {
  const tokens = new Int32Array(batch * seqLen);
  const targets = new Int32Array(batch * seqLen);
  const counts = new Float32Array(batch * seqLen);
  for (let row = 0; row < batch; row++) {
    const sequence = drawSequence(random, at <= clearSteps ? "long" : undefined);
    const first = firstTarget(sequence);
    for (let i = 0; i < seqLen; i++) {
      const at = row * seqLen + i;
      tokens[at] = sequence.tokens[i]!;
      if (i + 1 === seqLen) continue; // what follows the window is not known
      targets[at] = sequence.tokens[i + 1]!;
      counts[at] = i + 1 >= first ? 1 : 0;
    }
  }
  const shaped = (data: Int32Array<ArrayBuffer> | Float32Array<ArrayBuffer>) => np.array(data).reshape([batch, seqLen]);
  return { tokens: shaped(tokens), targets: shaped(targets), counts: shaped(counts) };
}

/** Mean cross-entropy in nats over the scored targets, and the share of them that the largest logit hits. */
function loss(parameters: Parameters, tables: Tables, { tokens, targets, counts }: Batch): [np.Array, np.Array] {
  const logits = forward(parameters, tables, tokens);
  const total = counts.ref.sum();
  const hits = np.argmax(logits.ref, -1).equal(targets.ref).astype(np.float32);
  const accuracy = hits.mul(counts.ref).sum().div(total.ref);
  const chosen = nn.logSoftmax(logits, -1).mul(nn.oneHot(targets, vocabSize)).sum(-1);
  return [chosen.mul(counts).sum().div(total).neg(), accuracy];
}

const step = jit((parameters: Parameters, state: AdamState, rates: AdamRates, tables: Tables, data: Batch) => {
  const [[value, accuracy], gradients] = valueAndGrad(loss, { hasAux: true })(
    tree.ref(parameters),
    tables,
    data,
  ) as unknown as [[np.Array, np.Array], Parameters];
  const [next, nextState] = adamStep(parameters, gradients, state, rates);
  return { parameters: next, state: nextState, value, accuracy };
});

/** Rises over the first steps, then falls along a cosine to exactly 0. */
function rateAt(at: number): number {
  if (at <= warmup) return (peakRate * at) / warmup;
  return peakRate * 0.5 * (1 + Math.cos((Math.PI * (at - warmup)) / (steps - warmup)));
}

await init("wasm");
const random = createRandom(seed);
let parameters = createParameters(random);
let state = createAdamState(tree.ref(parameters) as Parameters);
const tables = createTables(seqLen);

const lines: string[] = [];
const print = (line: string) => {
  console.log(line);
  lines.push(line);
};

const started = performance.now();
print(`seed ${seed}, ${steps} steps of ${batch} x ${seqLen} tokens`);
for (let at = 1; at <= steps; at++) {
  const rates = adamRates(at, rateAt(at));
  const result = step(parameters, state, rates, tree.ref(tables) as Tables, drawBatch(random, at));
  parameters = result.parameters as Parameters;
  state = result.state as AdamState;
  const [value] = await result.value.data();
  const [accuracy] = await result.accuracy.data();
  if (at === 1 || at % 100 === 0) {
    print(
      `step ${String(at).padStart(4)}  loss ${value!.toFixed(4)}  accuracy ${accuracy!.toFixed(4)}  ${((performance.now() - started) / 1000).toFixed(0)} s`,
    );
  }
}
print(`trained in ${((performance.now() - started) / 1000).toFixed(0)} s`);

const tensors = new Map<string, Tensor>();
for (const [name, shape] of Object.entries(shapes)) {
  tensors.set(name, { shape, data: (await parameters[name]!.ref.data()) as Float32Array });
}
const bytes = writeSafetensors(tensors, { format: "pt", seed: String(seed), steps: String(steps), licence: "MIT" });

// From here on only what the file says counts.
const weights = readSafetensors(bytes);
print(`${[...weights.values()].reduce((sum, { data }) => sum + data.length, 0)} parameters, ${bytes.length} bytes`);
print(
  `largest difference of the logits from the float64 reference: ${(await compareWithReference(weights)).toExponential(1)}`,
);
const { heldout, logits } = measure(weights, print);

await mkdir(options.out, { recursive: true });
await writeFile(`${options.out}/model.safetensors`, bytes);
await writeFile(`${options.out}/heldout.json`, `${JSON.stringify(heldout, null, 1)}\n`);
await writeFile(`${options.out}/logits.json`, `${JSON.stringify(logits, null, 1)}\n`);
await writeFile(`${options.out}/config.json`, `${JSON.stringify(hfConfig, null, 2)}\n`);
await writeFile(`${options.out}/tokenizer.json`, `${JSON.stringify(tokenizer, null, 1)}\n`);
await writeFile(options.result, `${lines.join("\n")}\n`);

/** Two paths to the logits of one batch: jax-js with the trained arrays, plain loops with the file. */
async function compareWithReference(weights: Weights): Promise<number> {
  const { tokens, targets, counts } = drawBatch(createRandom(seed + 1), steps);
  targets.dispose();
  counts.dispose();
  const rows = (await tokens.ref.data()) as Int32Array;
  const fast = (await forward(parameters, tables, tokens).data()) as Float32Array;
  let largest = 0;
  for (let row = 0; row < batch; row++) {
    const { logits } = referenceForward(weights, Array.from(rows.subarray(row * seqLen, (row + 1) * seqLen)));
    logits
      .flatMap((position) => Array.from(position))
      .forEach((logit, i) => {
        largest = Math.max(largest, Math.abs(logit - fast[row * seqLen * vocabSize + i]!));
      });
  }
  return largest;
}
