// One way to test every kernel: its arguments as its twin takes them (arrays for addresses, a plain object for a shape)
// are copied into linear memory between guards, the kernel runs, and what it left is copied back.

import * as loader from "@assemblyscript/loader";
import type { Random } from "../../src/tools/diagnostics/random.ts";
import type { KernelTable, Page, Reference } from "../../src/wasm/abi.ts";
import * as abi from "../../src/wasm/abi.ts";
import { adopt, type Instance, kernelsIn } from "../../src/wasm/modules.ts";
import { moduleOf } from "./modules.ts";

export { createRandom, type Random } from "../../src/tools/diagnostics/random.ts";

export const builds = ["debug", "simd", "relaxed"] as const;
export type BuildName = (typeof builds)[number];

/** A fresh instance of one build, with a memory of its own. */
export function load(build: BuildName): Instance {
  const memory = new WebAssembly.Memory({ initial: 1 });
  // The loader turns an assertion that fails in the debug build into an error with its text and place.
  const start = (name: string) => loader.instantiateSync(moduleOf(name), { env: { memory } }).instance;
  const floats = start(build);
  // The debug build has all kernels in one module.
  const others = (part: "weights" | "caches" | "latents" | "decoders" | "statistics") =>
    (build === "debug" ? floats : start(`${part}-${build}`)).exports;
  const instance = adopt(floats, memory);
  Object.assign(instance.kernels, kernelsIn("weights", others("weights"), "weights"));
  Object.assign(instance.kernels, kernelsIn("caches", others("caches"), "caches"));
  Object.assign(instance.kernels, kernelsIn("latents", others("latents"), "latents"));
  Object.assign(instance.kernels, kernelsIn("decoders", others("decoders"), "decoders"));
  Object.assign(instance.kernels, kernelsIn("statistics", others("statistics"), "statistics"));
  return instance;
}

export type KernelName = keyof KernelTable;
export type Arguments<K extends KernelName> = Parameters<Reference[K]>;
type Array32 = Float32Array | Int32Array | Uint32Array | Uint16Array | Uint8Array;

const GUARD_BYTES = 64;
const GUARD = 0xa5;

const isArray = (value: unknown): value is Array32 => ArrayBuffer.isView(value);
const isPages = (value: unknown): value is readonly Page[] => Array.isArray(value);

type Store = (view: DataView, at: number, fields: Readonly<Record<string, number>>) => void;
/** The structs that kernels take: where their fields lie, and how they are written. */
const STRUCTS: readonly { readonly fields: readonly string[]; readonly bytes: number; readonly store: unknown }[] = [
  { fields: abi.FIELDS.ActivationShape, bytes: abi.ActivationShape.bytes, store: abi.ActivationShape.store },
  { fields: abi.FIELDS.AttentionShape, bytes: abi.AttentionShape.bytes, store: abi.AttentionShape.store },
  { fields: abi.FIELDS.CacheShape, bytes: abi.CacheShape.bytes, store: abi.CacheShape.store },
  { fields: abi.FIELDS.ChannelScanShape, bytes: abi.ChannelScanShape.bytes, store: abi.ChannelScanShape.store },
  { fields: abi.FIELDS.ConvShape, bytes: abi.ConvShape.bytes, store: abi.ConvShape.store },
  { fields: abi.FIELDS.DecayShape, bytes: abi.DecayShape.bytes, store: abi.DecayShape.store },
  { fields: abi.FIELDS.EmbedShape, bytes: abi.EmbedShape.bytes, store: abi.EmbedShape.store },
  {
    ...{ fields: abi.FIELDS.LinearAttentionShape, bytes: abi.LinearAttentionShape.bytes },
    store: abi.LinearAttentionShape.store,
  },
  { fields: abi.FIELDS.LinearShape, bytes: abi.LinearShape.bytes, store: abi.LinearShape.store },
  { fields: abi.FIELDS.NormShape, bytes: abi.NormShape.bytes, store: abi.NormShape.store },
  { fields: abi.FIELDS.RopeShape, bytes: abi.RopeShape.bytes, store: abi.RopeShape.store },
  { fields: abi.FIELDS.RouteShape, bytes: abi.RouteShape.bytes, store: abi.RouteShape.store },
  { fields: abi.FIELDS.ScoreShape, bytes: abi.ScoreShape.bytes, store: abi.ScoreShape.store },
  { fields: abi.FIELDS.StatisticsShape, bytes: abi.StatisticsShape.bytes, store: abi.StatisticsShape.store },
];
/** The struct that has the fields of a plain object. */
const structOf = (value: object) => {
  const names = Object.keys(value).sort().join();
  return STRUCTS.find(({ fields }) => [...fields].sort().join() === names);
};

