// Makes the simd build from the relaxed one. They differ in a few instructions, so a bundle needs only one of them.

import { type Bytes, joinBytes, leb } from "../util/bytes.ts";
import { CODE, END, ModuleReader, RELAXED_MADD } from "./module-reader.ts";

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

/** f32x4.mul and f32x4.add. */
const MUL = [0xfd, 0xe6, 0x01];
const ADD = [0xfd, 0xe4, 0x01];
/** unreachable: what follows it is valid whatever the stack holds. */
const TRAP = [0x00];

/**
 * The bytes of the simd build from those of the relaxed one: each f32x4.relaxed_madd becomes a f32x4.mul and a
 * f32x4.add, and the global RELAXED, from which kernels derive the height of their tiles, becomes 0. Products of bytes,
 * which the simd build never reaches (int-dot.ts), become traps. Shared memory stays shared. Throws a RangeError if a module
 * has an instruction that neither build has.
 */
export function unfuse(relaxed: Uint8Array): Uint8Array<ArrayBuffer> {
  const bytes = new Uint8Array(relaxed);
  const reader = new ModuleReader(bytes);
  let parameters: number[] = [];
  let functions: number[] = [];
  let globals: number[] = [];
  for (reader.at = 8; ; ) {
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
  const parts: Bytes[] = [leb(groups + 1), bytes.subarray(declared, reader.at), [1, V128]];
  let copied = reader.at;
  let changes = false;
  while (reader.at < end) {
    const at = reader.at;
    const opcode = reader.instruction();
    if (opcode < RELAXED_MADD) continue;
    parts.push(bytes.subarray(copied, at), opcode === RELAXED_MADD ? mulAdd : TRAP);
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
