// What mixes the tokens of a layer: softmax heads, latents. Each is a record of one type, in a room of its own. Types alone, so
// that who works with layers of any mixer bundles none.

import type { RowRun, RowSpan } from "../../base/util/rows.ts";
import type { Steps } from "../../base/util/steps.ts";
import type { Kernels } from "../../wasm/kernels.ts";
import type { Layout } from "../../wasm/memory.ts";
import type { CheckedConfig } from "../attention/config.ts";
import type { CheckedMasks, MaskTarget, Placement } from "../attention/mask.ts";
import type { RopeWithDim, Rotary } from "../attention/rope.ts";
import type { Measure, ScoreStage } from "../attention/segment.ts";
import type { PackedLinear } from "../linear/formats.ts";
import type { Rows } from "../linear/products.ts";
import type { CacheOptions, KvCache } from "../state/kv-cache.ts";
import type { PageShape } from "../state/pages.ts";
import type { Pages } from "../state/table.ts";

/** A layer in linear memory, as those see it who do not know its mixer. */
export interface MixerLayer {
  /** The name of its mixer, by which tools find what they know of it. */
  readonly kind: string;
  readonly kernels: Kernels;
  readonly config: CheckedConfig;
  /** What pages are made for. */
  readonly pageShape: PageShape;
  readonly rotary: Rotary | undefined;
}

/** A layer of a model. */
export interface BlockLayer extends MixerLayer {
  /** Bytes of linear memory that the weights take. */
  readonly bytes: number;
  readonly released: boolean;
  /** Runs the layer. */
  readonly mixer: Mixer;
  release(): void;
}

/**
 * How layers mix the tokens of rows that stay in linear memory, as a model has them. Each function is given a layer that carries the
 * record.
 */
export interface Mixer<Layer extends MixerLayer = MixerLayer, State extends LayerState = LayerState> {
  /**
   * Whether the token at `position`, and earlier ones, take calls of kernels alone, and positions are in them: then the calls can be
   * recorded and repeated.
   */
  callsOnlyKernels(layer: Layer, position: number): boolean;
  /** The packed matrices of a layer, in the order in which they are multiplied. */
  linears(layer: Layer): readonly PackedLinear[];
  /** The rotations of a layer whose tables other layers can share; undefined if it has none, or fills tables of its own. */
  rope(layer: Layer): RopeWithDim | undefined;
  /** The most rows of a chunk of `plan`. */
  chunkRows(layer: Layer, rows: number): number;
  /** What a layer keeps of a sequence, if that is not keys and values in pages of its `pageShape`. */
  readonly states?: StateMaker<Layer, State>;
  /**
   * Plans chunks of up to `rows` rows that follow each other, without masks, on states whose pages have these formats: places what the
   * layer works in, and returns what runs it. What `reading` names can be read. `rotations` are tables for the
   * positions of the rows by `rope`, which the caller fills.
   */
  plan(
    layer: Layer,
    layout: Layout,
    rows: number,
    formats: number,
    reading: Reading,
    rotations: RotationPlaces | undefined,
  ): RunRows<StateCall<State>>;
}

/**
 * What a layer keeps of a sequence, whatever it is: a session owns one for each layer, and asks no more of it than this. What a call appends is part of it once `commit` is called; until then `begin` undoes it. Export and import
 * read its pages (`export.ts`), so that only who uses them carries them.
 */
export interface LayerState {
  /** Bytes of linear memory that were taken for it. All that it comes to need is reserved. */
  readonly bytes: number;
  /** The formats of its pages, as in PageLayout; 0 if it has none. */
  readonly formats: number;
  /** The states that it consists of, where mixers lie side by side. */
  readonly parts?: readonly LayerState[];
  /** Bytes that `fork` takes now. */
  readonly forkBytes: number;
  /** Keeps a way back to what is held now, until it is called again. States that have it anyway lack this. */
  mark?(): void;
  /** Undoes what an uncommitted call left: every call begins with it. */
  begin(): void;
  /**
   * 1 where the next call works in other places than those of 0: states that read what is held in one place and write what comes in
   * another exchange both with each call, all states of a session together. Default 0.
   */
  readonly turn?: number;
  /**
   * Makes the token behind `past` others writable. Returns whether it changes nothing else: then only its position and the turn
   * differ, of the neighbour with which it shares a page, too.
   */
  settle(past: number): boolean;
  /** Makes `tokens` more, which a call appended, part of what is held. */
  commit(tokens: number): void;
  /** The longest length up to `length` that it can go back to once it holds `held` tokens. */
  nearest(length: number, held: number): number;
  /** Throws unless it can go back to `length`. */
  expectTruncatable(length: number): void;
  /** Takes the memory that going back to `length` needs where it is shared, and frees what is not needed. */
  reserve(length: number): void;
  truncate(length: number): void;
  /** A state with the same tokens, which shares its memory until one of both changes. Errors name `where`. */
  fork(where: string): this;
  release(): void;
}

