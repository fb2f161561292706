// The weights and the prompt without the package. A matrix repeats one row, so that making it costs little time.

const D_MODEL = 768;
const TOKENS = 16;

const row = Float32Array.from({ length: D_MODEL }, (_, i) => ((i * 37) % 101) / 1000 - 0.05);

function matrix() {
  const data = new Float32Array(D_MODEL * D_MODEL);
  for (let at = 0; at < data.length; at += D_MODEL) data.set(row, at);
  return { data, shape: [D_MODEL, D_MODEL] };
}

/** A layer of GPT-2 small, and 16 tokens for it. */
export function makeInputs() {
  const weights = { wq: matrix(), wk: matrix(), wv: matrix(), wo: matrix(), bq: row, bk: row, bv: row, bo: row };
  const x = new Float32Array(TOKENS * D_MODEL).fill(0.5);
  return { config: { dModel: D_MODEL, numHeads: 12, causal: true }, weights, x };
}

/** Each of the 16 rows of output in float64: all tokens are equal, and so are the rows of each matrix. */
export function expectedOutput({ weights: { bv, wv, wo, bo }, x }) {
  const times = ({ data }, input) => input.reduce((sum, one, i) => sum + one * data[i], 0);
  const values = times(wv, Array.from(x.subarray(0, D_MODEL)));
  const heads = Array.from(bv, (bias) => values + bias);
  const product = times(wo, heads);
  return Array.from(bo, (bias) => product + bias);
}

if (import.meta.main) {
  const start = performance.now();
  makeInputs();
  console.log(JSON.stringify({ inputs: performance.now() - start }));
}
