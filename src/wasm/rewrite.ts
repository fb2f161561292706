// Makes one module of another: unfused products of fused ones, shared memory of memory of its own.

import { joinBytes, leb } from "../base/util/bytes.ts";
import { memoryRefused } from "../base/util/errors.ts";

// The binary format of the modules, as far as their instructions need it.

/** The id of the section of function bodies. */
const CODE = 10;
/** Bytes of magic number and version. */
const HEADER = 8;

const END = 0x0b;
const BR_TABLE = 0x0e;

/** The first prefix of opcodes of two bytes, which are numbered from 0x1000 times their prefix: those of SIMD from 0xfd000. */
const PREFIX = 0xfc;
const RELAXED_SWIZZLE = 0xfd100;
const RELAXED_MADD = 0xfd105;

/**
 * The immediates of the opcodes from `first` to that of the next row: how many LEB128 numbers, then how many bytes. The
 * kernels have no opcode of a row without counts.
 */
type Immediates = readonly [first: number, numbers?: number, bytes?: number];
const IMMEDIATES: readonly Immediates[] = [
  [0x00, 0, 0], // unreachable, nop
  [0x02, 1, 0], // block, loop, if
  [0x05, 0, 0], // else
  [0x06],
  [0x0b, 0, 0], // end
  [0x0c, 1, 0], // br, br_if; br_table has a list before its number
  [0x0f, 0, 0], // return
  [0x10, 1, 0], // call
  [0x11],
  [0x1a, 0, 0], // drop, select
  [0x1c],
  [0x20, 1, 0], // locals, globals
  [0x25],
  [0x28, 2, 0], // loads, stores
  [0x3f, 1, 0], // memory.size, memory.grow, i32.const, i64.const
  [0x43, 0, 4], // f32.const
  [0x44, 0, 8], // f64.const
  [0x45, 0, 0], // numbers
  [0xc5],
  [0xfc00a, 2, 0], // memory.copy
  [0xfc00b, 1, 0], // memory.fill
  [0xfd000, 2, 0], // loads, v128.store
  [0xfd00c, 0, 16], // v128.const, i8x16.shuffle
  [0xfd00e, 0, 0], // swizzle, splats
  [0xfd015, 0, 1], // lanes
  [0xfd023, 0, 0], // comparisons, bits
  [0xfd054, 2, 1], // loads and stores of lanes
  [0xfd05c, 2, 0], // loads with zeros
  [0xfd05e, 0, 0], // arithmetic
  [RELAXED_SWIZZLE, 0, 0],
  [RELAXED_SWIZZLE + 1],
  [RELAXED_MADD, 0, 0],
  [RELAXED_MADD + 1],
  [0xfd112, 0, 0], // products of bytes
];

const unexpected = (got: string) => new RangeError(`loadKernels: module expected kernels, got ${got}`);

/** The rows of opcodes that were asked for. */
const rows = new Map<number, Immediates>();

/** The row of an opcode. Throws a RangeError for opcodes that kernels do not have. */
function rowOf(opcode: number): Immediates {
  const row = rows.get(opcode) ?? IMMEDIATES.filter(([from]) => from <= opcode).pop();
  if (row?.[1] === undefined) throw unexpected(`opcode ${opcode.toString(16)}`);
  rows.set(opcode, row);
  return row;
}

/** Reads a module from beginning to end. */
export class ModuleReader {
  readonly bytes: Uint8Array<ArrayBuffer>;
  at = 0;

  constructor(bytes: Uint8Array<ArrayBuffer>) {
    this.bytes = bytes;
  }

  byte(): number {
    const byte = this.bytes[this.at++];
    if (byte === undefined) throw unexpected("a part of it");
    return byte;
  }

  /** A LEB128 number. Signed numbers are read as unsigned ones, since their values are not used. */
  number(): number {
    const byte = this.byte();
    return byte < 128 ? byte : (byte & 127) + 128 * this.number();
  }

  list<T>(read: (index: number) => T): T[] {
    return Array.from({ length: this.number() }, (_, index) => read(index));
  }

