import { numpy as np, tree } from "@jax-js/jax";
import type { Parameters } from "./model.ts";

/** Running means of the gradient and of its square, one pair for each parameter. */
export type AdamState = { mean: Parameters; square: Parameters };

/** What changes from step to step. Arrays of no dimension, since plain numbers would be compiled in. */
export type AdamRates = { rate: np.Array; meanScale: np.Array; squareScale: np.Array };

const beta1 = 0.9;
const beta2 = 0.99;
const eps = 1e-8;
const weightDecay = 0.01;

export function createAdamState(parameters: Parameters): AdamState {
  const zeros = () => tree.map((x: np.Array) => np.zeros(x.shape), parameters) as Parameters;
  return { mean: zeros(), square: zeros() };
}

/** The rates of step 1, 2, ..; the scales undo that both means start from zero. */
export function adamRates(step: number, rate: number): AdamRates {
  const scalar = (x: number) => np.array(new Float32Array([x])).reshape([]);
  return {
    rate: scalar(rate),
    meanScale: scalar(1 / (1 - beta1 ** step)),
    squareScale: scalar(1 / (1 - beta2 ** step)),
  };
}

/** One AdamW step. Uses up its arguments. Gains (vectors) do not decay: they belong near one, not near zero. */
export function adamStep(
  parameters: Parameters,
  gradients: Parameters,
  state: AdamState,
  rates: AdamRates,
): [Parameters, AdamState] {
  const next: Parameters = {};
  const mean: Parameters = {};
  const square: Parameters = {};
  for (const name of Object.keys(parameters)) {
    const x = parameters[name]!;
    const g = gradients[name]!;
    const m = state.mean[name]!.mul(beta1).add(g.ref.mul(1 - beta1));
    const s = state.square[name]!.mul(beta2).add(g.ref.mul(g).mul(1 - beta2));
    mean[name] = m.ref;
    square[name] = s.ref;
    let move = m.mul(rates.meanScale.ref).div(np.sqrt(s.mul(rates.squareScale.ref)).add(eps));
    if (x.ndim > 1) move = move.add(x.ref.mul(weightDecay));
    next[name] = x.sub(move.mul(rates.rate.ref));
  }
  for (const rate of Object.values(rates)) rate.dispose();
  return [next, { mean, square }];
}
