import { drawSequence, firstTarget, type Kind, type Sequence, seqLen } from "./data.ts";
import { argmax, continueGreedily, type Evaluation, evaluate, withoutHead } from "./evaluate.ts";
import { createRandom } from "./random.ts";
import { referenceForward, type Weights } from "./reference.ts";
import { decode, encode, vocabSize } from "./vocabulary.ts";

/** No training seed, so that nothing held out was trained on. */
const heldoutSeed = 960_001;

const prompts = [
  "qz7 mfk qz7 m",
  "hello world, hello w",
  "abc def ghi abc d",
  "to be or not to be or n",
  "one two three one t",
  "x9$Kp x9$",
];

/** A prompt of 24 tokens whose logits are kept. */
const logitsPrompt = "attention, attention, at";

export interface Measured {
  readonly heldout: object;
  readonly logits: object;
}

/** Prints the table of a trained model; returns what is kept beside the weights. All in float64. */
export function measure(weights: Weights, print: (line: string) => void): Measured {
  const sequences = drawHeldout(64);
  const all = evaluate(weights, sequences);
  print(
    `held-out accuracy ${all.accuracy.toFixed(4)} of ${all.count} targets in ${sequences.length} sequences; chance ${(1 / vocabSize).toFixed(4)}`,
  );
  for (const kind of ["long", "short", "words"] as const) {
    const one = evaluate(weights, drawHeldout(64, kind));
    print(`  ${kind.padEnd(5)} alone  ${one.accuracy.toFixed(4)} of ${one.count}`);
  }

  print("layer head  previous  induction  accuracy without it");
  for (const { layer, head, previous, induction } of all.heads) {
    const rest = evaluate(withoutHead(weights, layer, head), sequences).accuracy;
    print(`${layer}     ${head}     ${previous.toFixed(3)}     ${induction.toFixed(3)}      ${rest.toFixed(4)}`);
  }

  print("accuracy by position, long segments, windows of 288 tokens:");
  for (const [from, to, accuracy] of accuracyByPosition(weights, drawHeldout(32, "long", 288))) {
    print(`  ${String(from).padStart(3)}..${to - 1}  ${accuracy.toFixed(4)}`);
  }

  for (const prompt of prompts) {
    print(`${JSON.stringify(prompt)} -> ${JSON.stringify(decode(continueGreedily(weights, encode(prompt), 32)))}`);
  }
  return { heldout: describeHeldout(sequences, all), logits: describeLogits(weights) };
}

function drawHeldout(count: number, kind?: Kind, length: number = seqLen): Sequence[] {
  const random = createRandom(heldoutSeed);
  return Array.from({ length: count }, () => drawSequence(random, kind, length));
}

/** [from, to, accuracy] for each 48 positions. */
function accuracyByPosition(weights: Weights, sequences: readonly Sequence[]): [number, number, number][] {
  const span = 48;
  const bins = Array.from({ length: Math.ceil(sequences[0]!.tokens.length / span) }, () => ({ hits: 0, count: 0 }));
  for (const sequence of sequences) {
    const { logits } = referenceForward(weights, sequence.tokens);
    for (let target = firstTarget(sequence); target < sequence.tokens.length; target++) {
      const bin = bins[Math.floor(target / span)]!;
      bin.count++;
      if (argmax(logits[target - 1]!) === sequence.tokens[target]) bin.hits++;
    }
  }
  return bins.map(({ hits, count }, i) => [i * span, (i + 1) * span, hits / count]);
}

function describeHeldout(sequences: readonly Sequence[], { accuracy, count, heads }: Evaluation): object {
  const round = (x: number) => Number(x.toFixed(4));
  return {
    note: "The model scores targets text[segmentLen + 1] and on, each predicted from all characters before it.",
    seed: heldoutSeed,
    seqLen,
    chance: round(1 / vocabSize),
    accuracy: round(accuracy),
    hits: Math.round(accuracy * count),
    targets: count,
    heads: heads.map((head) => ({ ...head, previous: round(head.previous), induction: round(head.induction) })),
    sequences: sequences.map(({ kind, segmentLen, tokens }) => ({ kind, segmentLen, text: decode(tokens) })),
  };
}

function describeLogits(weights: Weights): object {
  const tokens = encode(logitsPrompt);
  const last = Array.from(referenceForward(weights, tokens).logits.at(-1)!);
  const order = last.map((_, id) => id).sort((a, b) => last[b]! - last[a]!);
  return {
    note: "Logits after the last token of the prompt, computed in float64 from the float32 weights.",
    prompt: logitsPrompt,
    tokens,
    top: order.slice(0, 5).map((id) => ({ id, character: decode([id]), logit: Number(last[id]!.toFixed(6)) })),
    logits: last.map((logit) => Number(logit.toFixed(9))),
  };
}
