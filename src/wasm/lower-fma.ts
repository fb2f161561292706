// Makes the simd build from the relaxed one. They differ in one instruction, so a bundle needs only one of them.

import { type Bytes, joinBytes, leb } from "../util/bytes.ts";

/** Ids of a module's sections. */
const TYPES = 1;
const FUNCTIONS = 3;
const GLOBALS = 6;
const EXPORTS = 7;
const CODE = 10;

/** The exported global that is 1 in the relaxed build and 0 in the other. */
const MARK = "RELAXED";
const GLOBAL = 3;

const V128 = 0x7b;
const END = 0x0b;
const BR_TABLE = 0x0e;
const LOCAL_GET = 0x20;
const LOCAL_SET = 0x21;

/** The prefix of SIMD opcodes, which this file numbers from 0xfd000. */
const SIMD = 0xfd;
const RELAXED_MADD = 0xfd105;

/**
 * The immediates of the opcodes from `first` to that of the next row: how many LEB128 numbers, then how many bytes. The
 * float32 kernels have no opcode of a row without counts.
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
  [0x1c, 2, 0], // select of a type
  [0x1d],
  [0x20, 1, 0], // locals, globals
  [0x25],
  [0x28, 2, 0], // loads, stores
  [0x3f, 1, 0], // memory.size, memory.grow, i32.const, i64.const
  [0x43, 0, 4], // f32.const
  [0x44, 0, 8], // f64.const
  [0x45, 0, 0], // numbers
  [0xc5],
  [0xfd000, 2, 0], // loads, v128.store
  [0xfd00c, 0, 16], // v128.const, i8x16.shuffle
  [0xfd00e, 0, 0], // swizzle, splats
  [0xfd015, 0, 1], // lanes
  [0xfd023, 0, 0], // comparisons, bits
  [0xfd054, 2, 1], // loads and stores of lanes
  [0xfd05c, 2, 0], // loads with zeros
  [0xfd05e, 0, 0], // arithmetic
  [0xfd100],
  [RELAXED_MADD, 0, 0],
  [RELAXED_MADD + 1],
];

/** f32x4.mul and f32x4.add. */
const MUL = [SIMD, 0xe6, 0x01];
const ADD = [SIMD, 0xe4, 0x01];

/**
 * The bytes of the simd build from those of the relaxed one: each f32x4.relaxed_madd becomes a f32x4.mul and a
 * f32x4.add, and the global RELAXED, from which kernels derive the height of their tiles, becomes 0. Shared memory
 * stays shared. Throws a RangeError if a module has an instruction that neither build has.
 */
export function unfuse(relaxed: Uint8Array): Uint8Array<ArrayBuffer> {
  const bytes = new Uint8Array(relaxed);
  const reader = new Reader(bytes);
  let parameters: number[] = [];
  let functions: number[] = [];
  let globals: number[] = [];
  for (reader.at = 8; ; ) {
    const start = reader.at;
    const section = reader.byte();
    const end = reader.number() + reader.at;
    if (section === TYPES) parameters = reader.list(() => reader.type());
    else if (section === FUNCTIONS) functions = reader.list(() => parameters[reader.number()] as number);
    else if (section === GLOBALS) globals = reader.list(() => reader.global());
    else if (section === EXPORTS) {
      for (const { name, kind, index } of reader.list(() => reader.export()))
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
function unfuseBody(reader: Reader, parameters: number): Uint8Array {
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
  const parts: Bytes[] = [leb(groups + 1), bytes.subarray(declared, reader.at), [1, V128]];
  let copied = reader.at;
  let fuses = false;
  while (reader.at < end) {
    const at = reader.at;
    if (reader.instruction() !== RELAXED_MADD) continue;
    parts.push(bytes.subarray(copied, at), mulAdd);
    copied = reader.at;
    fuses = true;
  }
  const body = fuses ? joinBytes([...parts, bytes.subarray(copied, end)]) : bytes.subarray(start, end);
  return joinBytes([leb(body.length), body]);
}

/** Reads a module from beginning to end. */
class Reader {
  readonly bytes: Uint8Array;
  readonly #rows = new Map<number, Immediates | undefined>();
  at = 0;

  constructor(bytes: Uint8Array) {
    this.bytes = bytes;
  }

  byte(): number {
    const byte = this.bytes[this.at++];
    if (byte === undefined) throw new RangeError("unfuse: relaxed expected a whole module, got a part of one");
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

  /** How many parameters a function type has. */
  type(): number {
    this.byte();
    const parameters = this.list(() => this.byte());
    this.list(() => this.byte());
    return parameters.length;
  }

  /** The offset of the first byte of a global's initial value. */
  global(): number {
    const value = this.at + 3;
    this.at += 2;
    while (this.instruction() !== END);
    return value;
  }

  export() {
    const name = String.fromCharCode(...this.list(() => this.byte()));
    return { name, kind: this.byte(), index: this.number() };
  }

  /** Reads the next instruction with its immediates and returns its opcode. */
  instruction(): number {
    const at = this.at;
    const first = this.byte();
    const opcode = first === SIMD ? SIMD * 4096 + this.number() : first;
    const row = this.#rows.get(opcode) ?? IMMEDIATES.filter(([from]) => from <= opcode).pop();
    this.#rows.set(opcode, row);
    if (row?.[2] === undefined)
      throw new RangeError(`unfuse: relaxed expected instructions of its kernels, got ${opcode.toString(16)} at ${at}`);
    const numbers = opcode === BR_TABLE ? this.number() + 1 : (row[1] as number);
    for (let i = 0; i < numbers; i++) this.number();
    this.at += row[2];
    return opcode;
  }
}