/** Makes what layers keep of sequences of up to `maxSeqLen` tokens. */
export interface StateMaker<Layer extends MixerLayer = MixerLayer, State extends LayerState = LayerState> {
  /** Bytes of linear memory of a state. */
  bytes(where: string, layer: Layer, maxSeqLen: number, options: StateOptions): number;
  create(where: string, layer: Layer, maxSeqLen: number, options: StateOptions): State;
}

/**
 * How layers mix the tokens of rows of arrays, as `attend` takes them. It is apart from `Mixer`, because programs with models bundle
 * none of it, and programs without them none of that.
 */
export interface Passes<Layer extends MixerLayer = MixerLayer> {
  /** Throws for options that no layer of this mixer takes, before other rules ask for more of them. */
  check(where: string, options: MixerOptions): void;
  /** Throws unless the layer can take the calls. */
  prepare(layer: Layer, calls: readonly MixerCall[], options: PassOptions): PreparedPass;
  /** The operations of all steps of about `stepFlops` for a call. */
  flops(layer: Layer, call: MixerCall, stepFlops: number): number;
  /**
   * Plans tokens that follow each other on these pages, one a call, whose keys come from their own row; undefined if each is planned
   * as a call. Mixers may lack it.
   */
  next?(layer: Layer, pages: Pages): NextToken | undefined;
}

/** A token whose call was planned: bytes of scratch and floats of y, and no views, so that a plan keeps no memory of its own. */
export interface NextToken {
  readonly bytes: number;
  readonly width: number;
  /** Attends with the row `x` [dModel] in scratch at `base`, and writes `y` [width]. */
  run(base: number, of: LayerCall, x: Float32Array, y: Float32Array): void;
}

// A layer on rows that stay in linear memory.

/** The tokens of a call: their numbers, positions, and the keys that they may attend. */
export interface CallTokens {
  /** The public function, for messages. */
  readonly where: string;
  readonly batch: number;
  readonly qLen: number;
  /** Keys that this call projects and appends, after the `past` earlier ones. */
  readonly newKeys: number;
  readonly past: number;
  readonly placements: readonly Placement[];
  /** The rows of x, and those that keys come from, which are not padding: only these are projected and attend. */
  readonly rows: readonly RowSpan[];
  readonly keyRows: readonly RowSpan[];
  /** RoPE positions of x and of the keys, [batch·qLen] and [batch·newKeys], if the layer has RoPE. */
  readonly positions: Int32Array;
  readonly keyPositions: Int32Array;
  readonly target: MaskTarget;
  readonly masks: CheckedMasks;
}

/** The tokens of one call, and the pages that their keys go to. */
export interface LayerCall {
  readonly tokens: CallTokens;
  readonly pages: Pages;
  /**
   * Whether keys age as the queries of the call advance: queries and keys have the same positions, and no query attends
   * a later key.
   */
  readonly inStep: boolean;
}

/** The runs of rows of a chunk, which may belong to several calls. */
export type Runs<Call = LayerCall> = readonly RowRun<Call>[];

/** The tokens of one call, and what the layer keeps of their sequence. */
export interface StateCall<State extends LayerState = LayerState> {
  readonly tokens: CallTokens;
  readonly state: State;
}

export type StateRuns<State extends LayerState = LayerState> = Runs<StateCall<State>>;

/** How a sequence is kept. */
export type StateOptions = Pick<CacheOptions, "format" | "truncatable">;

/** Offsets of the tables of rotations of a chunk, [rows, rope.dim / 2] each. */
export interface RotationPlaces {
  readonly cos: number;
  readonly sin: number;
}

