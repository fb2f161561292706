// Reads a whole decoder from a GGUF file: its metadata, the shapes of its tensors, and what is known of its architecture.

import type { GgufFile } from "../../files/gguf/gguf.ts";
import type { TensorEntry } from "../../files/tensor-file.ts";
import { shapeText } from "../../tensor/dtypes.ts";
import { describe, HeadwiseError } from "../../util/errors.ts";
import { nearestNames } from "../../util/near-name.ts";
import type { AttentionTensors, NamedShapes } from "../decoder/attention-tensors.ts";
import type { Names } from "../decoder/family.ts";
import { type Decoder, expectPositions, positionsOf, SESSION_LENGTH } from "../decoder/read-spec.ts";
import type { BlockSpec, EmbedSpec, ModelSpec, NormRole, NormSpec } from "../decoder/spec.ts";
import { reasonAgainst, UNSUPPORTED_ARCHITECTURES, UNSUPPORTED_RULE } from "../unsupported.ts";
import { LATENT_ARCHITECTURE } from "./architectures.ts";
import { DECODERS, type DecoderRules } from "./decoders.ts";
import { type Keys, keysOf } from "./keys.ts";
import { latentWeights, readLatents } from "./latent-layer.ts";
import { headWeights, layerPrefix, readHeads } from "./layer.ts";
import { refusal } from "./layer-tensors.ts";
import { MOE_NAMES, readMlp } from "./mlp.ts";
import { readLongFactors, readRopeFactors } from "./rope-factors.ts";

type Header = Pick<GgufFile, "metadata" | "tensors" | "read">;

const NAMES: Names = {
  roots: [""],
  embed: "token_embd",
  embedNorm: "token_embd_norm",
  positions: "position_embd",
  projectIn: "project_in",
  projectOut: "project_out",
  layers: "blk",
  attention: "attn_",
  projections: [],
  norms: { attentionPre: "attn_norm", mlpPre: "ffn_norm" },
  mlpAt: "",
  mlp: { gate: "ffn_gate", up: "ffn_up", down: "ffn_down" },
  finalNorm: "output_norm",
  head: "output",
};

/**
 * Reads the decoder of a file for the public function `where`. `maxSeqLen` is the longest sequence that will be run, where it is
 * known.
 */
export async function readGgufDecoder(where: string, file: Header, maxSeqLen?: number): Promise<Decoder> {
  const { metadata, tensors } = file;
  const { name, rules } = findRules(where, metadata);
  const keyAt = (layer: number) => keysOf(where, metadata, name, layer);
  const keys = keyAt(0);
  const stated = keys.count("context_length");
  const longest = maxSeqLen ?? stated;
  const factors = (await readLongFactors(where, file, name, longest)) ?? (await readRopeFactors(where, file));
  const has = (tensor: string) => tensors.has(`${tensor}.weight`);
  const norm: NormSpec = { kind: rules.norm ?? "rms", eps: readEps(keys, rules) };
  const names: Names = {
    ...NAMES,
    norms: has("blk.0.attn_norm_2") ? FALCON_NORMS : (rules.norms ?? NAMES.norms),
    ...(rules.joinedMlp && { mlp: { gate: "ffn_up", down: "ffn_down" } }),
  };
  const layers = keys.count("block_count");
  const attentionShapes = new Map<BlockSpec["attention"], NamedShapes>();
  const blocks = Array.from({ length: layers }, (_, layer): BlockSpec => {
    const { attention, names: own } = readAttention(where, file, name, layer, factors);
    const shapeOf = (tensor: string) => (tensors.get(tensor) as TensorEntry).shape;
    attentionShapes.set(
      attention,
      own.map((tensor) => [tensor.slice(layerPrefix(layer).length), shapeOf(tensor)]),
    );
    const roles = Object.entries(names.norms).filter(([, tensor]) => has(`blk.${layer}.${tensor}`));
    const norms = Object.fromEntries(roles.map(([role]) => [role as NormRole, norm]));
    return {
      ...{ attention, norms },
      mlp: readMlp(keyAt(layer), rules, (tensor) => tensors.has(`blk.${layer}.${tensor}`)),
      parallel: isParallel(keys, rules, norms),
      addsToNormed: false,
      scale: keys.number("residual_scale") ?? 1,
    };
  });
  const { dModel } = (blocks[0] as BlockSpec).attention.config;
  const [vocabSize = 0] = expectMatrix(where, file, `${NAMES.embed}.weight`);
  const embed: EmbedSpec = {
    dim: dModel,
    scale: rules.scalesEmbedding ? Math.sqrt(dModel) : (keys.number("embedding_scale") ?? 1),
    ...(rules.embedNorm && { norm }),
    ...(rules.positions && {
      positions: { offset: 0, rows: expectMatrix(where, file, `${NAMES.positions}.weight`)[0] as number },
    }),
  };
  if (maxSeqLen !== undefined) expectPositions(where, positionsOf(embed), maxSeqLen);
  const logitScale = keys.number("logit_scale") ?? rules.logitScale ?? 1;
  const spec: ModelSpec = {
    type: name,
    dModel,
    vocabSize,
    maxSeqLen: longest,
    sessionLength: maxSeqLen ?? Math.min(stated, SESSION_LENGTH),
    embed,
    blocks,
    finalNorm: norm,
    head: {
      scale: rules.dividesLogits ? 1 / logitScale : logitScale,
      softcap: keys.number("final_logit_softcapping") ?? rules.softcap ?? 0,
      tied: !has(NAMES.head),
    },
  };
  return { spec, names, family: { moeNames: MOE_NAMES }, attention: attentionTensors(where, attentionShapes) };
}

