// The form in which bundles contain modules: their bytes by kind, a stream each, since bytes of one kind repeat more among
// themselves than instructions with their immediates do. Deflated, that is 15 % less.

import { BR_TABLE, CODE, IMMEDIATES, type Immediates, ModuleReader, PREFIX, rowOf, SECTIONS } from "./module-reader.ts";

/**
 * The streams of what is not an instruction and of opcodes. Two streams for each row of IMMEDIATES follow: its numbers take
 * them in turn, its bytes the first.
 */
export const OTHERS = 0;
export const OPCODES = 1;

/**
 * The module that scripts/split-streams.mjs divided: its length and a list of the lengths of its streams, as LEB128, then the
 * streams. Throws a RangeError for other bytes. Written as loops without objects, since most of it runs interpreted.
 */
export function joinStreams(bytes: Uint8Array<ArrayBuffer>): Uint8Array<ArrayBuffer> {
  const header = new ModuleReader(bytes);
  const out = new Uint8Array(header.number());
  const lengths = header.list(() => header.number());
  let { at: end } = header;
  /** Where the next byte of each stream is. */
  const from = Int32Array.from(lengths, (length) => {
    end += length;
    return end - length;
  });
  if (end !== bytes.length)
    throw new RangeError(`loadKernels: module expected streams of ${end} bytes, got ${bytes.length}`);
  let to = 0;

  const copyBytes = (stream: number, count: number) => {
    let at = from[stream] as number;
    for (const until = at + count; at < until; ) out[to++] = bytes[at++] as number;
    from[stream] = at;
  };
  /** Copies a LEB128 number and returns it. */
  const copyNumber = (stream: number) => {
    let at = from[stream] as number;
    let byte = bytes[at++] as number;
    out[to++] = byte;
    let number = byte & 127;
    for (let unit = 128; byte > 127; unit *= 128) {
      byte = bytes[at++] as number;
      out[to++] = byte;
      number += (byte & 127) * unit;
    }
    from[stream] = at;
    return number;
  };
  const copyInstructions = (until: number) => {
    let opcodes = from[OPCODES] as number;
    while (to < until) {
      let opcode = bytes[opcodes++] as number;
      out[to++] = opcode;
      if (opcode >= PREFIX) {
        from[OPCODES] = opcodes;
        opcode = opcode * 0x1000 + copyNumber(OPCODES);
        opcodes = from[OPCODES] as number;
      }
      const row = rowOf(opcode);
      const immediates = IMMEDIATES[row] as Immediates;
      const stream = OPCODES + 1 + 2 * row;
      const count = opcode === BR_TABLE ? copyNumber(stream) + 1 : (immediates[1] as number);
      for (let i = 0; i < count; i++) copyNumber(stream + (i & 1));
      if (immediates[2]) copyBytes(stream, immediates[2]);
    }
    from[OPCODES] = opcodes;
  };

  copyBytes(OTHERS, SECTIONS);
  while (to < out.length) {
    const section = copyNumber(OTHERS);
    const until = copyNumber(OTHERS) + to;
    if (section === CODE)
      for (let bodies = copyNumber(OTHERS); bodies > 0; bodies--) {
        const bodyEnd = copyNumber(OTHERS) + to;
        for (let groups = copyNumber(OTHERS); groups > 0; groups--) {
          copyNumber(OTHERS);
          copyBytes(OTHERS, 1);
        }
        copyInstructions(bodyEnd);
      }
    copyBytes(OTHERS, until - to);
  }
  return out;
}
