// Gemma 3n and 4 against their definitions, written here once more in float64, one token after the other.

import { afterAll, beforeAll, expect, test } from "vitest";
import type { Tensor } from "../../../../src/base/tensor/tensor.ts";
import { forward } from "../../../../src/models/decoder/forward.ts";
import { createSession } from "../../../../src/models/decoder/session.ts";
import { loadModel } from "../../../../src/models/load/load-model.ts";
import type { Kernels } from "../../../../src/wasm/kernels.ts";
import { kernelsOf } from "../../../support/layers.ts";
import { TINY_FEATURES, tinyFolder, tinyTensors } from "../../../support/tiny-models.ts";

let kernels: Kernels;
beforeAll(async () => {
  kernels = await kernelsOf("simd");
});
afterAll(() => kernels.release());

type Row = readonly number[];
const add = (a: Row, b: Row, scale = 1): Row => a.map((x, i) => x + scale * (b[i] as number));
const times = (a: Row, by: number): Row => a.map((x) => x * by);
const meanOf = (a: Row) => a.reduce((sum, x) => sum + x, 0) / a.length;
const sizeOf = (a: Row) => Math.sqrt(meanOf(a.map((x) => x * x)));
const gelu = (x: number) => (x / 2) * (1 + Math.tanh(Math.sqrt(2 / Math.PI) * (x + 0.044715 * x ** 3)));
const norm = (a: Row, gains?: Row, eps = 1e-6): Row => {
  const size = Math.sqrt(meanOf(a.map((x) => x * x)) + eps);
  return a.map((x, i) => (x / size) * (gains?.[i] ?? 1));
};
const cut = (a: Row, size: number): Row[] =>
  Array.from({ length: a.length / size }, (_, i) => a.slice(i * size, (i + 1) * size));

interface Rope {
  readonly rope_theta: number;
  readonly partial_rotary_factor?: number;
}
/** Rotates pairs of halves of a head, the first ones where only a share of it rotates. */
function rotate(head: Row, position: number, { rope_theta, partial_rotary_factor: share = 1 }: Rope): Row {
  const half = head.length / 2;
  return head.map((x, i) => {
    const pair = i % half;
    if (pair >= Math.floor(share * half)) return x;
    const angle = position * rope_theta ** (-pair / half);
    const other = i < half ? -(head[i + half] as number) : (head[i - half] as number);
    return x * Math.cos(angle) + other * Math.sin(angle);
  });
}

/** The value that a standard normal one exceeds with this probability, by bisection of Simpson's rule. */
function quantile(share: number): number {
  const below = (x: number) => {
    const [steps, h] = [2000, x / 2000];
    const density = (t: number) => Math.exp((-t * t) / 2) / Math.sqrt(2 * Math.PI);
    let sum = density(0) + density(x);
    for (let i = 1; i < steps; i++) sum += (i % 2 ? 4 : 2) * density(i * h);
    return 0.5 + (sum * h) / 3;
  };
  let [least, most] = [-8, 8];
  for (let i = 0; i < 60; i++) {
    const middle = (least + most) / 2;
    if (below(middle) < share) least = middle;
    else most = middle;
  }
  return least;
}

type Config = Readonly<Record<string, unknown>> & { readonly layer_types: readonly string[] };

