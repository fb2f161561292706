// Attention of a layer of DeepSeek in float64, from config.json and the tensors by their names, as the paper describes it:
// keys and values of every head are computed from the latents, and nothing is absorbed.

/** The fields of config.json that the oracle reads. */
export interface DeepseekJson {
  readonly [field: string]: unknown;
  readonly hidden_size: number;
  readonly num_attention_heads: number;
  readonly q_lora_rank: number | null;
  readonly kv_lora_rank: number;
  readonly qk_nope_head_dim: number;
  readonly qk_rope_head_dim: number;
  readonly v_head_dim: number;
  readonly rope_theta: number;
  readonly rope_interleave?: boolean;
  readonly rope_scaling?: {
    readonly type: "yarn";
    readonly factor: number;
    readonly original_max_position_embeddings: number;
    readonly beta_fast: number;
    readonly beta_slow: number;
    readonly mscale: number;
    readonly mscale_all_dim: number;
  };
}

type Floats = Readonly<Record<string, { readonly data: ArrayLike<number> }>>;

/** y [tokens, hidden_size] for x of this shape, causal from position 0. */
export function deepseekAttention(json: DeepseekJson, tensors: Floats, x: ArrayLike<number>): Float64Array {
  const { hidden_size: d, num_attention_heads: heads, q_lora_rank: qRank, kv_lora_rank: rank } = json;
  const { qk_nope_head_dim: nope, qk_rope_head_dim: rope, v_head_dim: value, rope_scaling: yarn } = json;
  const tokens = x.length / d;
  const linear = (name: string, from: ArrayLike<number>, stride: number, inputs: number, outputs: number) => {
    const w = tensors[`${name}.weight`]!.data;
    const bias = tensors[`${name}.bias`]?.data;
    return Float64Array.from({ length: tokens * outputs }, (_, i) => {
      const [t, o] = [Math.floor(i / outputs), i % outputs];
      let sum = bias?.[o] ?? 0;
      for (let c = 0; c < inputs; c++) sum += from[t * stride + c]! * w[o * inputs + c]!;
      return sum;
    });
  };
  const norm = (name: string, from: Float64Array, stride: number, width: number) => {
    const gain = tensors[`${name}.weight`]!.data;
    for (let t = 0; t < tokens; t++) {
      const row = from.subarray(t * stride, t * stride + width);
      const scale = 1 / Math.sqrt(row.reduce((sum, v) => sum + v * v, 0) / width + 1e-6);
      for (let i = 0; i < width; i++) row[i] = row[i]! * scale * gain[i]!;
    }
  };
  const grown = (m: number) => (yarn ? 0.1 * m * Math.log(yarn.factor) + 1 : 1);
  const frequencies = Array.from({ length: rope / 2 }, (_, i) => {
    const f = json.rope_theta ** ((-2 * i) / rope);
    if (!yarn) return f;
    const pairOf = (turns: number) =>
      (rope * Math.log(yarn.original_max_position_embeddings / (turns * 2 * Math.PI))) /
      (2 * Math.log(json.rope_theta));
    const low = Math.max(Math.floor(pairOf(yarn.beta_fast)), 0);
    const high = Math.min(Math.ceil(pairOf(yarn.beta_slow)), rope - 1);
    const stretched = Math.min(Math.max((i - low) / (high - low), 0), 1);
    return (f / yarn.factor) * stretched + f * (1 - stretched);
  });
  const amplitude = yarn ? grown(yarn.mscale) / grown(yarn.mscale_all_dim) : 1;
  const rotate = (part: Float64Array, position: number) => {
    for (const [i, f] of frequencies.entries()) {
      const [a, b] = json.rope_interleave === false ? [i, i + rope / 2] : [2 * i, 2 * i + 1];
      const [cos, sin] = [amplitude * Math.cos(position * f), amplitude * Math.sin(position * f)];
      const [first, second] = [part[a]!, part[b]!];
      part[a] = first * cos - second * sin;
      part[b] = second * cos + first * sin;
    }
  };

  let q: Float64Array;
  if (qRank === null) q = linear("q_proj", x, d, d, heads * (nope + rope));
  else {
    const latents = linear("q_a_proj", x, d, d, qRank);
    norm("q_a_layernorm", latents, qRank, qRank);
    q = linear("q_b_proj", latents, qRank, qRank, heads * (nope + rope));
  }
  const kv = linear("kv_a_proj_with_mqa", x, d, d, rank + rope);
  norm("kv_a_layernorm", kv, rank + rope, rank);
  const up = linear("kv_b_proj", kv, rank + rope, rank, heads * (nope + value));
  for (let t = 0; t < tokens; t++) {
    rotate(kv.subarray(t * (rank + rope) + rank, (t + 1) * (rank + rope)), t);
    for (let h = 0; h < heads; h++) rotate(q.subarray((t * heads + h) * (nope + rope) + nope).subarray(0, rope), t);
  }
  const scale = (yarn ? grown(yarn.mscale_all_dim) ** 2 : 1) / Math.sqrt(nope + rope);
  const out = new Float64Array(tokens * heads * value);
  for (let t = 0; t < tokens; t++)
    for (let h = 0; h < heads; h++) {
      const from = (t * heads + h) * (nope + rope);
      const scores = Array.from({ length: t + 1 }, (_, s) => {
        let sum = 0;
        for (let i = 0; i < nope; i++) sum += q[from + i]! * up[(s * heads + h) * (nope + value) + i]!;
        for (let i = 0; i < rope; i++) sum += q[from + nope + i]! * kv[s * (rank + rope) + rank + i]!;
        return sum * scale;
      });
      const most = Math.max(...scores);
      const weights = scores.map((score) => Math.exp(score - most));
      const total = weights.reduce((a, b) => a + b, 0);
      for (const [s, weight] of weights.entries())
        for (let i = 0; i < value; i++)
          out[(t * heads + h) * value + i]! += (weight / total) * up[(s * heads + h) * (nope + value) + nope + i]!;
    }
  return linear("o_proj", out, heads * value, heads * value, d);
}