  /** Reads the next instruction with its immediates and returns its opcode. */
  instruction(): number {
    const first = this.byte();
    const opcode = first < PREFIX ? first : first * 0x1000 + this.number();
    const [, numbers, bytes] = rowOf(opcode);
    for (let left = opcode === BR_TABLE ? this.number() + 1 : (numbers as number); left > 0; left--) this.number();
    this.at += bytes as number;
    return opcode;
  }
}

// Makes the simd build from the relaxed one. They differ in a few instructions, so a bundle needs only one of them.

/** Ids of a module's sections. */
const TYPES = 1;
const FUNCTIONS = 3;
const GLOBALS = 6;
const EXPORTS = 7;

/** The exported global that is 1 in the relaxed build and 0 in the other. */
const MARK = "RELAXED";
const GLOBAL = 3;

const V128 = 0x7b;
const LOCAL_GET = 0x20;
const LOCAL_SET = 0x21;

/** i8x16.swizzle, f32x4.mul and f32x4.add. */
const SWIZZLE = [0xfd, 0x0e];
const MUL = [0xfd, 0xe6, 0x01];
const ADD = [0xfd, 0xe4, 0x01];
/** unreachable: what follows it is valid whatever the stack holds. */
const TRAP = [0x00];

/**
 * The bytes of the simd build from those of the relaxed one: each f32x4.relaxed_madd becomes a f32x4.mul and a
 * f32x4.add, each i8x16.relaxed_swizzle a swizzle, and the global RELAXED, from which kernels derive the height of their tiles, becomes 0. Products of bytes,
 * which the simd build never reaches (int-dot.ts), become traps. Shared memory stays shared. Throws a RangeError if a module
 * has an instruction that neither build has.
 */
export function unfuse(relaxed: Uint8Array): Uint8Array<ArrayBuffer> {
  const bytes = new Uint8Array(relaxed);
  const reader = new ModuleReader(bytes);
  let parameters: number[] = [];
  let functions: number[] = [];
  let globals: number[] = [];
  for (reader.at = HEADER; ; ) {
    const start = reader.at;
    const section = reader.byte();
    const end = reader.number() + reader.at;
    if (section === TYPES) parameters = reader.list(() => readType(reader));
    else if (section === FUNCTIONS) functions = reader.list(() => parameters[reader.number()] as number);
    else if (section === GLOBALS) globals = reader.list(() => readGlobal(reader));
    else if (section === EXPORTS) {
      for (const { name, kind, index } of reader.list(() => readExport(reader)))
        if (name === MARK && kind === GLOBAL) bytes[globals[index] as number] = 0;
    } else if (section === CODE) {
      const bodies = reader.list((i) => unfuseBody(reader, functions[i] as number));
      const code = joinBytes([leb(bodies.length), ...bodies]);
      return joinBytes([bytes.subarray(0, start), [CODE], leb(code.length), code, bytes.subarray(end)]);
    }
    reader.at = end;
  }
}

/** The function at the reader, preceded by its length. */
function unfuseBody(reader: ModuleReader, parameters: number): Uint8Array {
  const { bytes } = reader;
  const end = reader.number() + reader.at;
  const start = reader.at;
  const groups = reader.number();
  const declared = reader.at;
  let locals = parameters;
  for (let i = 0; i < groups; i++) {
    locals += reader.number();
    reader.byte();
  }
  // The addend is the top operand of the stack; one more local holds it during the multiplication.
  const addend = leb(locals);
  const mulAdd = [LOCAL_SET, ...addend, ...MUL, LOCAL_GET, ...addend, ...ADD];
  const parts: (Uint8Array | readonly number[])[] = [leb(groups + 1), bytes.subarray(declared, reader.at), [1, V128]];
  let copied = reader.at;
  let changes = false;
  while (reader.at < end) {
    const at = reader.at;
    const opcode = reader.instruction();
    if (opcode < RELAXED_SWIZZLE) continue;
    const instead = opcode === RELAXED_MADD ? mulAdd : opcode === RELAXED_SWIZZLE ? SWIZZLE : TRAP;
    parts.push(bytes.subarray(copied, at), instead);
    copied = reader.at;
    changes = true;
  }
  const body = changes ? joinBytes([...parts, bytes.subarray(copied, end)]) : bytes.subarray(start, end);
  return joinBytes([leb(body.length), body]);
}

