import { firstTarget, type Sequence } from "./data.ts";
import { referenceForward, type Weights } from "./reference.ts";
import { headDim, numHeads, numLayers } from "./shapes.ts";

export interface HeadScore {
  readonly layer: number;
  readonly head: number;
  /** Mean attention paid to the token just before the query. */
  readonly previous: number;
  /** Mean attention paid, from repeated tokens, to what followed the earlier occurrences of the query's token. */
  readonly induction: number;
}

export interface Evaluation {
  /** Share of the scored targets that the largest logit hits, and their number. */
  readonly accuracy: number;
  readonly count: number;
  readonly heads: readonly HeadScore[];
}

export function evaluate(weights: Weights, sequences: readonly Sequence[]): Evaluation {
  let hits = 0;
  let count = 0;
  const mean = () => ({ sum: 0, count: 0 });
  const sums = Array.from({ length: numLayers * numHeads }, () => ({ previous: mean(), induction: mean() }));

  for (const sequence of sequences) {
    const { tokens, segmentLen } = sequence;
    const { logits, maps } = referenceForward(weights, tokens);
    for (let target = firstTarget(sequence); target < tokens.length; target++) {
      count++;
      if (argmax(logits[target - 1]!) === tokens[target]) hits++;
    }
    sums.forEach(({ previous, induction }, i) => {
      const map = maps[Math.floor(i / numHeads)]![i % numHeads]!;
      for (let query = 1; query < tokens.length; query++) {
        previous.sum += map[query]![query - 1]!;
        previous.count++;
        if (query < segmentLen) continue;
        for (let key = query - segmentLen + 1; key >= 0; key -= segmentLen) induction.sum += map[query]![key]!;
        induction.count++;
      }
    });
  }
  const heads = sums.map(({ previous, induction }, i) => ({
    layer: Math.floor(i / numHeads),
    head: i % numHeads,
    previous: previous.sum / previous.count,
    induction: induction.sum / induction.count,
  }));
  return { accuracy: hits / count, count, heads };
}

/** The weights with one head silenced: the columns of o_proj that read its output are zero. */
export function withoutHead(weights: Weights, layer: number, head: number): Weights {
  const name = `model.layers.${layer}.self_attn.o_proj.weight`;
  const { shape, data } = weights.get(name)!;
  const columns = shape[1]!;
  const muted = data.map((value, i) => (Math.floor((i % columns) / headDim) === head ? 0 : value));
  return new Map([...weights, [name, { shape, data: muted }]]);
}

/** The tokens that follow a prompt when each time the likeliest is taken. */
export function continueGreedily(weights: Weights, prompt: readonly number[], count: number): number[] {
  const tokens = [...prompt];
  while (tokens.length < prompt.length + count) tokens.push(argmax(referenceForward(weights, tokens).logits.at(-1)!));
  return tokens.slice(prompt.length);
}

export function argmax(values: ArrayLike<number>): number {
  let best = 0;
  for (let i = 1; i < values.length; i++) if (values[i]! > values[best]!) best = i;
  return best;
}
