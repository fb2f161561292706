// A single token through the layers of a decoder as a list of kernel calls. The tokens of a session make the same calls with
// the same addresses, and only their position differs. So the calls are recorded once and repeated: a product pushes what the
// host works with out of the processor's caches, and with less of it a token of a small model takes a tenth less time.

import type { Steps } from "../../base/util/steps.ts";
import type { Rotary } from "../../layers/attention/rope.ts";
import {
  ACTIVATION_SHAPE_BYTES,
  ATTENTION_SHAPE_AT,
  ATTENTION_SHAPE_BYTES,
  CACHE_SHAPE_BYTES,
  type KernelTable,
  LINEAR_SHAPE_BYTES,
  NORM_SHAPE_BYTES,
  ROPE_SHAPE_BYTES,
} from "../../wasm/abi.ts";
import type { Kernels } from "../../wasm/kernels.ts";
import { aligned } from "../../wasm/memory.ts";
import type { PackedBlock } from "../blocks/places.ts";
import type { RowWork } from "../blocks/rows.ts";
import { type PassPlan, TOKEN_BYTES } from "../blocks/scratch.ts";
import type { Session } from "./session.ts";

type Kernel = (...args: number[]) => void;

/** A call, which layer made it, its shape as it was, and the operations of the step that it ends, or 0. */
interface Call {
  readonly name: keyof KernelTable;
  readonly args: number[];
  readonly layer: number;
  readonly shape: Uint8Array;
  flops: number;
}

/** The calls of a token. */
interface TokenCalls {
  /** The kernels that are called, by name: functions would keep the memory of kernels that were released. */
  readonly names: readonly (keyof KernelTable)[];
  /** Which of them each call calls. */
  readonly kinds: Uint8Array;
  /** How many arguments each call has, and all of them, MOST_ARGS for each call. */
  readonly counts: Uint8Array;
  readonly args: Float64Array;
  readonly flops: Float64Array;
  /** Which of `args` are the position of the token. */
  readonly positions: readonly number[];
  /** The address of the room for shapes and tables; the shapes, and the offsets of those that contain the position. */
  readonly at: number;
  readonly shapes: Uint8Array;
  readonly attentionShapes: readonly number[];
  /** The addresses of tables of rotations. */
  readonly tables: readonly { readonly rotary: Rotary; readonly cos: number; readonly sin: number }[];
}

/** Where the last token of a session worked, and its calls: undefined if not recorded, "none" if they cannot be repeated. */
interface LastToken {
  readonly plan: PassPlan;
  readonly base: number;
  readonly stepFlops: number;
  readonly calls: TokenCalls | "none" | undefined;
}

const LAST = new WeakMap<Session, LastToken>();

const MOST_ARGS = 8;

/** The kernels of layers whose calls can be repeated: where their shape stands, from the last argument, and its bytes. */
const SHAPES: Readonly<Partial<Record<keyof KernelTable, readonly [fromEnd: number, bytes: number]>>> = {
  activate_f32: [3, ACTIVATION_SHAPE_BYTES],
  add_scaled_f32: [0, 0],
  append_f32: [4, CACHE_SHAPE_BYTES],
  append_pages: [4, CACHE_SHAPE_BYTES],
  attention_f32: [3, ATTENTION_SHAPE_BYTES],
  attention_pages: [3, ATTENTION_SHAPE_BYTES],
  layer_norm_f32: [3, NORM_SHAPE_BYTES],
  linear_f16: [3, LINEAR_SHAPE_BYTES],
  linear_f32: [3, LINEAR_SHAPE_BYTES],
  linear_q4: [3, LINEAR_SHAPE_BYTES],
  linear_q8: [3, LINEAR_SHAPE_BYTES],
  quantize_rows: [0, 0],
  rms_norm_f32: [0, 0],
  rope_f32: [3, ROPE_SHAPE_BYTES],
};

/** Runs a token of a session, behind `past` others, through its layers, of which `layer` runs one. */
export function* runToken(
  work: RowWork,
  plan: PassPlan,
  session: Session,
  past: number,
  layer: (index: number) => Steps,
): Steps {
  const { kernels, base, stepFlops } = work;
  const { blocks } = session.model.weights;
  const last = LAST.get(session);
  const known = last?.plan === plan && last.base === base && last.stepFlops === stepFlops ? last : undefined;
  if (known?.calls === "none" || !session.states.every((state) => state.settle(past)))
    yield* runLayers(blocks.length, layer);
  else if (known?.calls) yield* repeatCalls(kernels, known.calls, past);
  else {
    // The first token may be the only one with this scratch.
    const calls = known ? yield* recordCalls(kernels, blocks.length, layer) : yield* runLayers(blocks.length, layer);
    LAST.set(session, { plan, base, stepFlops, calls: calls && arrange(calls, blocks, base + plan.token) });
  }
}

function* runLayers(count: number, layer: (index: number) => Steps): Steps<undefined> {
  for (let i = 0; i < count; i++) yield* layer(i);
}

/** Runs the layers, and returns the calls of their kernels. */
function* recordCalls(kernels: Kernels, count: number, layer: (index: number) => Steps): Steps<Call[]> {
  const calls: Call[] = [];
  for (let i = 0; i < count; i++) {
    const steps = layer(i);
    for (;;) {
      const { done, value } = recordStep(kernels, i, calls, () => steps.next());
      if (done) break;
      (calls.at(-1) as Call).flops = value;
      yield value;
    }
  }
  return calls;
}