/** What is read of a call's attention besides its outputs. */
interface Reading {
  /** The keys of the call; 0 if nothing is read. */
  readonly kvLen: number;
  /** Whether their softmax weights are. */
  readonly maps: boolean;
}

/**
 * Runs a layer on the rows `x` of a chunk, in scratch at `base`, and writes its outputs to `out`. `tap` sees its heads, and
 * `maps` [numHeads, qLen, kvLen] gets the softmax weights of a single call, where the plan has room for them. `measure` measures
 * the rows of attention of a single call, whose keys the plan then knows. `warm` changes the queries of a run, and `finish` what
 * the heads gave, before the output projection.
 */
export type RunRows<Call = LayerCall> = Runner<Call>["run"];

/** As a method, whose runs may be those of the layer's own states. */
interface Runner<Call> {
  run(
    base: number,
    stepFlops: number,
    runs: Runs<Call>,
    rows: {
      readonly x: Rows;
      readonly out: Rows;
      readonly tap?: Tap | undefined;
      readonly maps?: Float32Array | undefined;
      readonly measure?: Measure | undefined;
      readonly warm?: WarmQueries | undefined;
      readonly finish?: ((heads: Rows) => Steps) | undefined;
    },
  ): Steps;
}

/** Changes the queries of a run, after their rotation; those of its first row are at `q`. */
export type WarmQueries = (q: Rows, run: RowRun<{ readonly tokens: CallTokens }>) => void;

/**
 * In a layer's attention, by the names of TransformerLens: what the projections gave, before norms and RoPE, head after head; and
 * what the heads gave, before the output projection.
 */
export type HeadSite = "q" | "k" | "v" | "z";

/** Is given the rows of a chunk at a site, between kernel calls, where it can read and change them. */
export type Tap<Site extends string = HeadSite> = (site: Site, rows: Rows) => void;

// A layer on rows of arrays.

/** The options of a call that only some mixers take. */
interface MixerOptions {
  readonly append?: boolean;
  readonly keys?: Float32Array;
  readonly values?: Float32Array;
  readonly path?: string;
}

/** A checked call: its tokens and arrays, x [batch, qLen, dModel], keys [batch, newKeys, kdim] and values. */
export interface CheckedCall extends CallTokens {
  readonly x: Float32Array;
  readonly keys: Float32Array;
  readonly values: Float32Array;
  readonly out: Float32Array | undefined;
}

/** A checked call, and the cache that it changes. */
export interface MixerCall extends CheckedCall {
  readonly cache: KvCache | undefined;
  readonly path: "absorbed" | "expanded" | undefined;
}

/** A call of a pass, and the array for its outputs. */
export interface PassCall extends LayerCall {
  readonly call: MixerCall;
  readonly y: Float32Array;
}

/** Options of a pass. */
export interface PassOptions {
  /** The public function, for messages. */
  readonly where: string;
  /** Whether to return the softmax weights of all queries and keys; for a single call. */
  readonly maps?: boolean;
  /** Return the scores at this stage instead of the weights. Default 3, the weights. */
  readonly stage?: ScoreStage;
  /** Measures the rows of attention, of a single call. */
  readonly measure?: Measure;
  /** Sees the rows of each chunk at the sites of the mixer's own, if it has any. */
  trace?(site: string, rows: Rows): void;
  /** The approximate number of floating-point operations of a step; by default, no kernel call is cut. */
  readonly stepFlops?: number;
  /** Allocate a block instead of using the scratch that all calls share, because others may run between steps. */
  readonly ownScratch?: boolean;
}

/** What a pass needs to know before it allocates. */
export interface PreparedPass {
  /** Floats of a row of y. */
  readonly width: number;
  /** Columns of the maps. */
  readonly columns: number;
  /** Bytes of scratch. */
  readonly bytes: number;
  /** Bytes of a block that the pass needs besides, which is freed at its end. Default none. */
  readonly block?: number;
  /** Runs all steps. `maps` is empty unless maps are wanted; `block` is the address of the block. */
  readonly run: (
    calls: readonly PassCall[],
    base: number,
    stepFlops: number,
    maps: Float32Array,
    block: number,
  ) => Steps;
}
