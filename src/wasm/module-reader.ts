// The binary format of the modules, as far as their instructions need it.

/** The id of the section of function bodies, and where the first section begins. */
export const CODE = 10;
export const SECTIONS = 8;

export const END = 0x0b;
const BR_TABLE = 0x0e;

/** The first prefix of opcodes of two bytes, which are numbered from 0x1000 times their prefix: those of SIMD from 0xfd000. */
const PREFIX = 0xfc;
export const RELAXED_MADD = 0xfd105;

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
  [0xfd100],
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