/** Runs a step, with kernels that add their calls to `calls`. */
function recordStep<T>({ table, memory }: Kernels, layer: number, calls: Call[], step: () => T): T {
  const kernels = table as unknown as Record<keyof KernelTable, Kernel>;
  const own = { ...kernels };
  for (const [name, kernel] of Object.entries(own) as [keyof KernelTable, Kernel][])
    kernels[name] = (...args) => {
      const [fromEnd, bytes] = SHAPES[name] ?? [0, 0];
      const shape = memory.u8(args.at(-fromEnd) as number, bytes).slice();
      // Threads change the list of arguments.
      calls.push({ name, args: [...args], layer, shape, flops: 0 });
      kernel(...args);
    };
  try {
    return step();
  } finally {
    Object.assign(kernels, own);
  }
}

/**
 * The calls with shapes and tables of their own in the room at `at`; "none" if that is too small, or if the host does more than
 * to call kernels: it routes experts, and puts latent attention together.
 */
function arrange(calls: readonly Call[], blocks: readonly PackedBlock[], at: number): TokenCalls | "none" {
  if (blocks.some(({ moe, attention }) => moe || attention.pass)) return "none";
  const args = new Float64Array(calls.length * MOST_ARGS);
  const room = new Uint8Array(TOKEN_BYTES);
  const offsets = new Map<string, number>();
  let end = 0;
  /** The offset of what is known by `key`, and whether it is new. */
  const take = (key: string, bytes: number): readonly [offset: number, isNew: boolean] => {
    const known = offsets.get(key);
    if (known !== undefined) return [known, false];
    const offset = end;
    offsets.set(key, offset);
    end += aligned(bytes);
    return [offset, true];
  };
  const positions: number[] = [];
  const attentionShapes: number[] = [];
  for (const [i, { name, args: own, shape }] of calls.entries()) {
    const place = SHAPES[name];
    if (!place) return "none";
    args.set(own, i * MOST_ARGS);
    const [fromEnd, bytes] = place;
    if (bytes === 0) continue;
    const [offset, isNew] = take(`${name} ${shape}`, bytes);
    if (end > TOKEN_BYTES) return "none";
    args[i * MOST_ARGS + own.length - fromEnd] = at + offset;
    if (name.startsWith("append_")) positions.push(i * MOST_ARGS + own.length - 3);
    if (!isNew) continue;
    room.set(shape, offset);
    if (name.startsWith("attention_")) attentionShapes.push(offset);
  }
  const shapes = room.slice(0, end);
  if (!attentionShapes.every((offset) => isCausal(shapes, offset))) return "none";

  const tables = [];
  for (const [i, { name, layer }] of calls.entries()) {
    if (name !== "rope_f32") continue;
    const { rotary, config } = (blocks[layer] as PackedBlock).attention;
    if (!rotary) return "none";
    const half = aligned(2 * rotary.dim);
    const [offset, isNew] = take(`tables ${JSON.stringify(config.rope)}`, 2 * half);
    if (end > TOKEN_BYTES) return "none";
    const [cos, sin] = [at + offset, at + offset + half];
    args.set([cos, sin], i * MOST_ARGS + 1);
    if (isNew) tables.push({ rotary, cos, sin });
  }
  const names = [...new Set(calls.map(({ name }) => name))];
  const kinds = Uint8Array.from(calls, ({ name }) => names.indexOf(name));
  const counts = Uint8Array.from(calls, ({ args }) => args.length);
  const flops = Float64Array.from(calls, (call) => call.flops);
  return { names, kinds, counts, args, flops, positions, at, shapes, attentionShapes, tables };
}

/** Whether a shape of attention bounds the keys by the query's position alone. */
function isCausal(shapes: Uint8Array, offset: number): boolean {
  return new DataView(shapes.buffer).getInt32(offset + ATTENTION_SHAPE_AT.right, true) === 0;
}

/** Runs the calls for a token behind `past` others. */
function* repeatCalls({ table, memory }: Kernels, token: TokenCalls, past: number): Steps {
  const { names, kinds, counts, args, flops, positions, at, shapes, attentionShapes, tables } = token;
  const kernels = names.map((name) => table[name] as unknown as Kernel);
  memory.u8(at, shapes.length).set(shapes);
  const view = memory.view();
  for (const offset of attentionShapes) {
    view.setInt32(at + offset + ATTENTION_SHAPE_AT.qStart, past, true);
    view.setInt32(at + offset + ATTENTION_SHAPE_AT.kvLen, past + 1, true);
  }
  for (const { rotary, cos, sin } of tables)
    rotary.fill([past], memory.f32(cos, rotary.dim / 2), memory.f32(sin, rotary.dim / 2));
  for (const i of positions) args[i] = past;
  for (let i = 0; i < kinds.length; i++) {
    call(kernels[kinds[i] as number] as Kernel, args, i * MOST_ARGS, counts[i] as number);
    if (flops[i] !== 0) yield flops[i] as number;
  }
}

/** A call with as many arguments as it has, since threads count them, and without a list of them, which would be garbage. */
function call(kernel: Kernel, args: Float64Array, i: number, count: number): void {
  const [a, b, c] = [args[i], args[i + 1], args[i + 2]] as [number, number, number];
  const [d, e, f] = [args[i + 3], args[i + 4], args[i + 5]] as [number, number, number];
  if (count === 6) kernel(a, b, c, d, e, f);
  else if (count === 7) kernel(a, b, c, d, e, f, args[i + 6] as number);
  else kernel(a, b, c, d, e, f, args[i + 6] as number, args[i + 7] as number);
}
