// Reads a whole decoder from a GGUF file: its metadata, the shapes of its tensors, and what is known of its architecture.

import type { GgufFile } from "../../files/gguf/gguf.ts";
import { shapeText } from "../../tensor/dtypes.ts";
import { describe, HeadwiseError } from "../../util/errors.ts";
import { nearestNames } from "../../util/near-name.ts";
import type { AttentionTensors } from "../decoder/attention-tensors.ts";
import type { Names } from "../decoder/family.ts";
import { type Decoder, expectPositions, positionsOf, SESSION_LENGTH } from "../decoder/read-spec.ts";
import type { BlockSpec, EmbedSpec, ModelSpec, NormRole, NormSpec } from "../decoder/spec.ts";
import { POSITIVE_RULE } from "../numbers.ts";
import { reasonAgainst, UNSUPPORTED_ARCHITECTURES, UNSUPPORTED_RULE } from "../unsupported.ts";
import { ARCHITECTURES, LATENT_ARCHITECTURE } from "./architectures.ts";
import { DECODERS, type DecoderRules } from "./decoders.ts";
import { GGUF_ENCODERS } from "./encoders.ts";
import { type Keys, keysOf } from "./keys.ts";
import { latentWeights, readLatents } from "./latent-layer.ts";
import { headWeights, readHeads } from "./layer.ts";
import { type AttentionShapes, refusal } from "./layer-tensors.ts";
import { MOE_NAMES, readMlp } from "./mlp.ts";
import { readLongFactors, readRopeFactors } from "./rope-factors.ts";

type Header = Pick<GgufFile, "metadata" | "tensors" | "read">;

/** The table of token types, and the classifier of encoders that put texts in order. */
const TYPES = "token_types";
const CLASSIFIER = /^cls\./;

