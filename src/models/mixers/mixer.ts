// What models know of what mixes the tokens of their layers, by kind: how a layer is read of config.json, which weights it has and
// what files call them, what it keeps of a sequence, how its memory is planned, and how it is packed. Nobody else asks of which
// kind a layer is, so that the layers of a model may differ in it. A kind is a specification (`MixerSpecs` of spec.ts), a file here,
// and a line in each table of mixers.ts, which the compiler asks for.

import type { StoredTensor } from "../../base/tensor/dtypes.ts";
import { halvesOf } from "../../base/tensor/matrix.ts";
import type { HeadwiseErrorCode } from "../../base/util/errors.ts";
import type { RopeWithDim } from "../../layers/attention/rope.ts";
import type { AttentionWeights } from "../../layers/attention/weights.ts";
import type { LatentWeights } from "../../layers/latent/config.ts";
import type { PackedFormat, WeightFormat } from "../../layers/linear/formats.ts";
import type { BlockLayer, RotationPlaces, StateOptions } from "../../layers/mixer/mixer.ts";
import type { Kernels } from "../../wasm/kernels.ts";
import type { Layout } from "../../wasm/memory.ts";
import type { HeadsSpec, LatentSpec, MixerSpec } from "../spec/spec.ts";
import type { NamedShapes } from "../weights/gguf-layer.ts";
import type { MixerRole, Source, Weight, WeightOf } from "./weight.ts";

/** What models know of a kind, before anything is loaded. */
export interface MixerKind<Spec extends MixerSpec = MixerSpec> {
  /** What kernels have to be loaded with, besides `models`: the option, which an entry exports, and the code without it. */
  readonly needs?: { readonly option: "latent"; readonly code: HeadwiseErrorCode };
  /** Whether a layer reads the tokens of a sequence one after the other, or what other layers keep of them. */
  readsInOrder?(mixer: Spec): boolean;
  /** The weights of a layer, with the sizes that its layers check. `of` is what all of them have. */
  weights(mixer: Spec, of: WeightOf): Iterable<Weight<MixerRole>>;
  /** The format of a matrix, where it is not the `requested` one or that of its tensor. */
  formatOf?(role: MixerRole, requested: WeightFormat | undefined, stored: StoredRoles): PackedFormat;
  /** Plans the memory of a layer, whose matrices have these formats. */
  plan(where: string, mixer: Spec, formatOf: (role: MixerRole) => PackedFormat): MixerPlan;
}

/** A tensor of a layer's mixer, by its name below the layer's prefix. */
export interface MixerTensor {
  readonly name: string;
  readonly shape: readonly number[];
  readonly roles: readonly MixerRole[];
  readonly optional?: boolean;
  /** The name and the shape of its bias, which files may lack unless it is `required`. */
  readonly bias?: readonly [name: string, shape: readonly number[], required?: true] | undefined;
}

/** What a file says of the matrices of a layer. */
interface StoredRoles {
  /** The name of the tensor. */
  nameOf(role: MixerRole): string | undefined;
  dtypeOf(role: MixerRole): string | undefined;
  /** The requested format, or the one of the tensor. */
  formatOf(role: MixerRole, requested: WeightFormat | undefined): PackedFormat;
}

/** The memory of a layer's mixer: its bytes, what it keeps of a sequence, and what it works in. */
export interface MixerPlan {
  readonly bytes: number;
  /** What rotates, by tables that layers share. */
  readonly rope: RopeWithDim | undefined;
  /** Rows of a chunk at most. */
  readonly chunkRows: number;
  /** The state of a sequence: its bytes, and the formats of its pages, 0 without any. */
  state(where: string, maxSeqLen: number, options: StateOptions): { readonly bytes: number; readonly formats: number };
  /** Places what a pass works in, as `Mixer.plan` of the layer does. */
  place(layout: Layout, rows: number, pageFormats: number, rotations: RotationPlaces | undefined): void;
}

