import { readFields } from "../../base/util/arguments.ts";
import { describe, underName } from "../../base/util/errors.ts";
import { CHUNK_ROWS, chunksOf, listRows } from "../../base/util/rows.ts";
import type { Steps } from "../../base/util/steps.ts";
import { attendByDistance } from "../../layers/attention/distances.ts";
import { type BothWays, planBothWays } from "../../layers/attention/heads.ts";
import { type KvState, layerCache, onPages } from "../../layers/attention/kv-state.ts";
import { checkMasks } from "../../layers/attention/mask.ts";
import type { BlockLayer, CallTokens, StateRuns } from "../../layers/mixer/mixer.ts";
import { checkSlices, runSlices, SLICE_OPTIONS, type SliceOptions, stepFlopsOf } from "../../layers/pass/forward.ts";
import type { KvCache } from "../../layers/state/kv-cache.ts";
import { Layout, pointer } from "../../wasm/memory.ts";
import { expectModel } from "../blocks/model.ts";
import {
  checkSession,
  makeSession,
  SESSION_OPTIONS,
  type Session,
  type SessionOptions,
  type Source,
} from "../decoder/session.ts";
import { headsOf } from "../spec/spec.ts";
import { type Batch, collectRows, readBatch, runSliced, type TextTokenizer } from "./encode.ts";
import type { Seq2Seq } from "./load.ts";

/** Options of `readSource`: those of `createSession`, and how the encoder runs. */
export interface ReadSourceOptions extends SessionOptions, SliceOptions {
  /** What encodes a text. */
  readonly tokenizer?: TextTokenizer | undefined;
}

/**
 * Runs the encoder of a model on a source, in time slices, projects the keys and values of each cross-attention once, and returns a
 * session of the decoder, for `forward`, `generate` and `generateMany` of `headwise/models`. Its first token is the one that
 * config.json calls `decoder_start_token_id`. `release()` of the session frees these keys and values, too.
 * @param source Token ids of a text, the text with `options.tokenizer`, or features of a sound.
 * @throws TypeError or RangeError naming the argument. HeadwiseError `OUT_OF_MEMORY`, `RELEASED`, `NO_QUANTIZED`, or the signal's
 * reason. Nothing is allocated then.
 * @example
 * import { logMel, readSource, type Seq2Seq } from "headwise/models";
 * import { generate } from "headwise/models";
 * const transcribe = async (whisper: Seq2Seq, samples: Float32Array, prompt: readonly number[]): Promise<number[]> => {
 *   using session = await readSource(whisper, logMel(samples, { sampleRate: 16_000 }));
 *   const ids: number[] = [];
 *   for await (const { id } of generate(session, prompt, { maxTokens: 200 })) ids.push(id);
 *   return ids;
 * };
 * console.log(typeof transcribe); // function: a tokenizer makes text of the ids
 */
export async function readSource(
  model: Seq2Seq,
  source: Batch[number],
  options: ReadSourceOptions = {},
): Promise<Session> {
  const where = "readSource";
  expectModel(where, model, "loadSeq2Seq");
  const known = [...SESSION_OPTIONS, ...SLICE_OPTIONS, "tokenizer"] as const;
  const given = readFields(where, "options", options, known);
  const { tokenizer, signal, onProgress, sliceMs, ...session } = given;
  if (Array.isArray(session.format))
    throw new RangeError(`${where}: format expected one for all tokens, got ${describe(session.format)}`);
  const sequences = readBatch(where, model, [source], { tokenizer }, () => "source");
  checkSession(where, model, session);
  const { results, output } = collectRows(where, model, sequences);
  await runSliced(where, model, sequences, output, { signal, onProgress, sliceMs });
  const [states] = results as [Float32Array];
  const caches = openCaches(where, model, states.length / model.dModel, session);
  const steps = projectStates(where, model, states, caches);
  const expectActive = () => {
    signal?.throwIfAborted();
    expectModel(where, model, "loadSeq2Seq");
  };
  try {
    await runSlices(steps, Infinity, checkSlices(where, { signal, sliceMs }), expectActive);
    expectActive();
    return makeSession(where, model, session, sourceOf(where, model, caches, states.length / model.dModel));
  } catch (error) {
    for (const cache of caches) cache.release();
    throw error;
  }
}

