import { joinBytes } from "../../base/util/bytes.ts";
import { finish } from "../../base/util/steps.ts";
import type { WeightFormat } from "../../layers/linear/formats.ts";
import type { Model } from "../../models/blocks/model.ts";
import { checkModelCall, commitCalls, forward, runModel } from "../../models/decoder/forward.ts";
import { createSession, type Session } from "../../models/decoder/session.ts";
import { expectModelKernels, loadModel } from "../../models/load/load-model.ts";
import { readDecoder } from "../../models/spec/read-spec.ts";
import { expectedTensors } from "../../models/spec/tensors.ts";
import { expectKernels, type Kernels } from "../../wasm/kernels.ts";
import { createRandom } from "./random.ts";
import { FloatDigest, type SelfTest } from "./self-test.ts";

/** Digests that every engine must give: of arithmetic that rounds once, or twice; in float32 alone, or in q8 and q4 as well. */
const FUSED = { f32: "1bfe49064bd6f5b3", all: "30216ecf742e85d9" };
const UNFUSED = { f32: "e663e15eacc09ff3", all: "27893e17a54e344b" };

/** Result of `selfTestModels`. */
export interface ModelSelfTest extends SelfTest {
  /** Whether a prompt at once, in pieces, token by token and in a batch gave the same bits. */
  readonly same: boolean;
}

/** Grouped queries, RoPE and norms of heads; the first layer has a gated MLP, the second one experts. */
const CONFIG = {
  ...{ model_type: "qwen3_moe", hidden_size: 64, num_hidden_layers: 2, vocab_size: 71, tie_word_embeddings: false },
  ...{ num_attention_heads: 4, num_key_value_heads: 2, head_dim: 16, max_position_embeddings: 64 },
  ...{ intermediate_size: 96, mlp_only_layers: [0], moe_intermediate_size: 32, num_experts: 4, num_experts_per_tok: 2 },
  norm_topk_prob: true,
};

/** The prompt, and how many greedy tokens follow it. */
const PROMPT = Array.from({ length: 21 }, (_, i) => (29 * i + 5) % CONFIG.vocab_size);
const GREEDY = 8;
/** Where the second piece of the prompt begins. */
const CUT = 8;

/**
 * Checks that this engine computes the published bits of whole decoders. It makes a small model of seeded weights, runs it in
 * float32, and in q8 and q4 if the kernels were loaded with `quantized`: a prompt at once, in pieces, token by token and in a
 * batch, whose bits must be equal, and greedy tokens. A digest of logits and tokens is compared with the published one. It takes a
 * fraction of a second; all memory is freed but the scratch that calls share, which later calls use.
 * @throws HeadwiseError `NO_MODELS`, `OUT_OF_MEMORY` or `RELEASED`.
 * @example
 * import { loadKernels } from "headwise";
 * import { models, selfTestModels } from "headwise/models";
 * const kernels = await loadKernels({ deterministic: true, models });
 * const { ok, same } = await selfTestModels(kernels);
 * console.log(ok, same); // true true
 * kernels.release();
 */
export async function selfTestModels(kernels: Kernels): Promise<ModelSelfTest> {
  expectKernels("selfTestModels", kernels);
  expectModelKernels("selfTestModels", kernels, {});
  const formats: readonly WeightFormat[] = kernels.quantized ? ["f32", "q8", "q4"] : ["f32"];
  const digest = new FloatDigest();
  let [same, outputs] = [true, 0];
  for (const weights of formats) {
    using model = await loadModel(kernels, seededFolder(), { weights });
    const logits = promptLogits(model);
    const greedy = greedyTokens(model);
    for (const data of [...logits, Float32Array.from(greedy)]) digest.add(data);
    outputs += logits.length + 1;
    same &&= logits.every((data) => data.every((logit, i) => Object.is(logit, logits[0]?.[i])));
  }
  const expected = (kernels.fused ? FUSED : UNFUSED)[kernels.quantized ? "all" : "f32"];
  const found = digest.toString();
  return { ok: same && found === expected, digest: found, expected, outputs, same };
}

/** The logits of all tokens of the prompt, [prompt, vocabSize], in each of four ways. */
function promptLogits(model: Model): Float32Array[] {
  const read = (...pieces: readonly number[][]) => {
    using session = createSession(model);
    const parts = pieces.map((ids) => forward(session, ids, { rows: "all" }).logits);
    return Float32Array.from(parts.flatMap((part) => [...part]));
  };
  return [
    read(PROMPT),
    read(PROMPT.slice(0, CUT), PROMPT.slice(CUT)),
    read(...PROMPT.map((id) => [id])),
    batchLogits(model),
  ];
}

/** The same, of a prompt that another session's tokens share the pass with. */
function batchLogits(model: Model): Float32Array {
  using own = createSession(model);
  using other = createSession(model);
  const where = "selfTestModels";
  const calls = [checkModelCall(where, other, PROMPT.slice(CUT), "all"), checkModelCall(where, own, PROMPT, "all")];
  const first = PROMPT.length - CUT;
  const logits = new Float32Array(PROMPT.length * model.vocabSize);
  const steps = runModel(where, model, calls, (row) => {
    if (row.output >= first) logits.set(row.logits(), (row.output - first) * model.vocabSize);
  });
  finish(steps);
  commitCalls(calls);
  return logits;
}

function greedyTokens(model: Model): number[] {
  using session: Session = createSession(model);
  const tokens = [...PROMPT];
  for (let read = 0; tokens.length < PROMPT.length + GREEDY; ) {
    const { ids } = forward(session, tokens.slice(read), { top: 1 });
    read = tokens.length;
    tokens.push(ids?.[0] as number);
  }
  return tokens.slice(PROMPT.length);
}

/** config.json and model.safetensors of the model, with weights about as large as those of trained ones. */
function seededFolder(): (name: string) => Uint8Array | undefined {
  const decoder = readDecoder("selfTestModels", CONFIG);
  const { floats } = createRandom(1);
  const tensors: [name: string, { dtype: string; shape: readonly number[]; data_offsets: number[] }][] = [];
  const parts: Uint8Array[] = [];
  let end = 0;
  for (const [name, shape] of expectedTensors(decoder, decoder.names.roots[0] as string).required) {
    const values = floats(shape.reduce((product, side) => product * side, 1));
    const data = shape.length > 1 ? values.map((w) => w * 0.25) : values.map((w) => 1 + w * 0.25);
    parts.push(new Uint8Array(data.buffer));
    tensors.push([name, { dtype: "F32", shape, data_offsets: [end, end + data.byteLength] }]);
    end += data.byteLength;
  }
  const encode = (text: string) => new TextEncoder().encode(text);
  const header = JSON.stringify(Object.fromEntries(tensors));
  const start = new Uint8Array(8);
  const padded = encode(header.padEnd(8 * Math.ceil(header.length / 8)));
  new DataView(start.buffer).setUint32(0, padded.length, true);
  const files = new Map([
    ["config.json", encode(JSON.stringify(CONFIG))],
    ["model.safetensors", joinBytes([start, padded, ...parts])],
  ]);
  return (name) => files.get(name);
}