/** What layers of a kind keep of a sequence. It is apart, since only descriptions of models ask. */
export interface MixerMemory<Spec extends MixerSpec = MixerSpec> {
  /** Numbers of each token, of how many tokens at most, and of the whole sequence, whatever its length. */
  keeps(mixer: Spec): {
    readonly perToken: number;
    readonly window: number | undefined;
    readonly state: number;
    /** Where descriptions call it otherwise: of a layer that attends the keys of another one. */
    readonly kind?: "shared";
  };
  /** What descriptions call it. */
  readonly kind: "heads" | "latent" | "recurrent" | "both";
}

/** What packs the layers of a kind. It is apart, so that programs that only plan bundle nothing that packs. */
export interface MixerLoader<Spec extends MixerSpec = MixerSpec> {
  load(packing: MixerPacking, mixer: Spec): BlockLayer;
}

/** A layer whose tensors were read. */
export interface MixerPacking {
  readonly where: string;
  readonly kernels: Kernels;
  /** The requested format of its matrices; undefined for those of the file. */
  readonly weights: WeightFormat | undefined;
  readonly activations: "exact" | "fast";
  /** As `rounded` of ModelSpec: of softmax heads alone. */
  readonly rounded: true | undefined;
  /** What names of its tensors begin with. */
  readonly prefix: string;
  readonly tensors: Map<string, StoredTensor>;
  readonly sources: readonly Source[];
  readonly readers: MixerReaders;
  /** Allocates a block that is freed with the model. */
  ownBlock(bytes: number): number;
}

/** The mixers of layers in files of one form: the tensors of each, and what reads its weights of them. */
export interface MixerFiles {
  tensors(mixer: MixerSpec): readonly MixerTensor[];
  /** Tensors that files may have and the layer does not use, by the names of their modules below the layer's prefix. */
  ignored?(mixer: MixerSpec): readonly string[];
  readonly readers: MixerReaders;
}

type Tensors = ReadonlyMap<string, StoredTensor>;

/** What reads the weights of a layer of each kind, of tensors whose names begin with `prefix`. */
export interface MixerReaders {
  heads(tensors: Tensors, prefix: string, mixer: HeadsSpec): AttentionWeights;
  latent(tensors: Tensors, prefix: string, mixer: LatentSpec): LatentWeights;
}

/** Tensors by name, without ".weight" those of `roles`, with the biases among `optional`, and the rest of these. */
export function namedTensors(
  roles: Readonly<Record<string, readonly MixerRole[]>>,
  required: NamedShapes,
  optional: NamedShapes,
): readonly MixerTensor[] {
  const ownerOf = (name: string) => name.replace(/\.(weight|bias)$/, "");
  const biases = new Map(optional.filter(([name]) => name.endsWith(".bias")).map((each) => [ownerOf(each[0]), each]));
  const others = optional.filter(([name]) => !name.endsWith(".bias"));
  return [...required, ...others].map(([name, shape], i) => {
    const owner = ownerOf(name);
    return { name, shape, roles: roles[owner] ?? [], optional: i >= required.length, bias: biases.get(owner) };
  });
}

/** The tensors of a layer with the rows of queries alone in the projection `name`, whose heads have gates, too. */
export function withoutGates(
  tensors: ReadonlyMap<string, StoredTensor>,
  name: string,
  heads: number,
): ReadonlyMap<string, StoredTensor> {
  const own = new Map(tensors);
  const [matrix, bias] = [tensors.get(`${name}.weight`), tensors.get(`${name}.bias`)];
  if (matrix) own.set(`${name}.weight`, halvesOf(matrix, heads, 0));
  if (bias) {
    const { shape, ...rest } = halvesOf({ ...bias, shape: [...bias.shape, 1] }, heads, 0);
    own.set(`${name}.bias`, { ...rest, shape: shape.slice(0, 1) });
  }
  return own;
}