/** A deep copy, so that a kernel and its twin start from the same arguments; what is the same array in one is so in the other. */
export function copyArguments<K extends KernelName>(args: Arguments<K>): Arguments<K> {
  return structuredClone(args);
}

/** Runs a kernel of an instance on `args`; arrays in `args` hold what the kernel left there. Throws on a broken guard. */
export function runKernel<K extends KernelName>(instance: Instance, name: K, args: Arguments<K>): void {
  const { memory } = instance;
  const blocks: number[] = [];
  const placed: { at: number; array: Array32 }[] = [];

  // The same array twice is one block, so that a kernel can be run in place.
  const place = (array: Array32): number => {
    const known = placed.find((other) => other.array === array);
    if (known) return known.at;
    const at = memory.allocate(name, array.byteLength + 2 * GUARD_BYTES) + GUARD_BYTES;
    blocks.push(at - GUARD_BYTES);
    memory.u8(at - GUARD_BYTES, array.byteLength + 2 * GUARD_BYTES).fill(GUARD);
    memory.u8(at, array.byteLength).set(new Uint8Array(array.buffer, array.byteOffset, array.byteLength));
    placed.push({ at, array });
    return at;
  };
  const placePage = (page: Page) => ("bytes" in page ? place(page.bytes) | page.formats : place(page));
  const toAddress = (value: unknown): number => {
    if (value === null) return 0;
    if (typeof value === "number") return value;
    if (isArray(value)) return place(value);
    if (isPages(value)) return place(Uint32Array.from(value, placePage));
    const struct = typeof value === "object" ? structOf(value) : undefined;
    if (!struct) throw new TypeError(`${name}: cannot pass ${typeof value}`);
    const fields = Object.fromEntries(Object.entries(value as object).map(([key, field]) => [key, toAddress(field)]));
    const at = memory.allocate(name, struct.bytes);
    blocks.push(at);
    (struct.store as Store)(memory.view(), at, fields);
    return at;
  };

  const addresses = args.map(toAddress);
  (instance.kernels[name] as (...args: number[]) => void)(...addresses);
  for (const { at, array } of placed) {
    const before = memory.u8(at - GUARD_BYTES, GUARD_BYTES);
    const after = memory.u8(at + array.byteLength, GUARD_BYTES);
    if (before.some((byte) => byte !== GUARD))
      throw new Error(`${name}: wrote before an array of ${array.byteLength} bytes`);
    if (after.some((byte) => byte !== GUARD))
      throw new Error(`${name}: wrote behind an array of ${array.byteLength} bytes`);
    new Uint8Array(array.buffer, array.byteOffset, array.byteLength).set(memory.u8(at, array.byteLength));
  }
  for (const at of blocks) memory.free(at);
}

/** `length` floats of a kind of data that finds different faults. */
export function floats(
  random: Random,
  length: number,
  kind: "normal" | "outlier" | "equal" | "tiny" = "normal",
): Float32Array {
  const data = new Float32Array(length);
  for (let i = 0; i < length; i++) data[i] = random.normal();
  if (kind === "outlier" && length > 0) data[random.int(0, length - 1)] = 1000;
  if (kind === "equal") data.fill(0.7);
  if (kind === "tiny") for (let i = 0; i < length; i++) data[i] = i % 3 === 0 ? -0 : data[i]! * 1e-42;
  return data;
}

/** The largest |got - want| - allowed, which must not be above 0, with the place; NaN must meet NaN. */
export function worst(
  got: Float32Array,
  want: ArrayLike<number>,
  allowed: (i: number) => number,
): { excess: number; at: number } {
  let excess = Number.NEGATIVE_INFINITY;
  let at = -1;
  for (let i = 0; i < got.length; i++) {
    const same = Object.is(got[i], want[i]) || (Number.isNaN(got[i]) && Number.isNaN(want[i]));
    const over = same ? -allowed(i) : Math.abs(got[i]! - want[i]!) - allowed(i);
    if (!(over <= excess)) {
      excess = Number.isNaN(over) ? Number.POSITIVE_INFINITY : over;
      at = i;
    }
  }
  return { excess, at };
}

/** Three uneven pieces of [0, n), shuffled, for the law that ranges split without a trace. */
export function pieces(random: Random, n: number): [number, number][] {
  const cuts = [0, random.int(0, n), random.int(0, n), n].sort((a, b) => a - b);
  const [a, b, c, d] = cuts as [number, number, number, number];
  const all: [number, number][] = [
    [a, b],
    [b, c],
    [c, d],
  ];
  return random.int(0, 1) ? all.reverse() : all;
}