/** A cache of `length` tokens for each cross-attention. */
function openCaches(where: string, { weights }: Seq2Seq, length: number, { format }: SessionOptions): KvCache[] {
  const caches: KvCache[] = [];
  try {
    for (const { cross } of weights.blocks)
      caches.push(underName(where, () => layerCache(where, cross as BlockLayer, { maxSeqLen: length, format })));
    return caches;
  } catch (error) {
    for (const cache of caches) cache.release();
    throw error;
  }
}

/** Fills the caches with the keys and values of the outputs of the encoder. */
function* projectStates(where: string, model: Seq2Seq, states: Float32Array, caches: readonly KvCache[]): Steps {
  const { kernels, dModel } = model;
  const { memory } = kernels;
  const length = states.length / dModel;
  const rows = Math.min(length, CHUNK_ROWS);
  let bytes = 0;
  const layers = caches.map(({ pages }, i) => {
    const layout = new Layout();
    layout.floats(rows * dModel);
    const { keys } = planBothWays(
      model.weights.blocks[i]?.cross as BlockLayer,
      layout,
      rows,
      pages.layout.formats,
    )(undefined);
    bytes = Math.max(bytes, layout.bytes);
    return keys;
  });
  const base = memory.allocate(where, bytes);
  try {
    const x = { at: pointer.f32(base), stride: dModel };
    const tokens = crossTokens(where, model, length, length);
    for (const [i, cache] of caches.entries()) {
      const list = listRows([{ tokens, pages: cache.pages, inStep: false }], () => [[0, length]]);
      for (const [begin, end] of chunksOf(length, rows)) {
        memory.f32(base, (end - begin) * dModel).set(states.subarray(begin * dModel, end * dModel));
        yield* (layers[i] as BothWays["keys"])(base, stepFlopsOf(kernels), list.runs(begin, end), x);
      }
      cache.commit(length);
    }
  } finally {
    if (!kernels.released) memory.free(base);
  }
}

/** How the decoder attends to a source of `length` rows. */
function sourceOf(where: string, model: Seq2Seq, caches: readonly KvCache[], length: number): Source {
  return {
    bytes: caches.reduce((sum, { bytes }) => sum + bytes, 0),
    holds: { count: 0 },
    release: () => {
      for (const cache of caches) cache.release();
    },
    plan({ weights }, block, layout, rows, formats) {
      const { relativeBias: bias } = weights;
      const { whole } = planBothWays(block.attention, layout, rows, formats)(bias && attendByDistance(bias));
      const { queries } = planBothWays(block.cross as BlockLayer, layout, rows, formats)();
      return {
        self: (base, stepFlops, runs: StateRuns<KvState>, rows) => whole(base, stepFlops, onPages(runs), rows),
        cross: queries,
      };
    },
    callOf: (layer, { qLen }) => ({
      tokens: crossTokens(where, model, qLen, length),
      pages: (caches[layer] as KvCache).pages,
      inStep: false,
    }),
  };
}

/** Queries that attend all of `kvLen` rows of a source, of which `newKeys` are appended. */
function crossTokens(where: string, { spec }: Seq2Seq, qLen: number, kvLen: number): CallTokens {
  const rows = [[0, qLen]] as const;
  const keyRows = [[0, kvLen]] as const;
  const numHeads = headsOf((spec.blocks[0] as Seq2Seq["spec"]["blocks"][number]).mixer);
  const target = { batch: 1, numHeads, qLen, kvLen };
  return {
    ...{ where, batch: 1, qLen, newKeys: kvLen, past: 0, rows, keyRows, target },
    positions: new Int32Array(0),
    keyPositions: new Int32Array(0),
    placements: [{ position: 0, kvLen }],
    masks: checkMasks(where, {}, target),
  };
}