const NAMES: Names = {
  roots: [""],
  embed: "token_embd",
  embedNorm: "token_embd_norm",
  positions: "position_embd",
  types: TYPES,
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

const MOST_LAYERS = 10_000;

/**
 * Reads the decoder of a file for the public function `where`. `maxSeqLen` is the longest sequence that will be run, where it is
 * known; `encoders` are architectures that the function knows besides decoders.
 */
export async function readGgufDecoder(
  where: string,
  file: Header,
  maxSeqLen?: number,
  encoders?: Readonly<Record<string, DecoderRules>>,
): Promise<Decoder> {
  const { metadata, tensors } = file;
  const { name, rules } = findRules(where, metadata, encoders);
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
  if (layers > MOST_LAYERS) keys.fail("block_count", `at most ${MOST_LAYERS}`, layers);
  const attentionShapes = new Map<BlockSpec["attention"], AttentionShapes>();
  const blocks = Array.from({ length: layers }, (_, layer): BlockSpec => {
    const [attention, shapes] = readAttention(where, file, name, layer, factors);
    attentionShapes.set(attention, shapes);
    const roles = Object.entries(names.norms).filter(
      ([role, tensor]) => role !== "mlpPre" || rules.parallel !== "one-norm" || has(`blk.${layer}.${tensor}`),
    );
    const norms = Object.fromEntries(roles.map(([role]) => [role as NormRole, norm]));
    return {
      ...{ attention, norms },
      mlp: readMlp(keyAt(layer), rules, (tensor) => tensors.has(`blk.${layer}.${tensor}`)),
      parallel: isParallel(keys, rules, norms),
      addsToNormed: false,
      scale: keys.factor("residual_scale") ?? 1,
    };
  });
  const { dModel } = (blocks[0] as BlockSpec).attention.config;
  // 0 without a table, which is reported with all other tensors that are missing.
  const [vocabSize = 0] = tensors.get(`${NAMES.embed}.weight`)?.shape ?? [];
  const embed: EmbedSpec = {
    dim: dModel,
    scale: rules.scalesEmbedding ? Math.sqrt(dModel) : (keys.factor("embedding_scale") ?? 1),
    ...(rules.embedNorm && { norm }),
    ...(rules.positions && {
      positions: { offset: 0, rows: expectMatrix(where, file, `${NAMES.positions}.weight`)[0] as number },
    }),
    // A single type may be a vector.
    ...(has(TYPES) && encoders && { types: tensors.get(`${TYPES}.weight`)!.shape.at(-2) ?? 1 }),
  };
  if (maxSeqLen !== undefined) expectPositions(where, positionsOf(embed), maxSeqLen);
  const logitScale = keys.factor("logit_scale") ?? rules.logitScale ?? 1;
  const spec: ModelSpec = {
    type: name,
    dModel,
    vocabSize,
    maxSeqLen: longest,
    sessionLength: maxSeqLen ?? Math.min(stated, SESSION_LENGTH, positionsOf(embed)),
    embed,
    blocks,
    finalNorm: rules.noFinalNorm ? undefined : norm,
    head: {
      scale: rules.dividesLogits ? 1 / logitScale : logitScale,
      softcap: keys.factor("final_logit_softcapping") ?? rules.softcap ?? 0,
      tied: !has(NAMES.head),
    },
  };
  const family = { moeNames: MOE_NAMES, ...(encoders && { ignoredTensors: CLASSIFIER }) };
  return { spec, names, family, attention: attentionTensors(where, attentionShapes) };
}

/** Norms side by side, of which the first is that of the MLP. */
const FALCON_NORMS: Names["norms"] = { attentionPre: "attn_norm_2", mlpPre: "attn_norm" };

function findRules(
  where: string,
  metadata: Header["metadata"],
  encoders: Readonly<Record<string, DecoderRules>> | undefined,
): { name: string; rules: DecoderRules } {
  const known: Readonly<Record<string, DecoderRules>> = { ...DECODERS, ...encoders };
  const name = metadata.get("general.architecture");
  const rules = typeof name === "string" && Object.hasOwn(known, name) ? known[name] : undefined;
  if (typeof name === "string" && rules !== undefined) return { name, rules };
  const reason = reasonAgainst(UNSUPPORTED_ARCHITECTURES, name);
  const isIn = (table: object) => typeof name === "string" && Object.hasOwn(table, name);
  const [rule, why] = isIn(GGUF_ENCODERS)
    ? [`one that ${where} reads`, ", which loadEncoder reads"]
    : reason
      ? [UNSUPPORTED_RULE, `, which has ${reason}`]
      : isIn(ARCHITECTURES)
        ? ["one that is read whole", ", whose layers readGgufLayer reads"]
        : [`a supported ${encoders ? "one" : "decoder"}${nearestNames(name, Object.keys(known))}`, ""];
  throw new HeadwiseError(
    "BAD_FILE",
    `${where}: key "general.architecture" expected ${rule}, got ${describe(name)}${why}`,
  );
}

function readEps(keys: Keys, { norm }: DecoderRules): number {
  const key = norm === "layer" ? "attention.layer_norm_epsilon" : "attention.layer_norm_rms_epsilon";
  return keys.number(key) ?? keys.fail(key, POSITIVE_RULE, keys.raw(key));
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
): [BlockSpec["attention"], AttentionShapes] {
  if (name === LATENT_ARCHITECTURE) {
    const { config, ...shapes } = readLatents(where, file, layer);
    return [{ kind: "latent", config }, shapes];
  }
  const { config, ...shapes } = readHeads(where, file, layer, undefined, factors);
  return [{ kind: "heads", config }, shapes];
}

function attentionTensors(
  where: string,
  found: ReadonlyMap<BlockSpec["attention"], AttentionShapes>,
): AttentionTensors {
  const shapesOf = (attention: BlockSpec["attention"]) => found.get(attention) as AttentionShapes;
  return {
    required: (attention) => shapesOf(attention).required,
    optional: (attention) => shapesOf(attention).optional,
    readHeads: (tensors, prefix) => headWeights(where, tensors, prefix),
    readLatents: (tensors, prefix) => latentWeights(where, tensors, prefix),
  };
}

function expectMatrix(where: string, { tensors }: Header, name: string): readonly number[] {
  const { shape } = tensors.get(name) ?? {};
  if (shape?.length === 2) return shape;
  throw refusal(where, name, "two dimensions", shape ? shapeText(shape) : "no such tensor");
}