/** Norms side by side, of which the first is that of the MLP. */
const FALCON_NORMS: Names["norms"] = { attentionPre: "attn_norm_2", mlpPre: "attn_norm" };

function findRules(where: string, metadata: Header["metadata"]): { name: string; rules: DecoderRules } {
  const name = metadata.get("general.architecture");
  const rules = typeof name === "string" && Object.hasOwn(DECODERS, name) ? DECODERS[name] : undefined;
  if (typeof name === "string" && rules !== undefined) return { name, rules };
  const reason = reasonAgainst(UNSUPPORTED_ARCHITECTURES, name);
  const rule = reason
    ? UNSUPPORTED_RULE
    : `a supported decoder (nearest: ${nearestNames(name, Object.keys(DECODERS))})`;
  const got = `${describe(name)}${reason ? `, which has ${reason}` : ""}`;
  throw new HeadwiseError("BAD_FILE", `${where}: key "general.architecture" expected ${rule}, got ${got}`);
}

function readEps(keys: Keys, { norm }: DecoderRules): number {
  const key = norm === "layer" ? "attention.layer_norm_epsilon" : "attention.layer_norm_rms_epsilon";
  return keys.number(key) ?? keys.fail(key, "a finite number > 0", keys.raw(key));
}

function isParallel(keys: Keys, { parallel }: DecoderRules, norms: BlockSpec["norms"]): boolean {
  if (parallel === "one-norm") return norms.mlpPre === undefined;
  if (parallel === "unless-stated") return keys.flag("use_parallel_residual") ?? true;
  return parallel === "always";
}

function readAttention(
  where: string,
  file: Header,
  name: string,
  layer: number,
  factors: Parameters<typeof readHeads>[4],
): { attention: BlockSpec["attention"]; names: readonly string[] } {
  if (name === LATENT_ARCHITECTURE) {
    const { config, names } = readLatents(where, file, layer);
    return { attention: { kind: "latent", config }, names };
  }
  const { config, names } = readHeads(where, file, layer, undefined, factors);
  return { attention: { kind: "heads", config }, names };
}

/** The tensors of attention, which were compared with the metadata when the configurations were read. */
function attentionTensors(where: string, found: ReadonlyMap<BlockSpec["attention"], NamedShapes>): AttentionTensors {
  return {
    required: (attention) => found.get(attention) as NamedShapes,
    optional: () => [],
    readHeads: (tensors, prefix) => headWeights(where, tensors, prefix),
    readLatents: (tensors, prefix) => latentWeights(where, tensors, prefix),
  };
}

function expectMatrix(where: string, { tensors }: Header, name: string): readonly number[] {
  const { shape } = tensors.get(name) ?? {};
  if (shape?.length === 2) return shape;
  throw refusal(where, name, "two dimensions", shape ? shapeText(shape) : "no such tensor");
}