/** Logits of all tokens. */
function oracle(config: Config, tensors: ReadonlyMap<string, Tensor>, ids: Row): Row[] {
  const n = (name: string) => Number(config[name]);
  const find = (name: string) => (tensors.get(name) ?? tensors.get(`${name}.weight`)) as Tensor;
  const vector = (name: string): Row => [...find(`model.${name}`).data];
  const row = (name: string, i: number): Row => {
    const { data, shape } = find(`model.${name}`);
    return [...data.slice(i * (shape[1] as number), (i + 1) * (shape[1] as number))];
  };
  const product = (name: string, x: Row): Row => {
    const shift = tensors.get(`model.${name}.bias`)?.data;
    return cut(vector(name), x.length).map((w, n) =>
      w.reduce((sum, each, i) => sum + each * (x[i] as number), shift?.[n] ?? 0),
    );
  };
  const is3n = config.model_type === "gemma3n_text";
  const [d, layers, dim] = [n("hidden_size"), n("num_hidden_layers"), n("hidden_size_per_layer_input")];
  const [active, count] = is3n ? [n("altup_active_idx"), n("altup_num_inputs")] : [0, 1];
  // Standard deviations by which gates exceed their mean.
  const sparse = ((config.activation_sparsity_pattern ?? []) as Row).map((share) =>
    share > 0 ? quantile(share) : undefined,
  );
  const keys: Record<number, Row[][]> = {};
  const values: Record<number, Row[][]> = {};
  const alike = (x: Row, like: Row) => times(x, sizeOf(like) / Math.max(Math.sqrt(1e-5), sizeOf(x)));

  const attend = (layer: number, x: Row, position: number): Row => {
    const type = config.layer_types[layer] as string;
    const at = `layers.${layer}.self_attn.`;
    const headDim = !is3n && type === "full_attention" ? n("global_head_dim") : n("head_dim");
    const theta = type === "full_attention" ? n("rope_theta") : 10_000;
    const rope = ((config.rope_parameters as Record<string, Rope>)?.[type] ?? { rope_theta: theta }) as Rope;
    const headsOf = (part: string, gains?: Row) =>
      cut(product(`${at}${part}_proj`, x), headDim).map((h) => norm(h, gains));
    const first = layers - n("num_kv_shared_layers");
    const owner = layer < first ? layer : config.layer_types.slice(0, first).lastIndexOf(type);
    if (owner === layer) {
      const own = headsOf("k", vector(`${at}k_norm`)).map((h) => rotate(h, position, rope));
      keys[layer] = [...(keys[layer] ?? []), own];
      values[layer] = [...(values[layer] ?? []), headsOf("v")];
    }
    const queries = headsOf("q", vector(`${at}q_norm`)).map((h) => rotate(h, position, rope));
    const begin = type === "full_attention" ? 0 : Math.max(0, position + 1 - n("sliding_window"));
    const out = queries.flatMap((q, head) => {
      const kv = Math.floor(head / (queries.length / n("num_key_value_heads")));
      const scores = (keys[owner] as Row[][])
        .slice(begin)
        .map((k) => (k[kv] as Row).reduce((s, y, i) => s + y * (q[i] as number), 0));
      const weights = scores.map((score) => Math.exp(score - Math.max(...scores)));
      const sum = weights.reduce((all, w) => all + w, 0);
      return (values[owner] as Row[][])
        .slice(begin)
        .reduce(
          (all, v, i) => add(all, v[kv] as Row, (weights[i] as number) / sum),
          Array<number>(headDim).fill(0) as Row,
        );
    });
    return product(`${at}o_proj`, out);
  };

  return ids.map((id, position): Row => {
    const embedded = times(row("embed_tokens", id), Math.sqrt(d));
    const own = times(row("embed_tokens_per_layer", id < n("vocab_size_per_layer_input") ? id : 0), Math.sqrt(dim));
    const projected = cut(times(product("per_layer_model_projection", embedded), 1 / Math.sqrt(d)), dim);
    const inputs = cut(own, dim).map((input, layer) =>
      times(add(norm(projected[layer] as Row, vector("per_layer_projection_norm")), input), Math.SQRT1_2),
    );
    let streams: Row[] = [embedded];
    for (let i = 1; i < count; i++) streams.push(alike(product(`altup_projections.${i - 1}`, embedded), embedded));
    for (let layer = 0; layer < layers; layer++) {
      const at = `layers.${layer}.`;
      const shares = (x: Row) =>
        product(`${at}altup.modality_router`, times(norm(x, vector(`${at}altup.router_norm`)), 1 / d)).map(Math.tanh);
      if (is3n) {
        const factors = cut(product(`${at}altup.prediction_coefs`, shares(streams[active] as Row)), count);
        const before = streams;
        streams = before.map((x, i) => before.reduce((sum, y, j) => add(sum, y, factors[i]?.[j]), x));
      }
      let x = streams[active] as Row;
      const read = norm(x, vector(`${at}input_layernorm`));
      x = add(x, norm(attend(layer, read, position), vector(`${at}post_attention_layernorm`)));
      if (is3n) {
        const low = product(`${at}laurel.linear_right`, product(`${at}laurel.linear_left`, read));
        x = times(add(x, add(read, norm(low, vector(`${at}laurel.post_laurel_norm`)))), Math.SQRT1_2);
      }
      const mlp = norm(x, vector(`${at}pre_feedforward_layernorm`));
      let gates = product(`${at}mlp.gate_proj`, mlp);
      const deviations = sparse[layer];
      if (deviations !== undefined) {
        const mean = meanOf(gates);
        const deviation = Math.sqrt(meanOf(gates.map((gate) => (gate - mean) ** 2)));
        gates = gates.map((gate) => Math.max(0, gate - mean - deviation * deviations));
      }
      const up = product(`${at}mlp.up_proj`, mlp);
      const down = product(
        `${at}mlp.down_proj`,
        gates.map((gate, i) => gelu(gate) * (up[i] as number)),
      );
      x = add(x, norm(down, vector(`${at}post_feedforward_layernorm`)));
      if (is3n) {
        const factors = product(`${at}altup.correction_coefs`, shares(x));
        const change = add(x, streams[active] as Row, -1);
        streams = streams.map((y, i) => add(y, change, 1 + (factors[i] as number)));
        const scales = vector(`${at}altup.correct_output_scale`);
        x = (streams[active] as Row).map((y, i) => y * (scales[i] as number));
      }
      const gated = product(`${at}per_layer_input_gate`, x).map((y, i) => gelu(y) * (inputs[layer]?.[i] as number));
      const more = norm(product(`${at}per_layer_projection`, gated), vector(`${at}post_per_layer_input_norm`));
      if (is3n) streams = streams.map((y, i) => (i === 0 ? y : add(y, more)));
      else streams = [times(add(x, more), vector(`${at}layer_scalar`)[0] as number)];
    }
    const [first, ...others] = streams as [Row, ...Row[]];
    const all = others.reduce(
      (sum, y, i) => add(sum, alike(product(`altup_unembed_projections.${i}`, y), first)),
      first,
    );
    const last = norm(times(all, 1 / count), vector("norm"));
    const cap = n("final_logit_softcapping") || 30;
    return product("embed_tokens", last).map((logit) => cap * Math.tanh(logit / cap));
  });
}

test.each(["gemma4_text", "gemma3n_text"] as const)("%s has the logits of its definition", async (name) => {
  const config = TINY_FEATURES[name] as unknown as Config;
  const tensors = tinyTensors(config);
  using model = await loadModel(kernels, tinyFolder(config, tensors));
  using session = createSession(model, { maxSeqLen: 40 });
  const ids = Array.from({ length: 24 }, (_, i) => (i * 29 + 5) % 67);
  // Ids that the table of inputs has no rows for are among them.
  expect(Math.max(...ids)).toBeGreaterThan(60);
  const want = oracle(config, tensors, ids).flat();
  const got = forward(session, ids, { rows: "all" }).logits;
  const largest = Math.max(...want.map(Math.abs));
  const error = Math.max(...want.map((value, i) => Math.abs(value - (got[i] as number))));
  expect(error / largest).toBeLessThan(2e-5);
});