/** Reads a function type. Returns how many parameters it has. */
function readType(reader: ModuleReader): number {
  reader.byte();
  const parameters = reader.list(() => reader.byte());
  reader.list(() => reader.byte());
  return parameters.length;
}

/** Reads a global. Returns the offset of the first byte of its initial value. */
function readGlobal(reader: ModuleReader): number {
  const value = reader.at + 3;
  reader.at += 2;
  while (reader.instruction() !== END);
  return value;
}

function readExport(reader: ModuleReader) {
  const name = String.fromCharCode(...reader.list(() => reader.byte()));
  return { name, kind: reader.byte(), index: reader.number() };
}

// Makes a module import shared memory instead of unshared memory. Its code stays the same: engines run plain loads and
// stores, the only ones that kernels have, on either.

const IMPORTS = 2;
const MEMORY = 2;
/** Flags of a memory: it has a maximum, and is shared. */
const SHARED = 3;
/** The maximum in the import, in pages of 64 KiB: all that 32-bit addresses reach. */
const MOST_PAGES = 65_536;

/** Reads an unsigned LEB128 number at `at`. Returns it and the offset of its end. */
function readUnsigned(bytes: Uint8Array, at: number): readonly [value: number, end: number] {
  let value = 0;
  for (let shift = 0; ; shift += 7) {
    const byte = bytes[at++] ?? 0;
    value += (byte & 127) * 2 ** shift;
    if (byte < 128) return [value, at];
  }
}

/**
 * The module of `bytes` on shared memory of up to 4 GiB, byte for byte what the compiler emits for threads. Bytes whose
 * only import is not an unshared memory are returned unchanged.
 */
function shareMemory(bytes: Uint8Array<ArrayBuffer>): Uint8Array<ArrayBuffer> {
  for (let at = HEADER; at < bytes.length; ) {
    const [length, from] = readUnsigned(bytes, at + 1);
    if (bytes[at] === IMPORTS) return withImport(bytes, at, from, from + length);
    at = from + length;
  }
  return bytes;
}

/** The bytes with the memory in the import section [from, to) shared; the section's id is at `id`. */
function withImport(bytes: Uint8Array<ArrayBuffer>, id: number, from: number, to: number): Uint8Array<ArrayBuffer> {
  const [count, names] = readUnsigned(bytes, from);
  let kind = names;
  for (let i = 0; i < 2; i++) {
    const [length, start] = readUnsigned(bytes, kind);
    kind = start + length;
  }
  if (count !== 1 || bytes[kind] !== MEMORY || bytes[kind + 1] !== 0) return bytes;
  const [, end] = readUnsigned(bytes, kind + 2);
  if (end !== to) return bytes;
  const section = joinBytes([bytes.subarray(from, kind + 1), [SHARED], bytes.subarray(kind + 2, end), leb(MOST_PAGES)]);
  return joinBytes([bytes.subarray(0, id + 1), leb(section.length), section, bytes.subarray(to)]);
}

/**
 * Maxima of the memory itself, in the order in which they are tried: some engines cannot reserve 4 GiB of addresses.
 */
const PAGES = [MOST_PAGES, 16_384, 4096];

function createMemory(): WebAssembly.Memory {
  let refused: unknown;
  for (const maximum of PAGES) {
    try {
      return new WebAssembly.Memory({ initial: 1, maximum, shared: true });
    } catch (error) {
      refused = error;
    }
  }
  throw memoryRefused("that threads could share", refused);
}

/** Creates shared memory and modules for it; given to loaders by entries with threads. */
export const SHARING: {
  shareMemory(bytes: Uint8Array<ArrayBuffer>): Uint8Array<ArrayBuffer>;
  createMemory(): WebAssembly.Memory;
} = { shareMemory, createMemory };
